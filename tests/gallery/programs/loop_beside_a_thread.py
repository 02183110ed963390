"""An event loop, beside a thread of its executor that computes."""

import asyncio
import time

END_S = time.monotonic() + 3


def report():
    while time.monotonic() < END_S:
        sum(range(1000))


async def main():
    report_made = asyncio.create_task(asyncio.to_thread(report))
    while time.monotonic() < END_S:
        await asyncio.sleep(0.002)
    await report_made


asyncio.run(main())
