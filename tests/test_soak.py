"""A cut of scripts/soak.py: the whole mixture, for a quarter of a minute."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launch import GIL_ENABLED, python
from metered import run_metered

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
MINUTES = "0.25"
SEED = "7946"


@pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL")
@pytest.mark.timeout(400)
@pytest.mark.slow("a soak")
@pytest.mark.serial
@pytest.mark.parametrize("options", [(), ("--profile",)])
def test_everything_at_once_while_policies_change(options: tuple[str, ...]) -> None:
    # A thread that is stuck is found, with all stacks, before this runs out of patience.
    run = (SCRIPTS / "soak.py", "--minutes", MINUTES, "--seed", SEED, *options)
    result = python(*run, timeout=300)
    assert result.returncode == 0, result.stderr
    told = result.stdout.strip().removeprefix("soak: all is well: ")
    counts = {
        name: int(count.replace(",", ""))
        for name, count in re.findall(r"([a-z_ ]+) ([\d,]+)(?:, |$)", told)
    }
    workers = ("hog", "sleeper", "spinner", "masquerader", "echo", "ping_pong", "starter")
    others = ("collector", "runner", "forker", "interpreter_user", "signals", "policy changes")
    profiles = ("profiles",) if options else ()
    assert all(counts[name] > 0 for name in (*workers, *others, *profiles)), result.stdout


@pytest.fixture(scope="module")
def sound() -> dict[str, Any]:
    report: dict[str, Any]
    (report,) = run_metered("""
        gil.install("priority")
        thread = threading.Thread(target=sum, args=(range(10_000),))
        thread.start()
        for _ in range(100): time.sleep(0)
        thread.join()
        show(gil.snapshot().to_dict())
    """)
    return report


def one_more(key: str) -> Callable[[dict[str, Any]], None]:
    def spoil(row: dict[str, Any]) -> None:
        row[key] += 1

    return spoil


def one_more_wait(row: dict[str, Any]) -> None:
    row["wait"]["count"] += 1


@pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL")
@pytest.mark.parametrize(
    "spoil",
    [
        *map(one_more, ("takes", "voluntary_drops", "forced_drops", "preemptions", "anomalies")),
        *map(one_more, ("held_s", "handoff_s", "idle_s", "wall_s", "held_now")),
        one_more_wait,
    ],
)
def test_counters_that_do_not_balance_end_a_soak(
    sound: dict[str, Any], spoil: Callable[[dict[str, Any]], None]
) -> None:
    from headway.report.model import GilReport

    sys.path.insert(0, str(SCRIPTS))
    try:
        from soak_counters import SoakFailure, check_counters
    finally:
        sys.path.remove(str(SCRIPTS))
    check_counters(GilReport.decode(sound))
    spoilt = copy.deepcopy(sound)
    spoil(spoilt["gils"][0])
    with pytest.raises(SoakFailure, match=f"pid {sound['pid']}, GIL 0"):
        check_counters(GilReport.decode(spoilt))
