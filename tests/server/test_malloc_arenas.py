"""The C library's memory arenas in a worker process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from launch import GIL_ENABLED, HAS_MUSL
from served import Served

THREADS = 4

pytestmark = pytest.mark.skipif(HAS_MUSL, reason="musl's malloc has no arenas")


@pytest.fixture(autouse=True)
def _without_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)


def arenas(*options: str, **environment: str) -> int:
    """How many a process has in which all threads of the pool have allocated."""
    with (
        Served("arenas:app", "--threads", str(THREADS), *options, **environment) as served,
        ThreadPoolExecutor(THREADS) as visitors,
    ):
        answers = visitors.map(served.get, ["/"] * THREADS)
        return max(int(answer.body) for answer in answers)


@pytest.mark.skipif(not GIL_ENABLED, reason="this build runs without a GIL")
def test_threads_that_share_a_gil_share_an_arena() -> None:
    assert arenas() == 1


@pytest.mark.skipif(not GIL_ENABLED, reason="this build runs without a GIL")
@pytest.mark.parametrize(
    "environment",
    [{"MALLOC_ARENA_MAX": "8"}, {"GLIBC_TUNABLES": "glibc.malloc.arena_max=8"}],
    ids=["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"],
)
def test_the_environment_may_say_how_many_arenas(environment: dict[str, str]) -> None:
    assert arenas(**environment) > 1


@pytest.mark.skipif(GIL_ENABLED, reason="this build has a GIL")
def test_threads_without_a_gil_have_arenas_of_their_own() -> None:
    assert arenas() > 1
