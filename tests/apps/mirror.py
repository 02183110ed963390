"""Tells a client as JSON what the application saw of its request."""

import json
from wsgiref.validate import validator


def mirror(environ, start_response):
    stream = environ["wsgi.input"]
    body = b"".join(iter(lambda: stream.read(4096), b""))
    seen = {
        "method": environ["REQUEST_METHOD"],
        "uri": environ["REQUEST_URI"],
        "path": environ["PATH_INFO"],
        "query": environ["QUERY_STRING"],
        "protocol": environ["SERVER_PROTOCOL"],
        "length": environ.get("CONTENT_LENGTH"),
        "headers": {key: value for key, value in environ.items() if key.startswith("HTTP_")},
        "body": body.decode("latin-1"),
    }
    answer = json.dumps(seen).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(answer)))]
    start_response("200 OK", headers)
    return [answer]


application = validator(mirror)
