"""One server for all tests that only send it requests; each test that stops it starts its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from served import Served

from headway.meter import stacks


@pytest.fixture(scope="session", autouse=True)
def stacks_are_prepared() -> None:
    """A process keeps the descriptors for that, so no test is to be the first."""
    stacks.prepare()


@pytest.fixture(scope="session")
def checked() -> Iterator[Served]:
    """Pages under wsgiref.validate: any breach of PEP 3333 by the server is a 500."""
    with Served("pages:application") as server:
        yield server


@pytest.fixture(scope="session")
def pages() -> Iterator[Served]:
    """The same pages bare, for those that break PEP 3333 themselves."""
    with Served("pages:unchecked") as server:
        yield server
