"""Applications that say their route themselves, say it wrongly, or are of Bottle."""

import threading

from bottle import Bottle

bottle = Bottle()


@bottle.get("/orders/<number:int>")
def order(number):
    return f"{number}\n"


class Hostile:
    """Every access to an attribute raises an exception that no caller expects."""

    def __getattr__(self, name):
        raise KeyboardInterrupt(name)


class Iterable(Hostile):
    def __iter__(self):
        return iter([b"fine\n"])

    def close(self):
        pass


SAID = {
    "/said": {"headway.route": "/said/<by>/<itself>"},
    "/long": {"headway.route": "ü" * 5_000},
    "/number": {"headway.route": 17},
    "/surrogate": {"headway.route": "\udc80"},
    "/hostile": {"werkzeug.request": Hostile()},
    "/bound": {"bottle.route": Hostile()},
}


def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path.startswith("/orders/"):
        return bottle(environ, start_response)
    start_response("200 OK", [("Content-Type", "text/plain")])
    environ.update(SAID.get(path, {}))
    if path.startswith("/many/"):
        environ["headway.route"] = path
    return Iterable() if path == "/iterable" else [b"fine\n"]


latest = [{}]
first = threading.Event()


def replace():
    first.wait()
    number = 0
    while True:
        number += 1
        latest[0]["headway.route"] = f"/replaced/{number}"


for _ in range(2):
    threading.Thread(target=replace, daemon=True).start()


def replaced(environ, start_response):
    """Has two threads replace the route while the server reads it."""
    environ["headway.route"] = "/first"
    latest[0] = environ
    first.set()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"fine\n"]
