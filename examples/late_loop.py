"""An event loop that is late, for the reason that the argument names.

    computes  a coroutine computes, five times for a quarter of a second
    waits     a thread computes, and the loop waits for the GIL
    blocks    a coroutine calls something that sleeps, as often and as long

Prints how late a heartbeat of 10 ms was at most.
"""

import asyncio
import sys
import time

SECONDS = 3


async def heartbeat(end):
    latest = 0.0
    while time.monotonic() < end:
        due = time.monotonic() + 0.01
        await asyncio.sleep(0.01)
        latest = max(latest, time.monotonic() - due)
    print(f"the heartbeat was late by up to {1000 * latest:.0f} ms")


def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


async def handle(reason):
    if reason == "computes":
        compute(0.25)
    else:
        time.sleep(0.25)


async def main(reason):
    beating = asyncio.create_task(heartbeat(time.monotonic() + SECONDS))
    await asyncio.sleep(0.25)
    if reason == "waits":
        await asyncio.to_thread(compute, SECONDS - 1)
    else:
        for _ in range(5):
            await handle(reason)
            await asyncio.sleep(0.25)
    await beating


if len(sys.argv) != 2 or sys.argv[1] not in ("computes", "waits", "blocks"):
    sys.exit(__doc__)
asyncio.run(main(sys.argv[1]))
