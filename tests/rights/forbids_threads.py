"""An event loop that is late again and again, in a program that has forbidden itself, and all that
runs in its process, to start threads and processes. Prints one line."""

import asyncio
import time

import filtered

filtered.filter_calls(["kill:clone,clone3"])


async def main():
    for _ in range(3):
        await asyncio.sleep(0.05)
        time.sleep(0.05)


asyncio.run(main())
print("done")
