"""Both ends of a tunnel for measurements: what runs in the namespaces of `anabranch emulate`.

    python3 tunnel_ends.py far FOLDER [bare]             services, and serve-tunnel
    python3 tunnel_ends.py near FOLDER WORK [WORD...]    the tunnel, and one piece of work over it

The near end prints a JSON object at last. TUNNEL_WORDS in its environment has further words for the
tunnel's command. FOLDER has what `prepare` makes; with `bare`, which
leaves out the services of other programs, it may be empty.
"""

import asyncio
import base64
import hashlib
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

FAR = "10.77.1.2"
HTTP, GIT, SSH, IPERF, ECHO, SINK, PAUSES, TUNNEL = 8101, 8102, 8103, 8104, 8105, 8106, 8107, 7707
SERVICES = [HTTP, GIT, SSH, IPERF, ECHO, SINK, PAUSES]
# Where the near end reaches them: the same ports of its own loopback.
SOCKS = 1080
OBJECTS = 60
# Shorter pauses in what arrives are not told, in seconds.
LEAST_PAUSE = 0.002


def prepare(folder, size):
    """Files, a repository, and keys; `size` bytes for each piece of work."""
    www = folder / "www"
    www.mkdir()
    write(www / "file", size)
    write_page(www, size // OBJECTS)
    repository = folder / "git" / "repository"
    repository.mkdir(parents=True)
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    for number in range(20):
        write(repository / f"file{number}", size // 20)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "all"], check=True)
    (repository / ".git" / "git-daemon-export-ok").touch()
    tree = folder / "tree"
    tree.mkdir()
    for number in range(40):
        write(tree / f"file{number}", size // 40)
    for name in ("host_key", "user_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True
        )
    shutil.copy(folder / "user_key.pub", folder / "authorized")
    (folder / "sshd_config").write_text(
        f"Port {SSH}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\n"
        f"PidFile {folder}/sshd.pid\nPasswordAuthentication no\n"
    )


def write_page(www, size):
    """A page with scripts of `size` bytes, whose digests the browser compares. Its title
    becomes how many of them ran.
    """
    tags = ["<!doctype html>", "<title>none</title>", "<script>let ran = 0;</script>"]
    for number in range(OBJECTS):
        script = f"ran += 1;\n// {os.urandom(size // 2).hex()}\n".encode()
        (www / f"object{number}.js").write_bytes(script)
        digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
        source = f'src="object{number}.js" integrity="sha256-{digest}"'
        tags.append(f"<script defer {source}></script>")
    (www / "last.js").write_text("document.title = `${ran} ran`;")
    tags.append('<script defer src="last.js"></script>')
    (www / "index.html").write_text("\n".join(tags))


def write(path, size):
    path.write_bytes(os.urandom(size))


def peak(pid):
    """The largest memory of a process so far, in bytes."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


# The far end.


async def echo(reader, writer):
    """Answers each piece of data with itself."""
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()
    except ConnectionError:
        writer.close()


async def sink(reader, writer):
    """Reads to the end, and answers how much that was."""
    count = 0
    while data := await reader.read(1 << 20):
        count += len(data)
    writer.write(str(count).encode())
    await writer.drain()
    writer.close()


async def pauses(reader, writer):
    """Reads to the end, and answers with the digest of it and the pauses in between: when each
    began, on the monotonic clock, and its length, in seconds.
    """
    digest, found, last = hashlib.blake2b(), [], time.monotonic()
    while data := await reader.read(1 << 16):
        now = time.monotonic()
        if now - last > LEAST_PAUSE:
            found.append((last, now - last))
        last = now
        digest.update(data)
    writer.write(json.dumps({"digest": digest.hexdigest(), "pauses": found}).encode())
    await writer.drain()
    writer.close()


def start_services(folder):
    """The services of other programs."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    pathlib.Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    commands = [
        [sys.executable, "-m", "http.server", HTTP, "--bind", "127.0.0.1", "-d", folder / "www"],
        ["git", "daemon", f"--base-path={folder}/git", f"--port={GIT}", "--listen=127.0.0.1"],
        [sshd, "-D", "-e", "-f", folder / "sshd_config"],
        ["iperf3", "-s", "-p", IPERF, "-B", "127.0.0.1"],
    ]
    for command in commands:
        log = open(folder / f"{pathlib.Path(str(command[0])).name}.log", "wb")
        subprocess.Popen([str(word) for word in command], stderr=log, **quiet)


def far(folder, kind="all"):
    """Runs everything until it is killed."""
    if kind == "all":
        start_services(folder)
    permits = [word for port in SERVICES for word in ("--permit", f"127.0.0.1:{port}")]
    command = [os.environ["ANABRANCH"], "serve-tunnel", "--token-out", f"{folder}/token", *permits]
    with open(folder / "far.err", "wb") as log:
        environment = dict(os.environ, ANABRANCH_HOME=f"{folder}/far-home")
        served = subprocess.Popen(
            [*command, "-v"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    (folder / "far.pid").write_text(str(served.pid))
    resource.setrlimit(resource.RLIMIT_NOFILE, (8_192, 8_192))

    async def serve():
        for address in ("127.0.0.1", FAR):
            await asyncio.start_server(echo, address, ECHO, backlog=1_024)
            await asyncio.start_server(sink, address, SINK, backlog=1_024)
            await asyncio.start_server(pauses, address, PAUSES)
        await asyncio.Event().wait()

    asyncio.run(serve())


# The near end.


class Tunnel:
    """The program, with every service at the same port of loopback."""

    def __init__(self, folder):
        self.folder = folder
        token = folder / "token"
        while not token.exists():
            time.sleep(0.01)
        command = [os.environ["ANABRANCH"], "tunnel", FAR, "--token-file", token]
        command += ["--socks", str(SOCKS), "--json"]
        command += shlex.split(os.environ.get("TUNNEL_WORDS", ""))
        for port in SERVICES:
            command += ["-L", f"{port}:127.0.0.1:{port}"]
        environment = dict(os.environ, ANABRANCH_HOME=f"{folder}/near-home")
        self.out = folder / "near.out"
        self.began = time.monotonic()
        with open(self.out, "wb") as out, open(folder / "near.err", "wb") as err:
            self.process = subprocess.Popen(
                [str(word) for word in command], env=environment, stdout=out, stderr=err
            )
        self._until(lambda events: any("connected" in e.get("text", "") for e in events))
        # Two paths carry data.
        self._until(lambda events: sum(e.get("state") == "active" for e in events) >= 2)

    def _until(self, condition):
        end = time.monotonic() + 20
        while not condition(self.events()):
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit(f"no tunnel: {self.out.read_text()} {self.events()}")
            time.sleep(0.02)

    def events(self):
        complete = self.out.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in complete.splitlines()]

    def peaks(self):
        return peak(self.process.pid), peak(int((self.folder / "far.pid").read_text()))


def run(*command, **options):
    """A command that must succeed."""
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def same(one, other):
    """Whether two files have the same content."""
    digest = [hashlib.sha256(path.read_bytes()).digest() for path in (one, other)]
    return digest[0] == digest[1]


def curl(folder):
    got = folder / "got"
    run("curl", "-sSf", "--proxy", f"socks5h://127.0.0.1:{SOCKS}", "-o", got,
        f"http://127.0.0.1:{HTTP}/file")  # fmt: skip
    return {"whole": same(got, folder / "www" / "file")}


def clone(folder):
    copy = folder / "clone"
    run("git", "clone", "--quiet", f"git://127.0.0.1:{GIT}/repository", copy)
    run("git", "-C", copy, "fsck")
    return {"whole": (copy / "file0").exists()}


def iperf(_):
    report = json.loads(run("iperf3", "-c", "127.0.0.1", "-p", IPERF, "-t", "8", "-J"))
    received = report["end"]["sum_received"]
    return {"whole": received["bytes"] > 0, "mbit": received["bits_per_second"] / 1e6}


def rsync(folder):
    ssh = f"ssh -i {folder}/user_key -p {SSH} -o StrictHostKeyChecking=no"
    ssh += f" -o UserKnownHostsFile={folder}/known -o BatchMode=yes"
    run("rsync", "-a", "-e", ssh, f"root@127.0.0.1:{folder}/tree/", folder / "copy")
    names = sorted(path.name for path in (folder / "tree").iterdir())
    return {"whole": all(same(folder / "tree" / n, folder / "copy" / n) for n in names)}


def page(folder):
    """A page and its objects in a browser, again and again for eight seconds."""
    count, end = 0, time.monotonic() + 8
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-background-networking",
               f"--proxy-server=socks5://127.0.0.1:{SOCKS}", "--proxy-bypass-list=<-loopback>",
               "--dump-dom"]  # fmt: skip
    while time.monotonic() < end:
        shutil.rmtree(folder / "profile", ignore_errors=True)
        profile = f"--user-data-dir={folder}/profile"
        shown = run(*browser, profile, f"http://127.0.0.1:{HTTP}/index.html")
        if f"<title>{OBJECTS} ran</title>" not in shown:
            return {"whole": False, "pages": count, "shown": shown[:200]}
        count += 1
    return {"whole": True, "pages": count}


def bulk(folder):
    """The file to the sink, as one connection; timed until the sink has all."""
    data = (folder / "www" / "file").read_bytes()
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", SINK)) as stream:
        stream.sendall(data)
        stream.shutdown(socket.SHUT_WR)
        count = int(stream.recv(64))
    return {"whole": count == len(data), "seconds": time.monotonic() - began}


def flow(_, seconds):
    """Random bytes as one connection for so many seconds from now, and the pauses at its end."""
    data, digest = os.urandom(1 << 16), hashlib.blake2b()
    end = time.monotonic() + float(seconds)
    with socket.create_connection(("127.0.0.1", PAUSES)) as stream:
        while time.monotonic() < end:
            stream.sendall(data)
            digest.update(data)
        stream.shutdown(socket.SHUT_WR)
        answer = json.loads(stream.makefile().read())
    return {"whole": answer["digest"] == digest.hexdigest(), "pauses": answer["pauses"]}


def first_byte(_):
    """Milliseconds from connect() to the first byte of an answer."""

    def direct(address):
        began = time.monotonic()
        with socket.create_connection((address, ECHO)) as stream:
            stream.sendall(b"x")
            assert stream.recv(1) == b"x"
        return (time.monotonic() - began) * 1e3

    def by_socks():
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", SOCKS)) as stream:
            stream.sendall(b"\5\1\0")
            assert stream.recv(2) == b"\5\0"
            stream.sendall(b"\5\1\0\1\x7f\0\0\1" + ECHO.to_bytes(2, "big"))
            assert stream.recv(10)[1] == 0
            stream.sendall(b"x")
            assert stream.recv(1) == b"x"
        return (time.monotonic() - began) * 1e3

    def median(measure):
        figures = []
        for _ in range(21):
            figures.append(measure())
            time.sleep(0.02)
        return statistics.median(figures)

    return {
        "direct": median(lambda: direct(FAR)),
        "forward": median(lambda: direct("127.0.0.1")),
        "socks": median(by_socks),
    }


async def exchange(keep=None):
    """A connection to the echo server; it stays open in the list `keep`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", ECHO)
    writer.write(b"x")
    if await reader.readexactly(1) != b"x":
        raise ConnectionError("another byte")
    if keep is None:
        writer.close()
        await writer.wait_closed()
    else:
        keep.append((reader, writer))


async def many_connections(open_ones, a_second, seconds):
    kept, failed, late = [], 0, 0.0
    for _ in range(open_ones // 100):
        await asyncio.gather(*[exchange(kept) for _ in range(100)])
    began = time.monotonic()
    tasks = set()

    async def one():
        nonlocal failed, late
        at = time.monotonic()
        try:
            await asyncio.wait_for(exchange(), 10)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            failed += 1
        late = max(late, time.monotonic() - at)

    for number in range(a_second * seconds):
        await asyncio.sleep(max(0, began + number / a_second - time.monotonic()))
        task = asyncio.create_task(one())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    took = time.monotonic() - began

    async def is_alive(reader, writer):
        writer.write(b"y")
        return await reader.readexactly(1) == b"y"

    alive = sum(await asyncio.gather(*[is_alive(*ends) for ends in kept]))
    return {"alive": alive, "failed": failed, "took": took, "late": late}


def many(_):
    resource.setrlimit(resource.RLIMIT_NOFILE, (8_192, 8_192))
    return asyncio.run(many_connections(2_000, 500, 10))


WORK = {
    "curl": curl,
    "git": clone,
    "iperf3": iperf,
    "rsync": rsync,
    "page": page,
    "bulk": bulk,
    "flow": flow,
    "first-byte": first_byte,
    "many": many,
}


def near(folder, name, *words):
    for old in ("got", "clone", "copy"):
        shutil.rmtree(folder / old, ignore_errors=True)
    tunnel = Tunnel(folder)
    began = time.monotonic()
    result = WORK[name](folder, *words)
    result["took_all"] = time.monotonic() - began
    result["tunnel_began"] = tunnel.began
    result["near"], result["far"] = tunnel.peaks()
    tunnel.process.send_signal(signal.SIGTERM)
    tunnel.process.wait(10)
    notices = [event["text"] for event in tunnel.events() if event["event"] == "notice"]
    result["reconnected"] = sum("no tunnel" in text for text in notices)
    print(json.dumps(result))


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "far":
        far(folder, *sys.argv[3:])
    else:
        near(folder, *sys.argv[3:])
