"""Power loss: operations that were not synced are lost, in any order.

A receiver is recorded with strace while it takes a folder undisturbed. Each trial draws a cut and
one of the folders that a power loss at the cut may leave, and goes on from there.
"""

import random
import threading

import lib
from faults import crash, trace, world

_lock = threading.Lock()
_recordings = {}


def power_loss(folder, source, port, draw):
    with _lock:
        if source not in _recordings:
            _recordings[source] = _record(source, port)
    recording, key = _recordings[source]
    ends = world.Ends(folder, port)
    # What a sender left is taken up by the holder of the same key.
    home = folder / "home-sender"
    home.mkdir()
    (home / "key").write_bytes(key)
    (home / "key").chmod(0o600)
    cut = recording.moments(draw)
    recording.leave(cut, draw, ends.target)
    world.check_nothing_wrong(source.parent, ends.target)
    noted = recording.noted(cut)
    if cut > recording.done():
        started = ends.whole(source)
        if started["resumed"] < started["total"]:
            raise lib.Failed("all was done and synced, and not all is there")
        return 0
    return ends.resume(source, noted)


def _record(source, port):
    """An undisturbed transfer's operations, and the sender's key."""
    with world.scratch() as folder:
        ends = world.Ends(folder, port)
        log = folder / "trace"
        with ends.receiver(around=lambda command: trace.command(command, log)) as receiver:
            with ends.sender(source, *ends.rate(source, 3.5)) as sender:
                world.finish(sender, 0)
            world.finish(receiver, 0)
        world.check_same(source, ends.target / source.name)
        recording = crash.Recording(trace.calls(log), str(ends.target), str(source.parent))
        _check(recording, source, folder)
        return recording, (folder / "home-sender" / "key").read_bytes()


def _check(recording, source, folder):
    """The recording is all there is: with everything kept it is the folder that arrived."""

    class Keep(random.Random):
        def random(self):
            return -1.0

        def choice(self, _):
            return 1.0

    whole = folder / "whole"
    whole.mkdir()
    recording.leave(recording.length, Keep(), whole)
    world.check_nothing_wrong(source.parent, whole)
    if sorted(world.look(whole / source.name)) != sorted(world.look(source)):
        raise lib.Failed("the recording lacks something")
