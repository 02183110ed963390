"""A Starlette application with a light page, and a heavy one that runs in Starlette's threads."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route


def compute() -> int:
    return sum(number * number for number in range(3_000_000))


async def light(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


async def heavy(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(await run_in_threadpool(compute)))


app = Starlette(routes=[Route("/", light), Route("/heavy", heavy)])
