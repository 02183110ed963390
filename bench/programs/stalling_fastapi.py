"""A FastAPI application with a light page and pages that stall its event loop; see `stalls`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import stalls
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    await stalls.begin()
    yield


async def hello() -> str:
    return "hello"


async def stall(cause: str) -> str:
    await stalls.STALLS[cause]()
    return cause


app = FastAPI(lifespan=lifespan, default_response_class=PlainTextResponse)
app.add_api_route("/", hello)
app.add_api_route("/{cause}", stall)
