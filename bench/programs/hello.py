"""The least that a WSGI application does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

HEADERS = [("Content-Type", "text/plain"), ("Content-Length", "5")]
BODY = [b"hello"]


def app(
    environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    start_response("200 OK", HEADERS)
    return BODY
