"""The source of the figures of `headway top`: the JSON API of a recorder, over HTTP.

A source answers a path below /api/v1/ with a dict, or raises `NoAnswer`, whose text is one line.
One thread at a time may call it. It does not know the meaning of answers.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Sequence
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

from headway.errors import CommandError, Error, reason_of
from headway.report import columns

DEFAULT_URL = "http://127.0.0.1:8888"
TIMEOUT_S = 5.0
# Far more than any answer: a week's series has 300 points.
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_REASON = 200

Parameters = Sequence[tuple[str, str]]
Answer = dict[str, Any]


class NoAnswer(Error):
    """The source has no answer at the moment. The text gives the reason. A later request may
    succeed."""


class Source(Protocol):
    name: str

    def ask(self, path: str, query: Parameters = ()) -> Answer: ...

    def wait(self, seconds: float) -> None:
        """Waits until it has figures of this time. Raises `NoAnswer`."""
        ...

    def close(self) -> None: ...


def ask_now(source: Source, window_s: float, group: str | None) -> Answer:
    """The present figures of all processes, or of one process group on any host."""
    now = source.ask("now", [("window", f"{window_s:g}")])
    if group is None:
        return now
    total = source.ask("summary", [("from", f"-{window_s:g}"), ("group", group)])
    some = {
        name: [row for row in rows if isinstance(row, dict) and row.get("group") == group]
        for name in ("groups", "processes")
        if isinstance(rows := now.get(name), list)
    }
    return {**now, **some, "total": total}


class Recorder:
    """A `headway telemetry` at a URL. Redirections are not followed, so that the token goes only to
    the given address."""

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            allowed = f"a URL such as {DEFAULT_URL}, or unix:PATH"
            raise CommandError(f"found {columns.name(url)!r}, where {allowed} is allowed", 2)
        if parts.username or parts.query or parts.fragment:
            raise CommandError("the URL: only scheme, host, port and a path are allowed", 2)
        self.name = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._secure = parts.scheme == "https"
        self._address = (parts.hostname, port)
        self._prefix = parts.path.rstrip("/")
        self._headers = {"Accept": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def ask(self, path: str, query: Parameters = ()) -> Answer:
        target = f"{self._prefix}/api/v1/{path}" + (f"?{urlencode(query)}" if query else "")
        connection = self._connection()
        try:
            connection.request("GET", target, headers=self._headers)
            response = connection.getresponse()
            body = response.read(MAX_ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = reason_of(error) if isinstance(error, OSError) else type(error).__name__
            raise NoAnswer(f"{self.name} does not answer: {why}") from error
        finally:
            connection.close()
        return self._read(response.status, body)

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._address
        if self._secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)

    def _read(self, status: int, body: bytes) -> Answer:
        answer: object = None
        if len(body) <= MAX_ANSWER_BYTES:
            try:
                answer = json.loads(body)
            except (ValueError, RecursionError):
                answer = None
        if status != 200:
            said = answer.get("error") if isinstance(answer, dict) else None
            why = f": {columns.name(said, MAX_REASON)}" if isinstance(said, str) else ""
            if status in (401, 403) and not why:
                why = ": it requires a token (--token-file FILE)"
            raise NoAnswer(f"{self.name} answers {status}{why}")
        if not isinstance(answer, dict):
            raise NoAnswer(
                f"{self.name} is no recorder of Headway: its answer is not a JSON object"
            )
        return answer

    def wait(self, seconds: float) -> None:
        """Does nothing: the recorder has figures of the past."""

    def close(self) -> None:
        """Does nothing: each request has a connection of its own."""
