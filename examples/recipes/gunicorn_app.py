"""A WSGI application with a light page and a heavy one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

StartResponse = Callable[[str, list[tuple[str, str]]], object]


def compute() -> int:
    return sum(number * number for number in range(3_000_000))


def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    body = str(compute()) if environ["PATH_INFO"] == "/heavy" else "hello"
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body.encode()]
