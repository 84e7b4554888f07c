"""Ends of many long connections: `far PORT` answers, `near HOST PORT COUNT SECONDS` opens so many.

Each asker sends a line of 100 octets now and then, all of them so many a second, and has it
echoed; an echo that is not the line counts as wrong. When all are open it says so; SECONDS later it
prints what it has, as JSON.
"""

import asyncio
import json
import random
import resource
import sys

LINE = 100
LINES_A_SECOND = 400
AT_ONCE = 200


def raise_limit():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def echo(reader, writer):
    try:
        while line := await reader.readexactly(LINE):
            writer.write(line)
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.close()


async def far(port):
    server = await asyncio.start_server(echo, "0.0.0.0", port, backlog=4096)
    print("ready", flush=True)
    await server.serve_forever()


async def near(host, port, count, seconds):
    gate = asyncio.Semaphore(AT_ONCE)
    told = {"open": 0, "failed": 0, "lines": 0, "wrong": 0}

    async def one():
        async with gate:
            try:
                ends = await asyncio.wait_for(asyncio.open_connection(host, port), 30)
            except (OSError, asyncio.TimeoutError):
                told["failed"] += 1
                return None
        told["open"] += 1
        return ends

    opened = await asyncio.gather(*(one() for _ in range(count)))
    opened = [ends for ends in opened if ends]
    print("open", flush=True)
    dice = random.Random(1)
    busy = set()

    async def ask(number):
        reader, writer = opened[number]
        line = dice.randbytes(LINE)
        try:
            writer.write(line)
            same = await asyncio.wait_for(reader.readexactly(LINE), 30) == line
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            same = False
        told["lines"] += 1
        told["wrong"] += not same
        busy.discard(number)

    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    asking = []
    while loop.time() < end:
        number = dice.randrange(len(opened))
        if number not in busy:
            busy.add(number)
            asking.append(asyncio.create_task(ask(number)))
        await asyncio.sleep(1 / LINES_A_SECOND)
    await asyncio.gather(*asking)
    print(json.dumps(told), flush=True)


def main():
    raise_limit()
    if sys.argv[1] == "far":
        asyncio.run(far(int(sys.argv[2])))
    else:
        asyncio.run(near(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])))


if __name__ == "__main__":
    main()
