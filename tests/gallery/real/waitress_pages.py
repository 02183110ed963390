"""Flask under waitress: the same threads serve light pages and pages that compute for 20 ms."""

import threading
import time
from contextlib import suppress

import waitress
from flask import Flask

from load import clients

app = Flask(__name__)


@app.get("/light")
def light():
    return "ok"


@app.get("/heavy")
def heavy():
    end_s = time.thread_time() + 0.02
    while time.thread_time() < end_s:
        sum(range(1000))
    return "ok"


server = waitress.create_server(app, port=8793, threads=6)
load = clients(8793, 5, "/light:3", "/heavy:2")


def stop():
    load.wait()
    server.close()


threading.Thread(target=stop, name="stop").start()
with suppress(OSError):
    server.run()
