"""Attacks on what docs/threat-model.md promises, against the programs as people run them.

Each function returns how often the intruder got what they wanted, of how many attempts.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import threading
import time

import lib

TIMEOUT = 60
SECRET = b"nobody is to have this"
# More levels than a stack carried.
LEVELS = 1_900
# Transfers beside somebody who swaps a folder for a link.
RACES = 20
# A removed key loses access within a second, and the program ends when it is refused.
REMOVED_SECONDS = 8


class Home:
    """A user's settings, and the folder that they work in."""

    def __init__(self, folder, name):
        self.settings = folder / f"{name}-settings"
        self.at = folder / name
        self.at.mkdir()
        self.environment = dict(os.environ, ANABRANCH_HOME=str(self.settings))

    def start(self, *words, **how):
        command = [lib.anabranch(), *map(str, words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(
            command, cwd=self.at, env=self.environment, text=True, **{**pipes, **how}
        )

    def run(self, *words):
        """The exit code and what it said."""
        with self.start(*words) as process:
            try:
                said, _ = process.communicate(timeout=TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                raise lib.Failed(f"no end after {TIMEOUT} s: {' '.join(map(str, words))}") from None
        return process.returncode, said

    def needs(self, *words):
        code, said = self.run(*words)
        if code != 0:
            raise lib.Failed(f"exit code {code}: {' '.join(map(str, words))}\n{said}")
        return said

    def key(self):
        return self.needs("keys").split()[0]

    def trusts(self, other, name, *rights):
        """Lets `other` in, which knows this host as 127.0.0.1."""
        self.needs("keys", "trust", "sender", other.key(), name, *rights)
        other.needs("keys", "trust", "receiver", "127.0.0.1", self.key())

    @contextlib.contextmanager
    def listening(self, command, port, *options):
        with self.start(command, self.at, "--listen", "127.0.0.1", "--port", port, *options) as it:
            try:
                for line in it.stdout:
                    if line.startswith("listening "):
                        break
                # Drained, so that it never waits for a reader.
                drain = threading.Thread(target=it.stdout.read, daemon=True)
                drain.start()
                yield it
            finally:
                it.kill()
                drain.join()


def names(folder, port):
    """The far side of a `cp` serves the contents of a folder instead of the file asked for."""
    near, far = Home(folder, "near"), folder / "far"
    (far / "file" / ".ssh").mkdir(parents=True)
    (far / "file" / ".ssh" / "authorized_keys").write_bytes(SECRET)
    settings = folder / "far-settings"
    settings.mkdir()
    (settings / "config.toml").write_text(f"[receive]\nport = {port}\n")
    ssh = folder / "ssh"
    # "file" in the request becomes "file/".
    ssh.write_text(
        "#!/bin/sh\n"
        "case \"$*\" in *' -G '*) exit 1 ;; esac\n"
        f"export HOME={far} ANABRANCH_HOME={settings}\n"
        "export SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22'\n"
        f"sed -u 's/102,105,108,101]/102,105,108,101,47]/' | {lib.anabranch()} far\n"
    )
    ssh.chmod(0o755)
    won = 0
    for target in [".", "folder", "new"]:
        (near.at / "folder").mkdir(exist_ok=True)
        code, said = near.run("cp", "--ssh", ssh, "far:file", target)
        if code not in (0, 9):
            raise lib.Failed(f"exit code {code} of cp: {said}")
        won += (near.at / target / ".ssh").exists()
    # Contents that are asked for do arrive: the far side works.
    near.needs("cp", "--ssh", ssh, "far:file/", "folder")
    return won, 3


def links(folder, port):
    """A peer sends a link under the name of another peer's folder."""
    here, anna, bert = (Home(folder, name) for name in ["here", "anna", "bert"])
    here.trusts(anna, "anna")
    here.trusts(bert, "bert", "--dir", "bert")
    outside = folder / "outside"
    outside.mkdir()
    (anna.at / "tree").mkdir()
    (anna.at / "tree" / "bert").symlink_to(outside)
    (bert.at / "secret").write_bytes(SECRET)
    with here.listening("receive", port, "--keep", "--no-token"):
        anna.needs("send", "tree/", "--to", f"127.0.0.1:{port}")
        code, said = bert.run("send", "secret", "--to", f"127.0.0.1:{port}")
    if "symbolic link" not in said:
        raise lib.Failed(f"exit code {code} of a send through a link: {said}")
    return len(list(outside.iterdir())), 1


def depth(folder, port):
    """A tree that is deeper than a stack."""
    here, near = Home(folder, "here"), Home(folder, "near")
    here.trusts(near, "near")
    top = near.at / "tree"
    top.mkdir()
    below = os.open(top, os.O_DIRECTORY)
    for _ in range(LEVELS):
        os.mkdir("d", dir_fd=below)
        deeper = os.open("d", os.O_DIRECTORY, dir_fd=below)
        os.close(below)
        below = deeper
    os.close(below)
    try:
        with here.listening("receive", port, "--keep", "--no-token"):
            code, said = near.run("send", "tree", "--to", f"127.0.0.1:{port}")
    finally:
        # Python's own removal is recursive.
        subprocess.run(["rm", "-rf", str(top)], check=True)
    return int(code < 0 or "1,000 folders" not in said), 1


def shared(folder, port):
    """Another user of shared folders prepares the staging folder, and swaps what is sent."""
    here, near = Home(folder, "here"), Home(folder, "near")
    here.trusts(near, "near")
    staging = here.at / ".anabranch-partial"
    staging.mkdir()
    staging.chmod(0o777)
    (near.at / "file").write_bytes(SECRET)
    to = ["--to", f"127.0.0.1:{port}"]
    with here.listening("receive", port, "--keep", "--no-token", "--overwrite"):
        code, _ = near.run("send", "file", *to)
        won = int(code == 0 or (here.at / "file").exists())
        shutil.rmtree(staging)
        secret, tree = near.at / "only-root", near.at / "tree"
        secret.mkdir()
        tree.mkdir()
        for number in range(200):
            (secret / f"{number}").write_bytes(SECRET)
            (tree / f"{number}").mkdir()
            (tree / f"{number}" / "0").write_bytes(b"harmless")
        stop = threading.Event()

        def swap():
            """Every folder in turn becomes a link, and a folder again."""
            aside = tree.parent / "aside"
            while not stop.is_set():
                for number in range(200):
                    at = tree / f"{number}"
                    at.rename(aside)
                    at.symlink_to(secret)
                    at.unlink()
                    aside.rename(at)

        swapping = threading.Thread(target=swap)
        swapping.start()
        try:
            for _ in range(RACES):
                # Some of them end with a message: the tree changed.
                near.run("send", "tree", *to)
        finally:
            stop.set()
            swapping.join()
    arrived = [path for path in here.at.rglob("*") if path.is_file()]
    won += sum(path.read_bytes() == SECRET for path in arrived)
    return won, 1 + RACES


def keys(folder, port):
    """A key that others can read; a list that others can write; a key that was removed."""
    here, near = Home(folder, "here"), Home(folder, "near")
    here.trusts(near, "near", "--may", "both")
    won = 0
    for home, file, mode in [(near, "key", 0o644), (here, "authorized_peers", 0o666)]:
        path = home.settings / file
        path.chmod(mode)
        code, said = home.run("keys", "list") if file != "key" else home.run("keys")
        won += int(code != 10 or "chmod" not in said)
        path.chmod(0o600)
    (here.at / "old").write_bytes(b"old")
    (near.at / "old").write_bytes(b"new")
    to = ["--to", f"127.0.0.1:{port}"]
    with here.listening("receive", port, "--keep", "--no-token", "--no-overwrite"):
        near.run("send", "old", "--overwrite", *to)
        won += int((here.at / "old").read_bytes() != b"old")
        (near.at / "long").write_bytes(bytes(40_000_000))
        with near.start("send", "long", "--max-rate", "8mbit", *to) as sending:
            time.sleep(2)
            here.needs("keys", "remove", "sender", "near")
            try:
                sending.communicate(timeout=REMOVED_SECONDS)
                won += int(sending.returncode == 0)
            except subprocess.TimeoutExpired:
                sending.kill()
                won += 1
    won += int((here.at / "long").exists())
    return won, 5


ATTACKS = {"names": names, "links": links, "depth": depth, "shared": shared, "keys": keys}


def attack(name, port):
    """Runs an attack in a folder of its own."""
    with lib.scratch(200 << 20) as folder:
        return ATTACKS[name](pathlib.Path(folder), port)
