"""Real Flask and Django sites: forms, uploads, streams, files, errors."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
from served import APPS, Served

pytestmark = pytest.mark.free_threading

MULTIPART = (
    b'--boundary\r\nContent-Disposition: form-data; name="file"; filename="f.bin"\r\n'
    b"Content-Type: application/octet-stream\r\n\r\n" + b"x" * 300_000 + b"\r\n--boundary--\r\n"
)
FORM_TYPE = "Content-Type: application/x-www-form-urlencoded\r\n"
MULTIPART_TYPE = "Content-Type: multipart/form-data; boundary=boundary\r\n"


@pytest.fixture(scope="module", params=["bare", "validated"])
def checking(request: pytest.FixtureRequest) -> bool:
    """Whether the sites are under wsgiref.validate."""
    return request.param == "validated"


@pytest.fixture(scope="module")
def flask(checking: bool) -> Iterator[Served]:
    pytest.importorskip("flask")
    with Served("flask_site:validated" if checking else "flask_site:app") as server:
        yield server


@pytest.fixture(scope="module")
def django(checking: bool) -> Iterator[Served]:
    pytest.importorskip("django")
    with Served("django_site:validated" if checking else "django_site:application") as server:
        yield server


def test_pages(flask: Served, django: Served) -> None:
    for server, name in ((flask, b"Flask"), (django, b"Django")):
        response = server.get("/")
        assert response.body == b"hello from %s\n" % name
        assert response.headers["content-length"] == str(len(response.body))
        assert server.get("/missing").status == 404


def test_forms(flask: Served, django: Served) -> None:
    headers = FORM_TYPE + "Cookie: a=1\r\n"
    answer = json.loads(flask.request("POST", "/form?q=1", b"name=%C3%A9", headers).body)
    assert answer == {"form": {"name": "é"}, "query": {"q": "1"}, "cookie": "1"}
    answer = json.loads(django.request("POST", "/form?q=1", b"name=%C3%A9", headers).body)
    assert answer == {"form": {"name": "é"}, "query": {"q": "1"}, "files": {}}


def test_uploads(flask: Served, django: Served) -> None:
    answer = json.loads(flask.request("POST", "/upload", MULTIPART, MULTIPART_TYPE).body)
    assert answer == {"name": "f.bin", "length": 300_000}
    answer = json.loads(django.request("POST", "/form", MULTIPART, MULTIPART_TYPE).body)
    assert answer["files"] == {"file": 300_000}


def test_chunked_bodies(flask: Served, django: Served) -> None:
    request = (
        b"POST /raw HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
        b"Content-Type: text/plain\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    )
    for server in (flask, django):
        assert json.loads(server.converse(request).partition(b"\r\n\r\n")[2]) == {"length": 5}


def test_streams(flask: Served, django: Served) -> None:
    for server in (flask, django):
        response = server.get("/stream")
        assert response.body == b"0\n1\n2\n"
        assert response.headers["transfer-encoding"] == "chunked"


def test_files(django: Served) -> None:
    assert django.get("/source").body == (APPS / "django_site.py").read_bytes()


def test_errors(flask: Served, django: Served) -> None:
    for server in (flask, django):
        assert server.get("/error").status == 500
        assert server.get("/").status == 200


def test_many_threads_at_once(flask: Served) -> None:
    wrong = []

    def visit() -> None:
        wrong.extend(1 for _ in range(50) if flask.get("/").status != 200)

    threads = [threading.Thread(target=visit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
