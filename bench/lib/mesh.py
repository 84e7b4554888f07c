"""A network of many hosts, routers and address translators, for as long as a context lasts.

    description = {
        "host": {"sender": {}, "relay": {}},
        "translator": {"home": {"outside": "dsl", "mapping": "address-dependent"}},
        "link": [
            lib.link("lan", "sender", "home", rate="100 Mbit/s", delay="1 ms"),
            lib.link("dsl", "home", "relay", rate="20 Mbit/s", delay="10 ms"),
        ],
    }
    with lib.Mesh(description) as mesh:
        relay = mesh.host("relay")
        server = relay.start("server", ["python3", "-m", "http.server", "80"])
        done = mesh.host("sender").run(["curl", f"http://{relay.address('dsl')}/"])
        mesh.link("dsl").change(rate="2 Mbit/s", loss=0.01)
        mesh.link("dsl").down()
        relay.restart("server")
    print(mesh.report["valid"])

The description is that of docs/mesh.md: a dictionary, or the path of a file. Only `anabranch
emulate` knows what it means.
"""

import contextlib
import json
import pathlib
import signal
import subprocess
import tempfile

from .emulation import Failed, anabranch
from .hosts import Process, tail


def link(name, first, second, rate, delay, queue="256 KiB", **more):
    """The description of a link between two nodes; `more` has further keys."""
    return {
        "name": name,
        "between": [first, second],
        "rate": rate,
        "delay": delay,
        "queue": queue,
        **more,
    }


class Mesh:
    """A network that runs while the context lasts; `report` has what happened, afterwards.

    The logs of its programs are in `folder`, which the caller keeps, or which is removed.
    """

    def __init__(self, description, folder=None):
        self._description, self._kept = description, folder
        self._stack = contextlib.ExitStack()
        self.report = None

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            made = self._kept or stack.enter_context(tempfile.TemporaryDirectory())
            self.folder = pathlib.Path(made)
            self._told = self.folder / "mesh.err"
            self._report = self.folder / "mesh-report.json"
            command = [anabranch(), "emulate", str(self._file()), "--report", str(self._report)]
            with open(self._told, "wb") as told:
                self._child = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=told, text=True
                )
            stack.callback(self._end)
            hosts = self._hear("ready")["hosts"]
            self._hosts = {name: Host(self, name, **host) for name, host in hosts.items()}
            for host in self._hosts.values():
                stack.callback(host.end)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def host(self, name):
        """The host that is called so."""
        return self._hosts[name]

    def link(self, name):
        """The link that is called so."""
        return Link(self, name)

    def forget(self, translator):
        """Lets a translator forget all flows, as after a loss of power."""
        self.ask({"do": "forget", "translator": translator})

    def move(self, node, link, addresses):
        """Gives the node other addresses on the link."""
        self.ask({"do": "addresses", "link": link, "node": node, "addresses": addresses})
        if node in self._hosts:
            bare = [address.partition("/")[0] for address in addresses]
            self._hosts[node].addresses[link] = bare

    def counts(self):
        """What links, routers and translators counted so far."""
        return self.ask({"do": "count"}, "counts")

    def ask(self, request, answer="done"):
        """Sends a request; returns its answer. Failed if it was refused."""
        try:
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
        except BrokenPipeError as error:
            raise self._failed() from error
        return self._hear(answer)

    def _hear(self, event):
        line = self._child.stdout.readline()
        if not line:
            raise self._failed()
        heard = json.loads(line)
        if heard["event"] != event:
            raise Failed(heard.get("error", f"the mesh says {line}"))
        return heard

    def _failed(self):
        self._child.wait(10)
        return Failed(f"the mesh ended: exit code {self._child.returncode}\n{tail(self._told)}")

    def _file(self):
        if not isinstance(self._description, dict):
            return self._description
        file = self.folder / "mesh.toml"
        file.write_text(toml(self._description))
        return file

    def _end(self):
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.close()
        try:
            self._child.wait(20)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()
        if self._report.exists():
            self.report = json.loads(self._report.read_text())


class Host:
    """A host of a mesh, and the programs that were started there."""

    def __init__(self, mesh, name, enter, addresses):
        self.name = name
        # The words before a command that let it run here.
        self.enter = enter
        # By device, which is called like the link.
        self.addresses = addresses
        self._mesh = mesh
        self._programs, self._started = {}, 0

    def address(self, link, version=4):
        """Its first address of that version of IP on the link."""
        found = (one for one in self.addresses[link] if (":" in one) == (version == 6))
        return next(found)

    def run(self, command, timeout=30, check=True, **more):
        """Runs a command to its end and returns it, with its output as text. With `check`, Failed
        if its exit code is not 0.
        """
        words = [*self.enter, *map(str, command)]
        more = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, **more}
        try:
            done = subprocess.run(words, timeout=timeout, **more)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{self.name}: no end after {timeout} s: {command}") from error
        if check and done.returncode != 0:
            raise Failed(f"{self.name}: exit code {done.returncode}: {command}\n{done.stderr}")
        return done

    def start(self, name, command, env=None):
        """Starts a program, which is killed when the mesh ends: a `Process`."""
        self._started += 1
        log = f"{self.name}-{name}-{self._started}"
        process = Process(self.enter, self._mesh.folder, log, command, env)
        self._programs[name] = (process, command, env)
        return process

    def process(self, name):
        """A program that was started."""
        return self._programs[name][0]

    def stop(self, name, number=signal.SIGTERM, timeout=10):
        """Ends a program by a signal; returns its exit code."""
        process, _, _ = self._programs[name]
        process.signal(number)
        return process.wait(timeout)

    def told(self, name):
        """The JSON objects that a program has written so far."""
        process, _, _ = self._programs[name]
        return process.events()

    def restart(self, name, number=signal.SIGTERM):
        """Ends a program by a signal and starts it anew."""
        self.stop(name, number)
        _, command, env = self._programs[name]
        return self.start(name, command, env)

    def end(self):
        """Kills all that was started."""
        for process, _, _ in self._programs.values():
            process.__exit__()


class Link:
    """A link of a mesh. Changes are of both directions, or of one `way`: `up` is from the first of
    its nodes to the second, `down` is back.
    """

    def __init__(self, mesh, name):
        self._mesh, self._name = mesh, name

    def change(self, way=None, **values):
        """Gives it another `rate`, `delay`, `loss` or `state`."""
        request = {"do": "link", "link": self._name, **values}
        self._mesh.ask(request if way is None else {**request, "way": way})

    def down(self, way=None):
        """Lets it lose all packets, until `up`."""
        self.change(way, state="down")

    def up(self, way=None):
        """Lets it carry packets again."""
        self.change(way, state="up")

    def counts(self):
        """What it counted so far, by direction."""
        return self._mesh.counts()["links"][self._name]


def toml(description):
    """A description as TOML: strings, numbers and truth values are written as in JSON."""

    def written(value):
        if isinstance(value, dict):
            pairs = (f"{json.dumps(key)} = {written(one)}" for key, one in value.items())
            return "{ " + ", ".join(pairs) + " }"
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(map(written, value)) + "]"
        return json.dumps(value)

    return "".join(f"{json.dumps(key)} = {written(value)}\n" for key, value in description.items())
