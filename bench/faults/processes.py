"""Either side is killed."""

import time

import lib
from faults import world


def kill_sender(folder, source, port, draw):
    """kill -9 of the sender; the receiver waits, and another sender of the same key goes on."""
    ends = world.Ends(folder, port)
    moment = draw.uniform(0, world.SECONDS)
    with ends.receiver() as receiver:
        start = time.monotonic()
        with ends.sender(source, *ends.rate(source)) as sender:
            world.sleep_from(start, moment)
            world.kill(sender)
            before = world.acknowledged(sender)
            is_over = sender.code == 0
        world.check_nothing_wrong(source.parent, ends.target)
        if is_over:
            world.finish(receiver, 0)
            world.check_same(source, ends.target / source.name)
            return 0
        if receiver.ended():
            raise receiver.failed("it did not wait for the sender to come back")
        ends.attempt += 1
        with ends.sender(source) as again:
            world.finish(again, 0)
            resumed = again.last("started")["resumed"]
        world.finish(receiver, 0)
    world.check_same(source, ends.target / source.name)
    return world.bounded(before, resumed)


def kill_receiver(folder, source, port, draw):
    """kill -9 of the receiver; the sender looks for it, gives up, and both go on later."""
    ends = world.Ends(folder, port)
    before = _killed_receiver(ends, source, draw.uniform(0, world.SECONDS))
    return ends.resume(source, before) if before is not None else 0


def _killed_receiver(ends, source, moment, *options):
    """What was acknowledged when the receiver was killed; None if everything was over."""
    with ends.receiver() as receiver:
        start = time.monotonic()
        with ends.sender(source, *ends.rate(source), "--patience", "300ms", *options) as sender:
            world.sleep_from(start, moment)
            world.kill(receiver)
            before = world.acknowledged(sender)
            world.finish(sender, 0, 5, 6)
            if sender.code == 0:
                world.check_same(source, ends.target / source.name)
                return None
            if sender.code == 6:
                world.says(sender, "every path was lost", "run the same command again")
            else:
                world.says(sender, "no usable path to")
    world.check_nothing_wrong(source.parent, ends.target)
    return before
