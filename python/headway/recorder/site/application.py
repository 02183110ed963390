"""The site of the recorder: a WSGI application with the dashboard, the API and /metrics.

The site is read-only. Every response forbids the browser to run or load anything but the
dashboard's own files. Data from datagrams is sent as JSON, CSV or text, never as HTML. The threads
of Headway's own server run the application.
"""

from __future__ import annotations

import html
import json
import math
import mimetypes
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from headway.recorder.query.history import History, NoRecording
from headway.recorder.query.query import BadQuery, Query
from headway.recorder.settings import Settings
from headway.recorder.site import api
from headway.recorder.site.access import COOKIE, Access, is_of_other_site

STATIC = Path(__file__).parent.parent / "static"
API = "/api/v1/"
MAX_LOGIN_BYTES = 4096
# The paths of the dashboard's files. No other files are served.
ASSET = re.compile(r"/assets/[A-Za-z0-9_-][A-Za-z0-9._-]*")

SECURITY = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)
JSON, HTML, TEXT = "application/json", "text/html; charset=utf-8", "text/plain; charset=utf-8"
NO_STORE = ("Cache-Control", "no-store")
FOR_EVER = ("Cache-Control", "public, max-age=31536000, immutable")

REASONS = {
    200: "OK",
    303: "See Other",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    421: "Misdirected Request",
}

# The message of a package without the dashboard, as text and as a page.
UNBUILT_TEXT = (
    "this package of Headway was built without the dashboard: install Node.js 20.19 or newer with "
    "npm, and in Headway's source tree run `make build`, or `pip install .` in an environment of "
    "your own"
)
UNBUILT = """<!doctype html><meta charset="utf-8"><title>Headway</title>
<h1>The dashboard is not built</h1>
<p>This package of Headway was built without the dashboard. To get it, install Node.js 20.19 or
newer with npm, and build Headway again in its source tree: <code>make build</code>, or
<code>pip install .</code> in an environment of your own.
<p>The figures are there all the same: <a href="api/v1/now">api/v1/now</a>,
<a href="metrics">metrics</a>, and <code>headway top</code> in a terminal.
"""
LOGIN = """<!doctype html><meta charset="utf-8"><title>Headway</title>
<meta name="viewport" content="width=device-width">
<h1>Headway</h1>
{note}<form method="post" action="login">
<label>Token: <input name="token" type="password" autocomplete="current-password" autofocus></label>
<button>Show</button>
</form>
"""


class Page(NamedTuple):
    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = (NO_STORE,)


Environ = dict[str, Any]
StartResponse = Callable[..., object]


def make_site(
    history: History, settings: Settings
) -> Callable[[Environ, StartResponse], Iterable[bytes]]:
    """Returns the WSGI application."""
    site = Site(history, settings)

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        page = site.answer(environ)
        start_response(
            f"{page.status} {REASONS[page.status]}",
            [
                ("Content-Type", page.content_type),
                ("Content-Length", str(len(page.body))),
                *page.headers,
                *SECURITY,
            ],
        )
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else page.body]

    return application


class Site:
    def __init__(self, history: History, settings: Settings) -> None:
        self._history = history
        self._access = Access(settings)

    def answer(self, environ: Environ) -> Page:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if not self._access.knows_host(environ):
            return error(421, "this host name is not one of the recorder's: see --allow-host")
        if is_of_other_site(environ):
            return error(403, "requests from pages of other sites are not allowed")
        if path == "/login" and self._access.needs_token:
            return self._log_in(environ) if method == "POST" else login()
        if method not in ("GET", "HEAD"):
            page = error(405, f"{method} is not allowed here; GET and HEAD are")
            return page._replace(headers=(*page.headers, ("Allow", "GET, HEAD")))
        if not self._access.may_see(environ):
            if path == "/":
                return Page(303, TEXT, b"", (NO_STORE, ("Location", "login")))
            page = error(401, "authentication required: Authorization: Bearer TOKEN")
            return page._replace(headers=(*page.headers, ("WWW-Authenticate", "Bearer")))
        if path.startswith(API):
            return self._ask(path.removeprefix(API), environ.get("QUERY_STRING", ""))
        if path == "/metrics":
            return self._expose(environ.get("HTTP_ACCEPT", ""))
        return static(path)

    def _ask(self, name: str, query: str) -> Page:
        try:
            if name in api.QUERIES:
                answer = api.QUERIES[name](self._history, Query(query))
                return Page(200, JSON, packed(answer))
            if name in api.TABLES:
                content_type, table = api.TABLES[name]
                return Page(200, content_type, table(self._history, Query(query)).encode())
        except BadQuery as bad:
            return error(400, str(bad))
        except NoRecording as unknown:
            known = ", ".join(self._history.recordings()) or "none was opened with --recording"
            return error(404, f"recording: there is no {str(unknown)!r}; there are: {known}")
        return error(404, f"there is no {API}{name}; there are: {', '.join(api.QUERIES)}")

    def _expose(self, accept: str) -> Page:
        from headway.recorder.export.exposition import expose

        content_type, body = expose(self._history, accept)
        return Page(200, content_type, body)

    def _log_in(self, environ: Environ) -> Page:
        body = environ["wsgi.input"].read(MAX_LOGIN_BYTES)
        try:
            form = parse_qs(body.decode("latin-1"), max_num_fields=10)
        except ValueError:
            return error(400, "the form has more than 10 fields; it has one, token")
        session = self._access.log_in((form.get("token") or [""])[0].strip())
        if session is None:
            return login("That is not the token.")
        secure = "; Secure" if environ["wsgi.url_scheme"] == "https" else ""
        cookie = f"{COOKIE}={session}; Path=/; HttpOnly; SameSite=Strict{secure}"
        return Page(303, TEXT, b"", (NO_STORE, ("Location", "./"), ("Set-Cookie", cookie)))


def packed(answer: api.Answer) -> bytes:
    """Encodes as JSON, which has no infinity: a quotient of absurd reported values may be
    infinite."""
    try:
        return json.dumps(answer, allow_nan=False).encode()
    except ValueError:
        return json.dumps(finite(answer), allow_nan=False).encode()


def finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def has_dashboard() -> bool:
    return (STATIC / "index.html").is_file()


def static(path: str) -> Page:
    """A file of the dashboard: `index.html`, or a file whose name changes with its content."""
    if path in ("/", "/index.html"):
        file = STATIC / "index.html"
        body = file.read_bytes() if has_dashboard() else UNBUILT.encode()
        return Page(200, HTML, body)
    file = STATIC / path[1:]
    if not ASSET.fullmatch(path) or not file.is_file():
        return error(404, "there is nothing of this name")
    content_type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return Page(200, content_type, file.read_bytes(), (FOR_EVER,))


def login(note: str = "") -> Page:
    said = f'<p role="alert">{html.escape(note)}\n' if note else ""
    return Page(401 if note else 200, HTML, LOGIN.format(note=said).encode())


def error(status: int, text: str) -> Page:
    return Page(status, JSON, json.dumps({"error": text}).encode())
