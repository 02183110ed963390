"""An event loop whose coroutine computes, without another thread."""

import asyncio
import time

END_S = time.monotonic() + 2


async def handler():
    while time.monotonic() < END_S:
        sum(range(3_000_000))
        await asyncio.sleep(0.01)


asyncio.run(handler())
