"""Access to the site: the Host header, requests from pages of other sites, and the token.

A site that listens on this machine alone answers each request whose Host header names this machine,
so that a page of another site cannot read it through a browser (DNS rebinding). A site that other
hosts can reach requires `Authorization: Bearer TOKEN`, or the cookie that the login page sets.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections import OrderedDict
from typing import Any

from headway.address import parse_address
from headway.errors import CommandError, reason_of
from headway.recorder.settings import Settings

COOKIE = "headway-session"
MAX_SESSIONS = 1000
MIN_TOKEN_LENGTH = 16


class Access:
    """Decides which requests the site answers. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._token = settings.token
        is_local = settings.http is None or settings.http.is_local
        self.needs_token = not is_local
        # None allows any Host header: the token protects against DNS rebinding.
        self._hosts = set(settings.allow_hosts) if is_local or settings.allow_hosts else None
        self._sessions: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    def knows_host(self, environ: dict[str, Any]) -> bool:
        host = environ.get("HTTP_HOST", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        name = name.lower()
        if self._hosts is None or name in self._hosts:
            return True
        try:
            return parse_address(f"{name}:1").is_local
        except ValueError:
            return False

    def may_see(self, environ: dict[str, Any]) -> bool:
        if not self.needs_token:
            return True
        scheme, _, token = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(token.strip()):
            return True
        cookies = environ.get("HTTP_COOKIE", "").split(";")
        values = (
            value
            for name, _, value in (each.strip().partition("=") for each in cookies)
            if name == COOKIE
        )
        with self._lock:
            return any(value in self._sessions for value in values)

    def log_in(self, token: str) -> str | None:
        """Returns the value of a session cookie, or `None` if the token is wrong."""
        if not self._is_token(token):
            return None
        session = secrets.token_urlsafe(32)
        with self._lock:
            self._sessions[session] = None
            if len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)
        return session

    def _is_token(self, text: str) -> bool:
        wanted = self._token
        return wanted is not None and hmac.compare_digest(text.encode(), wanted.encode())


def read_token(path: str) -> str:
    """The token in a file. Raises `CommandError` with exit code 2."""
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(10_000).strip()
    except UnicodeDecodeError:
        token = ""
    except OSError as error:
        raise CommandError(f"--token-file {path}: {reason_of(error)}", exit_code=2) from None
    if len(token) < MIN_TOKEN_LENGTH or not token.isprintable() or " " in token:
        raise CommandError(
            f"--token-file {path}: it must have one word of {MIN_TOKEN_LENGTH} ASCII characters "
            "or more",
            exit_code=2,
        )
    return token


def is_of_other_site(environ: dict[str, Any]) -> bool:
    """Whether a page of another site makes the request, according to the browser's headers. A user
    who follows a link from another site does not count."""
    site = environ.get("HTTP_SEC_FETCH_SITE", "none")
    if site not in ("none", "same-origin") and environ.get("HTTP_SEC_FETCH_MODE") != "navigate":
        return True
    origin: str | None = environ.get("HTTP_ORIGIN")
    # The scheme is not compared, because a proxy may have terminated TLS.
    return origin is not None and origin.partition("://")[2] != environ.get("HTTP_HOST", "")
