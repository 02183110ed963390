"""tornado's loop, beside its executor, in which Markdown is rendered."""

import asyncio
import time

import markdown
from tornado.ioloop import IOLoop

TEXT = "\n\n".join(f"# Title {n}\n\nSome *text* with [a link](x)." for n in range(60))
END_S = time.monotonic() + 4


def render():
    while time.monotonic() < END_S:
        markdown.markdown(TEXT)


async def main():
    job = IOLoop.current().run_in_executor(None, render)
    while time.monotonic() < END_S:
        await asyncio.sleep(0.002)
    await job


asyncio.run(main())
