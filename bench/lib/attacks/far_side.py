"""A hostile far side of `cp` and `get`, hostile remote shells, and what another user of this
machine puts where `send` keeps a stream, or where a file is expected.

The hostile far side is crates/files/examples/attack_far_side.rs: it offers names that nobody asked
for, with valid data. What counts is what it got: names that were made here, bytes that another user
read, escape sequences on the terminal.
"""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import time

import lib
from faults import intruders
from lib.attacks import victim

SECRET = intruders.SECRET
# The other user of this machine.
INTRUDER = 12_345
# A program that was told to end has done so by then.
END_SECONDS = 10
MOST_MIB = 64
# What a hostile remote shell may have shown of what it says, for each start of ssh.
MOST_SHOWN = 3 * (80 << 10)
# What is asked for, and what the far side offers instead.
PULLS = [
    ("two-renamed", ["far:file"], "."),
    ("two-renamed", ["far:file"], "folder"),
    ("renamed", ["far:file"], "."),
    ("other", ["far:file"], "."),
    ("other", ["far:*"], "."),
    ("beside", ["far:file"], "."),
    ("beside", ["far:file"], "new"),
    ("contents", ["far:file"], "."),
    ("contents", ["far:f*"], "folder"),
    ("link", ["far:file"], "."),
    ("link", ["far:file"], "new"),
    ("through", ["far:file"], "."),
    ("up", ["far:file"], "."),
    ("up", ["far:file/"], "folder"),
]
FETCHES = [
    ("other", ["file"]),
    ("other", ["*"]),
    ("beside", ["file"]),
    ("link", ["file"]),
    ("link", ["f*"]),
    ("link", ["file", "--as", "new"]),
    ("through", ["file"]),
    ("up", ["file"]),
    ("up", ["file/"]),
]


def everything(folder):
    """All paths below a folder, with what they are; but not what waits to be complete."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if ".anabranch-partial" in path.parts:
            continue
        kind = os.readlink(path) if path.is_symlink() else path.is_dir() or path.read_bytes()
        found[path.relative_to(folder)] = kind
    return found


def furnished(folder, name):
    """A user's folder, and one beside it."""
    place = folder / name
    place.mkdir()
    home = intruders.Home(place, "near")
    (home.at / "folder").mkdir()
    (home.at / ".bashrc").write_text("mine")
    (place / "outside").mkdir()
    (place / "outside" / "mine").write_text("mine")
    return place, home


def got(place, before):
    """Whether anything changed that was not asked for. A file 'file' or 'new' was."""
    asked = {"near/file", "near/new", "near/folder/file"}

    def kept(found):
        plain = {path for path, what in found.items() if str(path) in asked}
        return {
            path: what
            for path, what in found.items()
            if not (path in plain and isinstance(what, bytes))
            and not str(path).startswith("near-settings")
        }

    return kept(everything(place)) != kept(before)


def cp(bars, folder, quick):
    """The far side of `cp` answers with names of its choice."""
    attacker = lib.example("anabranch-files", "attack_far_side")
    won = 0
    for number, (offer, sources, target) in enumerate([("honest", ["far:file"], "."), *PULLS]):
        place, home = furnished(folder, f"cp-{number}")
        ssh = remote_shell(place, f"exec {attacker} far {offer}")
        before = everything(place)
        code, said = home.run("cp", "--overwrite", "--ssh", ssh, *sources, target)
        if offer == "honest":
            # The attacker's side works: what it sends is taken if it was asked for.
            if code != 0 or not (home.at / "file").exists():
                raise lib.Failed(f"the honest offer does not arrive: {code}: {said}")
            continue
        if got(place, before) or code == 0:
            lib.say(f"cp: the offer '{offer}' for {sources} won: {code}: {said}")
            won += 1
    bars.at_most("cp: offers of a hostile far side that made what nobody asked for", won, 0)
    lib.say(f"cp: {len(PULLS)} hostile offers")


def get(bars, folder, quick):
    """A server, and one of several servers, offers what nobody asked for."""
    attacker = lib.example("anabranch-files", "attack_far_side")
    won = 0
    attempts = [("honest", ["file"], 1), *((*fetch, 1) for fetch in FETCHES)]
    # The first of several servers is the one whose names count.
    attempts += [("other", ["file"], 2), ("link", ["file"], 2)]
    for number, (offer, names, servers) in enumerate(attempts):
        place, home = furnished(folder, f"get-{number}")
        offers = [offer, *["honest"] * (servers - 1)]
        with contextlib.ExitStack() as stack:
            listening = [stack.enter_context(serving(attacker, offer)) for offer in offers]
            home.environment["ANABRANCH_TOKEN"] = "\n".join(one["token"] for one in listening)
            before = everything(place)
            at = [word for one in listening for word in ("--from", one["address"])]
            code, said = home.run("get", "--overwrite", *names, *at)
        if offer == "honest":
            if code != 0 or not (home.at / "file").exists():
                raise lib.Failed(f"the honest offer does not arrive: {code}: {said}")
            continue
        if got(place, before) or code == 0 and servers == 1:
            lib.say(f"get: the offer '{offer}' for {names} won: {code}: {said}")
            won += 1
    bars.at_most("get: offers of hostile servers that made what nobody asked for", won, 0)
    lib.say(f"get: {len(attempts) - 1} hostile offers")


@contextlib.contextmanager
def serving(attacker, offer):
    """A hostile server; yields its address and token."""
    with subprocess.Popen([attacker, "serve", offer], stdout=subprocess.PIPE, text=True) as it:
        try:
            yield json.loads(it.stdout.readline())
        finally:
            it.kill()


def remote_shell(folder, lines):
    """A program in the place of ssh that runs these lines."""
    ssh = folder / "ssh"
    ssh.write_text(f"#!/bin/sh\ncase \"$*\" in *' -G '*) exit 1 ;; esac\n{lines}\n")
    ssh.chmod(0o755)
    return ssh


# What remote shells do in the place of an installation: each starts like a host that lacks the
# program.
SHELLS = {
    "escapes": r"head -c 30000000 /dev/zero | tr '\0' '\033' >&2; exit 127",
    "title": r"printf '\033]0;owned\007\033[2J\n' >&2; exit 127",
    "claims": "case \"$*\" in *uname*) echo 'anabranch-install: installed'; exit ;; esac; exit 127",
    "machine": r"case \"$*\" in *uname*) printf 'anabranch-install: it is \033[2J\n'; exit ;; esac;"
    " exit 127",
    "floods": 'case "$*" in *uname*) exec yes ;; esac; exit 127',
    "noise": 'case "$*" in *uname*) exec cat /dev/urandom ;; esac; exit 127',
    "line": "exec cat /dev/zero",
}


def install(bars, folder, quick):
    """Remote shells that do anything but install."""
    shown, escapes, claimed = 0, 0, 0
    most_memory, slowest = 0, 0
    for name, lines in SHELLS.items():
        place, home = furnished(folder, f"install-{name}")
        (home.at / "data").write_bytes(SECRET)
        ssh = remote_shell(place, lines.replace('\\"', '"'))
        command = [lib.anabranch(), "cp", "--install", "--ssh", ssh, home.at / "data", "far:"]
        began = time.monotonic()
        with lib.Process(None, place, name, command, home.environment) as process:
            code = process.wait(60)
            slowest = max(slowest, time.monotonic() - began)
            most_memory = max(most_memory, process.peak)
        said = process.err.read_bytes() + process.out.read_bytes()
        shown = max(shown, len(said))
        escapes += b"\x1b" in said or b"\x07" in said
        claimed += code == 0
        lib.say(f"install: {name}: exit code {code}, {len(said)} bytes shown")
    bars.at_most("install: shells whose claims were believed", claimed, 0)
    bars.at_most("install: shells with escape sequences on the terminal", escapes, 0)
    bars.at_most("install: bytes shown of one shell", shown, MOST_SHOWN)
    bars.at_most("install: seconds until it is left", slowest, 30, " s")
    bars.at_most("install: memory", most_memory / victim.MIB, MOST_MIB, " MiB")


def as_intruder(script):
    """Runs lines of sh as another user."""
    user = ["setpriv", f"--reuid={INTRUDER}", f"--regid={INTRUDER}", "--clear-groups"]
    subprocess.run([*user, "sh", "-ec", script], check=True)


def free_port():
    with socket.socket() as end:
        end.bind(("127.0.0.1", 0))
        return end.getsockname()[1]


def spools(bars, folder, quick):
    """Another user prepares the spool of a stream, in folders that they may write to."""
    folder.chmod(0o711)
    read, sent, refused = 0, 0, 0
    attempts = [(mode, which) for mode in (0o777, 0o1777) for which in ("stream", "both")]
    for number, (mode, which) in enumerate(attempts):
        place = folder / f"spool-{number}"
        place.mkdir()
        place.chmod(0o711)
        spool = place / "spool"
        spool.mkdir()
        spool.chmod(mode)
        data, state = spool / "db.sql.stream", spool / "db.sql.stream-state"
        planted = f"printf planted >{data}; chmod 666 {data}"
        if which == "both":
            planted += f"; printf 'anabranch stream 1\\nbegan 1\\nsize 7\\n' >{state}"
            planted += f"; chmod 666 {state}"
        as_intruder(planted)
        here, there = intruders.Home(place, "here"), intruders.Home(place, "there")
        there.trusts(here, "here")
        port = free_port()
        with there.listening("receive", port, "--keep", "--no-token"):
            to = ["--name", "db.sql", "--spool", spool, "--to", f"127.0.0.1:{port}"]
            if which == "both":
                code, _ = here.run("send", *to)
            else:
                with here.start("send", "-", *to, stdin=subprocess.PIPE) as process:
                    process.communicate(SECRET.decode(), timeout=60)
                    code = process.returncode
        refused += code != 0
        with contextlib.suppress(FileNotFoundError):
            read += SECRET in data.read_bytes() and data.stat().st_uid == INTRUDER
        with contextlib.suppress(FileNotFoundError):
            sent += (there.at / "db.sql").read_bytes() == b"planted"
    bars.at_most("spools: streams that another user could read", read, 0)
    bars.at_most("spools: planted streams that were sent", sent, 0)
    bars.at_least("spools: attempts that were refused", refused, len(attempts))


def pipes(bars, folder, quick):
    """Pipes where a file is expected: nothing waits at the start, and SIGTERM ends everything."""
    stuck, deaf = 0, 0
    # A plain name is that of a file in the folder where the program starts.
    cases = {
        "spool": "send - --name p --spool . --to 127.0.0.1:9",
        "token": "send data --token-file p.stream --to 127.0.0.1:9",
        "config": "send data --config p.stream --to 127.0.0.1:9",
        "list": "send --files-from p.stream --to 127.0.0.1:9",
        "key": "keys",
    }
    for name, words in cases.items():
        place, home = furnished(folder, f"pipe-{name}")
        (home.at / "data").write_bytes(SECRET)
        for file in ("p.stream", "p.stream-state"):
            os.mkfifo(home.at / file)
        if name == "key":
            home.needs("keys")
            key = next(path for path in home.settings.rglob("*") if path.is_file())
            key.unlink()
            os.mkfifo(key, 0o600)
        # It starts in that folder.
        command = ["env", "-C", home.at, lib.anabranch(), *words.split()]
        with lib.Process(None, place, name, command, home.environment) as process:
            try:
                process.wait(END_SECONDS)
            except lib.Failed:
                stuck += 1
                lib.say(f"pipes: {name}: it waits")
                process.signal(signal.SIGTERM)
                try:
                    process.wait(END_SECONDS)
                except lib.Failed:
                    deaf += 1
    bars.at_most("pipes: programs that wait for a pipe at their start", stuck, 0)
    bars.at_most("pipes: programs that SIGTERM does not end", deaf, 0)


ATTACKS = {
    "far-side-cp": cp,
    "far-side-get": get,
    "install": install,
    "spools": spools,
    "pipes": pipes,
}
