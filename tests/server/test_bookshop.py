"""The site of examples/site: its pages under `headway serve` and uvicorn, on a real PostgreSQL."""

from __future__ import annotations

import http.client
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import NamedTuple
from urllib.parse import urlencode

import pytest
from launch import GIL_ENABLED, TIMEOUT_S, environment, execute
from ports import free_port
from served import Served

SITE = Path(__file__).resolve().parent.parent.parent / "examples" / "site"
QUERIES_OF_HOME = """
import django
django.setup()
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
visitor = Client(HTTP_HOST="localhost")
visitor.get("/book/5")
with CaptureQueriesContext(connection) as queries:
    visitor.get("/")
print(len(queries))
"""
PASSWORD = "open sesame"

pytestmark = [
    pytest.mark.skipif(not GIL_ENABLED, reason="the site's packages are for builds with a GIL"),
    pytest.mark.slow("makes a database and fills it"),
]
for package in ("django", "psycopg", "PIL", "whitenoise"):
    pytest.importorskip(package, reason=f"the site needs {package}: examples/site/requirements.txt")


def imported_services() -> ModuleType:
    sys.path.insert(0, str(SITE))
    try:
        import services
    finally:
        sys.path.remove(str(SITE))
    return services


services = imported_services()
try:
    services.postgres_folder()
    services.database_user()
except services.Missing as missing:
    pytest.skip(str(missing), allow_module_level=True)


@pytest.fixture(scope="module")
def running() -> Iterator[services.Services]:
    with services.services() as found:
        yield found


class Answer(NamedTuple):
    status: int
    body: bytes
    cookie: str


class Visitor:
    """Asks for pages as a browser does, with the cookies that it got."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._cookies: dict[str, str] = {}

    def ask(self, method: str, path: str, body: bytes = b"", kind: str = "") -> Answer:
        connection = http.client.HTTPConnection(*self._address, timeout=TIMEOUT_S)
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in self._cookies.items())}
        if kind:
            headers["Content-Type"] = kind
        connection.request(method, path, body or None, headers)
        response = connection.getresponse()
        for name, value in response.getheaders():
            if name.lower() == "set-cookie":
                key, _, rest = value.partition("=")
                self._cookies[key] = rest.partition(";")[0]
        answer = Answer(response.status, response.read(), self._cookies.get("sessionid", ""))
        connection.close()
        return answer

    def post(self, path: str, fields: dict[str, str]) -> Answer:
        body = urlencode({**fields, "csrfmiddlewaretoken": self.token}).encode()
        return self.ask("POST", path, body, "application/x-www-form-urlencoded")

    def upload(self, path: str, photo: bytes) -> Answer:
        field = '--limit\r\nContent-Disposition: form-data; name="{}"{}\r\n\r\n'
        body = field.format("csrfmiddlewaretoken", "") + self.token + "\r\n"
        body += field.format("photo", '; filename="photo.jpg"')
        whole = body.encode() + photo + b"\r\n--limit--\r\n"
        return self.ask("POST", path, whole, "multipart/form-data; boundary=limit")

    @property
    def token(self) -> str:
        return self._cookies.get("csrftoken", "")


@contextmanager
def under_headway(running: services.Services) -> Iterator[tuple[str, int]]:
    options = ("--app-dir", str(SITE), "--processes", "2", "--threads", "2")
    with Served("bookshop.wsgi:application", *options, **running.environment) as served:
        yield served.address


@contextmanager
def under_uvicorn(running: services.Services) -> Iterator[tuple[str, int]]:
    pytest.importorskip("fastapi", reason="examples/site/requirements-fastapi.txt")
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "bookshop_fastapi:app", "--port", str(port)]
    server = subprocess.Popen(
        command,
        env={**environment(), **running.environment, "HEADWAY": "policy=priority"},
        cwd=SITE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = ("127.0.0.1", port)
        while True:
            try:
                Visitor(address).ask("GET", "/static/bookshop.css")
                break
            except ConnectionRefusedError:
                assert server.poll() is None, server.communicate()[1]
                time.sleep(0.05)
        yield address
    finally:
        server.send_signal(signal.SIGTERM)
        said = server.communicate(timeout=TIMEOUT_S)[1]
    assert server.returncode in (0, -signal.SIGTERM), said
    assert "Traceback" not in said


def photo() -> bytes:
    from PIL import Image

    image = io.BytesIO()
    Image.frombytes("RGB", (600, 400), os.urandom(600 * 400 * 3)).save(image, "JPEG")
    return image.getvalue()


@pytest.mark.parametrize("serving", [under_headway, under_uvicorn])
def test_a_visitor_sees_every_page(running: services.Services, serving: object) -> None:
    from PIL import Image

    assert callable(serving)
    running.restore()
    with serving(running) as address:
        visitor = Visitor(address)
        home = visitor.ask("GET", "/")
        assert home.status == 200
        assert b"3000 books of 300 authors in 16 categories." in home.body
        book = visitor.ask("GET", "/book/7")
        assert book.status == 200
        assert b"By the same author" in book.body
        assert visitor.ask("GET", "/book/70000").status == 404
        found = visitor.ask("GET", "/search?q=sailing")
        assert found.body.count(b"<li>") == 20
        style = visitor.ask("GET", "/static/bookshop.css")
        assert style.body == (SITE / "bookshop" / "static" / "bookshop.css").read_bytes()
        delivery = visitor.ask("GET", "/delivery/12")
        assert json.loads(delivery.body) == {"book": "12", "days": 3}
        report = visitor.ask("GET", "/report")
        assert report.body.count(b"<tr>") == 20
        export = visitor.ask("GET", "/export/3")
        assert export.status == 200
        assert len(export.body.splitlines()) > 1000
        said = json.dumps({"stars": 4, "text": "good"}).encode()
        first = json.loads(visitor.ask("POST", "/api/review/9", said, "application/json").body)
        second = json.loads(visitor.ask("POST", "/api/review/9", said, "application/json").body)
        assert second["count"] == first["count"] + 1
        assert 1 <= second["stars"] <= 5
        thumbnail = visitor.upload("/photo", photo())
        assert Image.open(io.BytesIO(thumbnail.body)).size == (240, 160)
        assert visitor.post("/login", {"name": "reader3", "password": "wrong"}).status == 400
        assert visitor.post("/login", {"name": "reader3", "password": PASSWORD}).status == 302


def test_home_takes_twelve_queries_and_restoring_removes_what_visitors_left(
    running: services.Services,
) -> None:
    said = execute(
        [sys.executable, "-c", QUERIES_OF_HOME], env={**environment(), **running.environment}
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout == "12\n"
    running.restore()
    left = execute(
        [
            sys.executable,
            "-c",
            "import django; django.setup()\n"
            "from bookshop.models import Review\n"
            "from django.contrib.sessions.models import Session\n"
            "print(Review.objects.count(), Session.objects.count())",
        ],
        env={**environment(), **running.environment},
    )
    assert left.stdout == "24000 0\n"


@contextmanager
def run_with_services(*words: str) -> Iterator[subprocess.Popen[str]]:
    program = subprocess.Popen(
        [sys.executable, str(SITE / "services.py"), *words],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program:
        try:
            yield program
        finally:
            if program.poll() is None:
                program.terminate()


def test_a_command_runs_with_the_services_and_its_status_is_theirs() -> None:
    words = ("sh", "-c", 'cd "$BOOKSHOP_DATABASE" && test -S .s.PGSQL.5432 && pwd && exit 7')
    with run_with_services(*words) as program:
        folder, said = program.communicate()
    assert program.returncode == 7, said
    assert not os.path.exists(folder.strip())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_and_the_services(number: signal.Signals) -> None:
    words = ("sh", "-c", 'echo "$BOOKSHOP_DATABASE"; exec sleep 600')
    with run_with_services(*words) as program:
        assert program.stdout is not None
        folder = program.stdout.readline().strip()
        assert os.path.exists(folder)
        program.send_signal(number)
        program.communicate()
    assert program.returncode == 128 + signal.SIGTERM
    assert not os.path.exists(folder)


def test_who_reaches_the_socket_needs_the_password(running: services.Services) -> None:
    folder = running.environment["BOOKSHOP_DATABASE"]
    psql = [str(services.postgres_folder() / "psql"), "-w", "-h", folder, "-c", "SELECT 1"]
    for user in ("bookshop", "postgres"):
        refused = execute([*psql, "-U", user, "postgres"])
        assert refused.returncode == 2
        assert "no password supplied" in refused.stderr
    password = running.environment["BOOKSHOP_PASSWORD"]
    program = [*psql[:-1], "COPY pg_class TO PROGRAM 'id'", "-U", "bookshop", "bookshop"]
    refused = execute(program, env={**environment(), "PGPASSWORD": password})
    assert refused.returncode == 1
    assert "must be superuser" in refused.stderr or "permission denied" in refused.stderr


def test_a_command_that_is_not_there_is_named() -> None:
    with run_with_services("no-such-command") as program:
        said = program.communicate()[1]
    assert program.returncode == 2
    assert said.splitlines()[-1] == "bookshop: no-such-command: No such file or directory"
