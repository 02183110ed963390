"""Applications that say their route themselves, say it wrongly, or are of Bottle."""

from bottle import Bottle

bottle = Bottle()


@bottle.get("/orders/<number:int>")
def order(number):
    return f"{number}\n"


class Hostile:
    """Whatever is asked of it goes wrong, and not with an error that anybody expects."""

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
