"""An event loop whose timers compete with its own executor's computing."""

import asyncio


def compute():
    return sum(sum(range(1000)) for _ in range(2000))


async def tick():
    for _ in range(50):
        await asyncio.sleep(0.001)
    return "ticked"


async def main():
    return await asyncio.gather(tick(), asyncio.to_thread(compute), asyncio.to_thread(compute))


print(asyncio.run(main()))
