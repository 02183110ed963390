"""pandas in a thread, beside an event loop."""

import asyncio
import time

import pandas

ROWS = pandas.DataFrame({"key": [n % 97 for n in range(20_000)], "value": range(20_000)})
END_S = time.monotonic() + 5


def job():
    while time.monotonic() < END_S:
        ROWS.groupby("key").apply(lambda group: group["value"].sum() / len(group))


async def main():
    task = asyncio.create_task(asyncio.to_thread(job))
    while time.monotonic() < END_S:
        await asyncio.sleep(0.002)
    await task


asyncio.run(main())
