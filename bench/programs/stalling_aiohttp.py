"""A server of aiohttp with a light page and pages that stall its event loop; see `stalls`.

stalling_aiohttp.py PORT
"""

from __future__ import annotations

import sys

import stalls
from aiohttp import web


async def begin(_: web.Application) -> None:
    await stalls.begin()


async def hello(_: web.Request) -> web.Response:
    return web.Response(text="hello")


async def stall(request: web.Request) -> web.Response:
    cause = request.match_info["cause"]
    await stalls.STALLS[cause]()
    return web.Response(text=cause)


def main() -> None:
    app = web.Application()
    app.on_startup.append(begin)
    app.add_routes([web.get("/", hello), web.get("/{cause}", stall)])
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None)


if __name__ == "__main__":
    main()
