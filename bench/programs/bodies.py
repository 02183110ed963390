"""A WSGI application whose path is the size of the response's body in bytes. It reads the body of a
request to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

BLOCK = bytes(64 * 1024)


def app(
    environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    body = environ["wsgi.input"]
    while body.read(len(BLOCK)):
        pass
    size = int(environ["PATH_INFO"][1:] or 0)
    start_response("200 OK", [("Content-Length", str(size))])
    blocks, rest = divmod(size, len(BLOCK))
    return [*repeat(BLOCK, blocks), BLOCK[:rest]]
