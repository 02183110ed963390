"""Under which circumstances was measured, and what is doubtful about them."""

from __future__ import annotations

import os
import time

import pytest

from headway.output.metadata import Circumstances, doubts, interpreters_in
from headway.programs import interpreters

QUIET = {"load": 0.1, "cpus": 2, "steal": 0.0, "governor": None, "debug": False}


def test_circumstances_are_those_of_this_machine() -> None:
    circumstances = Circumstances()
    time.sleep(0.05)
    found = circumstances.to_dict(interpreters.this(), quick=True)
    assert found["kernel"] == os.uname().release
    assert found["cpu"]
    assert found["cpus"] == len(os.sched_getaffinity(0))
    assert 0 <= found["steal"] <= 1
    assert found["seconds"] >= 0.05
    assert found["quick"] is True


def test_a_quiet_machine_leaves_no_doubt() -> None:
    assert doubts(QUIET) == []


def test_a_file_that_tells_nothing_is_not_doubted() -> None:
    assert doubts({}) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"load": 1.4}, "load 1.4 on 2 processors"),
        ({"steal": 0.05}, "5.0% of the processors' time"),
        ({"governor": "powersave"}, "governor powersave"),
        ({"debug": True}, "debug build"),
    ],
)
def test_what_makes_measurements_worth_less_is_said(change: dict[str, object], said: str) -> None:
    (doubt,) = doubts({**QUIET, **change})
    assert said in doubt


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({}, "CPython (unknown)"),
        ({"python": "3.13.0", "free_threading": False, "beside": None}, "CPython 3.13.0"),
        ({"python": "3.13.0", "free_threading": True}, "CPython 3.13.0t"),
        ({"python": "3.13.0", "beside": "3.14.0t"}, "CPython 3.13.0 and 3.14.0t"),
        ({"simulated": {"seed": 1}}, "a simulated CPython"),
    ],
)
def test_the_interpreters_are_named(metadata: dict[str, object], said: str) -> None:
    assert interpreters_in(metadata) == said
