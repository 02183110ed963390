"""Every page under wsgiref.validate, which checks the server and the application against PEP 3333.

The sites of the frameworks go through it in test_frameworks.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from served import APPS, Served, status_of

pytestmark = pytest.mark.free_threading

# Pages that break PEP 3333 on purpose, or the validator's stricter reading of it.
BREACHES = {
    "bad_headers",
    "closing_unstarted",
    "closing_unwanted",
    "fields",
    "garbage",
    "input_misused",
    "input_sizes",
    "never_starts",
    "no_interim",
    "returns_text",
    "started_too_late",
    "swallows_errors_of_the_client",
    "writes_garbage",
}
# Pages that a test must take part in, or whose outcome is not that of one request.
ALONE = {
    "answers_before_it_reads",
    "counting_drops",
    "drops_of",
    "endless",
    "handshake",
    "held",
    "kept_input",
    "large_closing_late",
    "last_read",
    "was_closed",
    "forks",
    "forks_and_raises",
    "forks_and_writes",
    "forks_and_yields",
    "forks_in_midstream",
}
QUERIES = {"large": "100000", "large_stream": "200000", "slow": "0.01", "spin": "0.01"}
# All of it is gathered before a page runs, so that one that does not read it leaves nothing unread.
BODY = b"one\n\nthree\nfour\n" + b"five" * 10_000


def page_names() -> list[str]:
    """From the sources: importing them here would leave them in `sys.modules`."""
    sources = "".join((APPS / name).read_text() for name in ("pages.py", "corners.py"))
    return sorted(re.findall(r"^@page\ndef (\w+)", sources, re.MULTILINE))


@pytest.fixture(scope="module")
def validated() -> Iterator[Served]:
    """A server of its own: what it says on stderr is looked at."""
    with Served("corners:application") as server:
        yield server


@pytest.fixture(scope="module")
def bare() -> Iterator[Served]:
    with Served("corners:unchecked") as server:
        yield server


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
@pytest.mark.parametrize("name", [name for name in page_names() if name not in BREACHES | ALONE])
def test_the_validator_finds_nothing(
    validated: Served, bare: Served, name: str, method: str
) -> None:
    if name == "lines" and method != "POST":
        pytest.skip("this page reads more lines than there are")
    body = BODY if method == "POST" else b""
    request = (
        f"{method} /{name}?{QUERIES.get(name, '')} HTTP/1.1\r\nHost: a\r\n"
        f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    assert status_of(validated.converse(request)) == status_of(bare.converse(request))
    assert "AssertionError" not in validated.stderr


@pytest.fixture(scope="module")
def found() -> Iterator[Served]:
    """A server apart from `validated`, whose log must stay empty."""
    with Served("corners:application") as server:
        yield server


@pytest.mark.parametrize("name", ["bad_headers", "never_starts", "returns_text"])
def test_it_would_find_something(found: Served, name: str) -> None:
    count = found.stderr.count("AssertionError: ")
    assert found.get(f"/{name}").status == 500
    found.wait_for(rf"in GET /{name}\n")
    found.wait_for(rf"(?s)(?:AssertionError: .*?){{{count + 1}}}")
