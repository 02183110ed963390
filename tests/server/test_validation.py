"""Every page under wsgiref.validate, which checks the server and the application against PEP 3333.

The sites of the frameworks go through it in test_frameworks.py.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
from served import APPS, Served, status_of

# Pages that break PEP 3333 on purpose. `bad_headers` and `returns_text` break it where the
# validator sees it before the server does.
BREACHES = {"bad_headers", "never_starts", "returns_text"}
# Pages that a test must take part in, or whose outcome is not that of one request.
ALONE = {"handshake", "kept_input", "forks", "was_closed"}
QUERIES = {"large": "100000", "large_stream": "200000", "slow": "0.01", "spin": "0.01"}
BODY = b"one\n\nthree\nfour\n" + b"five" * 20_000


def page_names() -> list[str]:
    specification = importlib.util.spec_from_file_location("pages", APPS / "pages.py")
    pages = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(pages)
    return sorted(name.removeprefix("/") for name in pages.PAGES)


@pytest.fixture(scope="module")
def validated() -> Iterator[Served]:
    """A server of its own: what it says on stderr is looked at."""
    with Served("pages:application") as server:
        yield server


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
@pytest.mark.parametrize("name", [name for name in page_names() if name not in BREACHES | ALONE])
def test_the_validator_finds_nothing(
    validated: Served, pages: Served, name: str, method: str
) -> None:
    if name == "lines" and method != "POST":
        pytest.skip("this page reads more lines than there are")
    body = BODY if method == "POST" else b""
    request = (
        f"{method} /{name}?{QUERIES.get(name, '')} HTTP/1.1\r\nHost: a\r\n"
        f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    assert status_of(validated.converse(request)) == status_of(pages.converse(request))
    assert "AssertionError" not in validated.stderr


@pytest.mark.parametrize("name", sorted(BREACHES))
def test_it_would_find_something(name: str) -> None:
    with Served("pages:application") as server:
        assert server.get(f"/{name}").status == 500
        server.wait_for("AssertionError: ")
