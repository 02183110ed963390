"""uvicorn and Starlette: an endpoint whose regular expression backtracks for half a second."""

import re
import threading

import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from load import clients


async def light(request):
    return PlainTextResponse("ok")


def match(request):
    re.search("(a+)+b", "a" * 23)
    return PlainTextResponse("ok")


app = Starlette(routes=[Route("/light", light), Route("/match", match)])
server = uvicorn.Server(uvicorn.Config(app, port=8792, log_level="error"))
load = clients(8792, 5, "/light:2", "/match:1")


def stop():
    load.wait()
    server.should_exit = True


threading.Thread(target=stop, name="stop").start()
server.run()
