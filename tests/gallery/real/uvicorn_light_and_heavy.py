"""uvicorn and Starlette: the loop, beside endpoints that compute in its thread pool."""

import threading
import time

import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from load import clients


async def light(request):
    return PlainTextResponse("ok")


def heavy(request):
    end_s = time.thread_time() + 0.2
    while time.thread_time() < end_s:
        sum(range(1000))
    return PlainTextResponse("ok")


app = Starlette(routes=[Route("/light", light), Route("/heavy", heavy)])
server = uvicorn.Server(uvicorn.Config(app, port=8791, log_level="error"))
load = clients(8791, 5, "/light:2", "/heavy:2")


def stop():
    load.wait()
    server.should_exit = True


threading.Thread(target=stop, name="stop").start()
server.run()
