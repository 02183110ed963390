"""The rules of `headway.report.diagnosis`, each at its threshold."""

from __future__ import annotations

import math
from typing import Any

import pytest

from headway.report import diagnosis
from headway.report.diagnosis import (
    COLLECTION,
    CONVOY,
    GIL_BOUND,
    HEALTHY,
    LOCK_CONTENTION,
    LONG_HOLD,
    STOPPED_WORLD,
    Contention,
    Parking,
)

# For ten seconds an echo thread waits whole switch intervals behind a thread that computes.
ECHO: dict[str, Any] = {
    "interval_s": 0.005,
    "wall_s": 10.0,
    "used_s": 9.9,
    "waited_s": 9.0,
    "held_s": 9.8,
    "interval_waits_s": 8.9,
    "interval_holds_s": 9.7,
    "needed_s": 1e-5,
    "delayed_s": 0.005,
}
FEW = {"waited_s": 0.49, "interval_waits_s": 0.48}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, CONVOY),
        ({"delayed_s": None}, CONVOY),
        ({"interval_waits_s": 4.4}, GIL_BOUND),
        ({"interval_holds_s": 2.9}, GIL_BOUND),
        ({"needed_s": 0.0025}, GIL_BOUND),
        ({"needed_s": math.inf}, GIL_BOUND),
        ({"delayed_s": 0.0039}, GIL_BOUND),
        ({"interval_s": None}, GIL_BOUND),
        ({"needed_s": 0.01, "used_s": 7.9}, HEALTHY),
        ({"needed_s": 0.01, "waited_s": 4.9}, HEALTHY),
        (FEW, HEALTHY),
        # A convoy beside long holds, as far as it explains half of the waiting.
        ({"kept_s": 0.3, "waited_for_kept_s": 0.9}, CONVOY),
        ({"kept_s": 0.3, "waited_for_kept_s": 4.3}, CONVOY),
        ({"kept_s": 0.3, "waited_for_kept_s": 4.5}, LONG_HOLD),
        ({"kept_s": 0.3, "waited_for_kept_s": 4.6, "needed_s": 0.0025}, LONG_HOLD),
        ({"kept_s": 0.3, "waited_for_kept_s": 4.4, "needed_s": 0.0025}, GIL_BOUND),
        ({"kept_s": 0.3, "waited_for_kept_s": 0.89, "needed_s": 0.0025}, GIL_BOUND),
        ({"kept_s": 1.0, "waited_for_kept_s": 0.9}, LONG_HOLD),
        ({**FEW, "kept_s": 0.3, "waited_for_kept_s": 0.4}, HEALTHY),
        ({**FEW, "kept_s": 1.0}, LONG_HOLD),
        # Where the meter divided the waits, their lengths do not count.
        ({"preventable_s": 3.1, "interval_waits_s": 0.0}, CONVOY),
        ({"preventable_s": 2.9}, GIL_BOUND),
        ({"preventable_s": 0.91, "used_s": 7.9}, CONVOY),
        ({"preventable_s": 0.89, "used_s": 7.9}, HEALTHY),
        ({**FEW, "preventable_s": 0.49, "used_s": 7.9}, HEALTHY),
        ({"preventable_s": 3.0, "collection_s": 3.1, "used_s": 7.9}, COLLECTION),
        ({"preventable_s": 3.0, "collection_s": 2.9, "used_s": 7.9}, CONVOY),
        (
            {**FEW, "preventable_s": 0.0, "collection_s": 1.2, "longest_collection_s": 1.0},
            COLLECTION,
        ),
        ({**FEW, "preventable_s": 0.0, "collection_s": 0.4, "longest_collection_s": 1.0}, HEALTHY),
        ({"wall_s": 0.0, "waited_s": 0.0, "held_s": 0.0}, HEALTHY),
    ],
)
def test_the_first_rule_that_explains_the_waits_holds(changes: dict[str, Any], found: str) -> None:
    assert diagnosis.finding(Contention(**{**ECHO, **changes})) == found


def test_findings_are_in_the_order_of_what_they_explain() -> None:
    parts = {"kept_s": 0.3, "waited_for_kept_s": 1.0, "preventable_s": 2.0, "collection_s": 1.5}
    found = diagnosis.findings(Contention(**{**ECHO, **parts}))
    assert found == [GIL_BOUND, CONVOY, COLLECTION, LONG_HOLD]


@pytest.mark.parametrize(
    ("interval_s", "cpu_s", "limit_s"),
    [
        (0.005, None, 0.05),
        (0.05, None, 0.2),
        (None, None, 0.05),
        # A call into C code.
        (0.005, 0.005, 0.02),
        (None, 1.0, 0.05),
        # A holder that was off the processor.
        (0.005, 0.0049, 0.05),
        (0.1, 0.0, 0.4),
    ],
)
def test_when_a_hold_is_long_depends_on_the_cpu_time_of_its_holder(
    interval_s: float | None, cpu_s: float | None, limit_s: float
) -> None:
    assert diagnosis.long_hold_s(interval_s, cpu_s) == pytest.approx(limit_s)


# For ten seconds four threads take turns with one lock.
FIGHT: dict[str, Any] = {"wall_s": 10.0, "cpu_s": 10.0, "contended_s": 30.0, "stopped_s": 0.0}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, LOCK_CONTENTION),
        ({"cpu_s": None}, LOCK_CONTENTION),
        ({"contended_s": 4.9, "cpu_s": 1.0}, HEALTHY),
        # Of 40 threads that compute, three wait.
        ({"cpu_s": 400.0}, HEALTHY),
        ({"cpu_s": 90.0}, LOCK_CONTENTION),
        ({"cpu_s": 90.1}, HEALTHY),
        # The threads have nothing to do.
        ({"cpu_s": 0.9}, HEALTHY),
        # The holder of the lock stands still, too.
        ({"stopped_s": 5.0}, STOPPED_WORLD),
        ({"stopped_s": 4.9}, LOCK_CONTENTION),
        ({"contended_s": 0.0, "stopped_s": 30.0, "cpu_s": None}, STOPPED_WORLD),
        ({"contended_s": 0.0, "stopped_s": 30.0, "cpu_s": 91.0}, HEALTHY),
        ({"wall_s": 0.0, "cpu_s": 0.0, "contended_s": 0.0}, HEALTHY),
    ],
)
def test_what_limits_threads_without_a_gil(changes: dict[str, Any], found: str) -> None:
    assert diagnosis.parking_finding(Parking(**{**FIGHT, **changes})) == found
