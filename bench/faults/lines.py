"""The network goes wrong, by proxies in front of the receiver."""

import contextlib
import signal
import time

import lib
from faults import world
from faults.proxy import Proxy


@contextlib.contextmanager
def lines_to(port, draw, count):
    """So many proxies; and the paths over them."""
    with contextlib.ExitStack() as stack:
        hosts = [f"127.0.8.{number}" for number in range(1, count + 1)]
        yield (
            [stack.enter_context(Proxy(host, port, draw)) for host in hosts],
            [f"lo,to={host}:{port}" for host in hosts],
        )


def _survived(ends, source, sender, receiver):
    """Both ended by themselves. Returns the bytes sent twice."""
    world.finish(sender, 0)
    world.finish(receiver, 0)
    world.check_same(source, ends.target / source.name)
    repeated = sender.last("summary")["repeated"]
    if repeated > world.MOST_REPEATED:
        raise lib.Failed(f"{repeated / world.MIB:.1f} MiB were sent twice")
    return repeated


def blackout(folder, source, port, draw):
    """One of two paths, or both for a while, or both until somebody interrupts the sender."""
    ends = world.Ends(folder, port)
    moment, kind = draw.uniform(0, world.SECONDS), draw.choice(["one", "while", "all"])
    before = _blacked_out(ends, source, moment, kind, draw)
    return before[1] if before[0] is None else ends.resume(source, before[0])


def _blacked_out(ends, source, moment, kind, draw):
    """The bytes acknowledged when the sender was interrupted, or None; and the bytes sent twice."""
    port = ends.port
    with (
        lines_to(port, draw, 2) as (lines, paths),
        ends.receiver("--listen", f"127.0.0.1:{port}") as receiver,
    ):
        start = time.monotonic()
        with ends.sender(source, *ends.rate(source), paths=paths, to="127.0.8.1") as sender:
            world.sleep_from(start, moment)
            for line in lines if kind != "one" else [draw.choice(lines)]:
                line.black_out()
            if kind == "while":
                time.sleep(draw.uniform(0.2, 2.0))
                for line in lines:
                    line.restore()
            if kind != "all":
                return None, _survived(ends, source, sender, receiver)
            time.sleep(0.5)
            # On a busy machine it may not listen to signals before that.
            sender.wait_for("progress", world.TIMEOUT)
            sender.signal(signal.SIGINT)
            world.finish(sender, 0, 130)
            if sender.code == 0:
                world.check_same(source, ends.target / source.name)
                return None, 0
            world.says(sender, "stopped", "what arrived is kept", "the same command")
            before = world.acknowledged(sender)
        world.check_nothing_wrong(source.parent, ends.target)
        return before, 0


def reset(folder, source, port, draw):
    """Every connection is reset, up to four times."""
    ends = world.Ends(folder, port)
    with (
        lines_to(port, draw, 2) as (lines, paths),
        ends.receiver("--listen", f"127.0.0.1:{port}") as receiver,
    ):
        start = time.monotonic()
        with ends.sender(source, *ends.rate(source), paths=paths, to="127.0.8.1") as sender:
            for moment in sorted(draw.uniform(0, world.SECONDS) for _ in range(draw.randint(1, 4))):
                world.sleep_from(start, moment)
                for line in lines:
                    line.reset()
            return _survived(ends, source, sender, receiver)


def corrupt(folder, source, port, draw):
    """A bit flips on the way, in either direction: TLS notices, and the path is replaced."""
    ends = world.Ends(folder, port)
    with (
        lines_to(port, draw, 1) as (lines, paths),
        ends.receiver("--listen", f"127.0.0.1:{port}") as receiver,
    ):
        start = time.monotonic()
        with ends.sender(source, *ends.rate(source), paths=paths, to="127.0.8.1") as sender:
            world.sleep_from(start, draw.uniform(0, world.SECONDS))
            lines[0].corrupt(draw.choice(["up", "down"]))
            repeated = _survived(ends, source, sender, receiver)
            told = [
                event["why"]
                for process in (sender, receiver)
                for event in process.events()
                if event["event"] == "path"
            ]
            late = max(sender.last("summary")["elapsed"], 0) < world.SECONDS / 4
            # Where the length of a record flipped, its end never comes, and the path stalls.
            words = ["TLS", "decrypt", "no progress"]
            if (
                lines[0].corrupted
                and not late
                and not any(word in why for why in told for word in words)
            ):
                raise sender.failed(f"nobody says what happened to the path: {told}")
    return repeated
