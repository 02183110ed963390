"""An event loop that is late again and again, in a program that has forbidden itself, and all that
runs in its process, to start threads and processes. Prints one line.

    forbids_threads.py [RULE...]

More RULEs are those of filtered.py. With the rule "forks" it forks once, and lets only threads be
forbidden.
"""

import asyncio
import os
import sys
import time

import filtered

rules = sys.argv[1:]
# Python forks by clone, and the C library starts threads by clone3.
forks = "forks" in rules
filtered.filter_calls(["kill:clone3" if forks else "kill:clone,clone3", *set(rules) - {"forks"}])
if forks:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


async def main():
    for _ in range(3):
        await asyncio.sleep(0.05)
        time.sleep(0.05)


asyncio.run(main())
print("done")
