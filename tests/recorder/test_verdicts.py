"""Verdicts: a table of situations as records, and what must never be said whatever is recorded."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import pytest
from situations import MS, gil, requests, same, tick, verdict_on
from ticks import START, Bench

from headway.recorder.diagnosis import worst
from headway.recorder.diagnosis.gil_verdicts import top_frame
from headway.recorder.query.measuring import measure
from headway.recorder.query.query import Range
from headway.recorder.store.selection import Selection
from headway.report import thresholds
from headway.server.config.options import SECTIONS

FULL_GIL = gil(
    9.3,
    0.2,
    gil_takes=9000,
    gil_contended_takes=6000,
    gil_wait=same(5 * MS, 6000),
    gil_hold=same(3 * MS, 3000),
)
# 300 requests/s of 3 ms of Python each, in five threads that share one GIL.
GIL_BOUND = {
    **requests(3000, 15 * MS, wait=12 * MS, held=3 * MS, cpu=3.2 * MS),
    "capacity_utilization": 0.92,
    "cpu_user_utilization": 0.96,
    "gils": [FULL_GIL],
}
# Requests of 0.1 ms beside a page that computes for 200 ms.
CONVOY = {
    **requests(1000, 8 * MS, wait=7 * MS, held=0.1 * MS, cpu=0.1 * MS),
    "gil_held_time_histogram": [(0.1 * MS, 990), (200 * MS, 10)],
    "gil_wait_time_histogram": [(5.1 * MS, 800), (10.2 * MS, 200)],
    "capacity_utilization": 0.6,
    "cpu_user_utilization": 0.5,
    "gils": [
        gil(
            4.5,
            0.1,
            gil_takes=3000,
            gil_contended_takes=1200,
            gil_wait=[(5.1 * MS, 1000), (0.05 * MS, 200)],
            gil_hold=[(5.1 * MS, 800), (0.1 * MS, 2000)],
        )
    ],
}
# 20 requests/s that wait 200 ms each for a database.
IO_BOUND = {
    **requests(200, 200 * MS, wait=0.1 * MS, held=1 * MS, cpu=1.5 * MS),
    "capacity_utilization": 0.8,
    "cpu_user_utilization": 0.03,
    "gils": [gil(0.2, gil_wait=same(0.1 * MS, 20), gil_hold=same(0.5 * MS, 400))],
}
SATURATED = {
    **IO_BOUND,
    **requests(240, 200 * MS, wait=0.1 * MS, held=1 * MS, cpu=1.5 * MS, queue=300 * MS),
    "capacity_utilization": 0.99,
}
FREE_THREADED = {
    **requests(10_000, 4 * MS, held=0.0, cpu=3.8 * MS),
    "gil_mode": "disabled",
    "capacity_utilization": 0.8,
    "cpu_user_utilization": 3.9,
}
# Four threads take turns with one lock for a millisecond each; a fifth waits for work meanwhile.
LOCKED_PROGRAM = {
    "gil_mode": "disabled",
    "process_kind": "run",
    "cpu_user_utilization": 1.0,
    "parked_time_histogram": [(3 * MS, 10_000), (10.0, 1)],
    "threads": [{"thread_name": f"worker-{n}", "thread_parked": 7.5} for n in range(4)],
}
LOCKED_SERVER = {**FREE_THREADED, **LOCKED_PROGRAM, "process_kind": "serve"}
STOPPED = {
    **LOCKED_PROGRAM,
    "threads": [
        {"thread_name": "worker", "thread_suspended": 20.0},
        {"thread_name": "collector", "thread_stopping": 1.0},
    ],
}
HOLD = {
    "hold_duration": 0.4,
    "hold_waited": 0.35,
    "hold_thread": "headway-3",
    "hold_gil": "main",
    "hold_endpoint": "/report",
    "hold_stack": "render (/srv/shop.py:12)\npage (/srv/shop.py:9)",
}
HEALTHY = {
    **requests(1000, 2 * MS, wait=0.05 * MS, held=1 * MS, cpu=1.2 * MS),
    "capacity_utilization": 0.2,
    "cpu_user_utilization": 0.2,
    "gils": [gil(1.0, gil_wait=same(0.1 * MS, 100), gil_hold=same(1 * MS, 1000))],
}
# A program with an event loop that has hardly anything to do.
LOOP = {
    "process_kind": "run",
    "request_threads_maximum": None,
    "gils": [gil(0.05, gil_hold=same(0.1 * MS, 500))],
    "loop_iteration_histogram": same(0.1 * MS, 500),
    "loop_polled": 9.9,
    "loop_late_limit": 20 * MS,
}
# It slept for 300 ms of ten seconds, in six iterations.
LATE = {
    **LOOP,
    "loop_iteration_histogram": [(0.1 * MS, 500), (49 * MS, 6)],
    "loop_polled": 9.6,
    "loop_late": 6,
    "loop_late_blocked": 0.27,
    "loop_late_computed": 0.03,
    "loop_blocked": 0.3,
}
LATE_LOOP = {name: value for name, value in LATE.items() if name.startswith("loop_")}
APACHE = {"headway_version": None, "mod_wsgi_version": "6.1.1", "process_kind": None}
APACHE |= {"gil_mode": None, "policy": None, "cpu_cores": None}


def coarse(count: int, application: float, wait: float) -> dict[str, Any]:
    """The fields of mod_wsgi for `count` requests with equal times."""
    told: dict[str, Any] = {"request_count": count, "status_2xx_total": count}
    for name, mean in (("application", application), ("request", application), ("gil_wait", wait)):
        buckets = [0] * 65
        # Four steps to each power of two of a millisecond.
        power = max(0, math.floor(math.log2(max(mean, MS) / MS)))
        step = int(4 * (mean / MS / 2**power - 1)) if mean >= MS else 0
        buckets[4 * power + step] = count
        told[f"{name}_time"] = told[f"{name}_time_min"] = told[f"{name}_time_max"] = mean
        told[f"{name}_time_buckets"] = buckets
    return {**APACHE, **told}


SITUATIONS: dict[str, tuple[dict[str, Any], str, str]] = {
    "gil-bound": (GIL_BOUND, "gil-bound", "warning"),
    "gil-bound, and requests queue": (
        {**GIL_BOUND, "queue_time_histogram": same(30 * MS, 3000)},
        "gil-bound",
        "critical",
    ),
    "gil-bound under a policy": ({**GIL_BOUND, "policy": "priority"}, "gil-bound", "warning"),
    "the cores are full too": ({**GIL_BOUND, "cpu_cores": 1.0}, "cpu-bound", "note"),
    "convoy": (CONVOY, "convoy", "warning"),
    # The one in ten that waits long is one of those that compute.
    "no convoy where short requests go first": (
        {
            **CONVOY,
            "policy": "priority",
            "gil_wait_time_histogram": [(0.05 * MS, 800), (10.2 * MS, 200)],
        },
        "io-bound",
        "ok",
    ),
    "a convoy in spite of a policy": ({**CONVOY, "policy": "priority"}, "convoy", "warning"),
    # It waits for the first millisecond of longer holds, which no policy cuts short.
    "short work that waits for less than an interval under a policy": (
        {
            **CONVOY,
            "policy": "priority",
            "gil_wait_time_histogram": same(1 * MS, 1000),
            "gils": [gil(4.5, 0.1, gil_takes=9000, gil_wait=same(0.5 * MS, 9000))],
            "threads": [{"thread_name": "worker", "thread_preventable": 0.6}],
        },
        "io-bound",
        "ok",
    ),
    "convoy in a program without requests": (
        {"process_kind": "run", "gils": CONVOY["gils"], "cpu_user_utilization": 0.5},
        "convoy",
        "warning",
    ),
    "a full GIL of equals is no convoy": (
        {
            **GIL_BOUND,
            **requests(1000, 45 * MS, wait=36 * MS, held=9 * MS, cpu=9 * MS),
            "gils": [
                gil(9.5, gil_wait=same(10 * MS, 3000), gil_hold=same(5 * MS, 1900)),
            ],
        },
        "gil-bound",
        "warning",
    ),
    "io-bound": (IO_BOUND, "io-bound", "note"),
    "io-bound with threads to spare": (
        {**IO_BOUND, "capacity_utilization": 0.2},
        "io-bound",
        "ok",
    ),
    "lock contention in a program": (LOCKED_PROGRAM, "lock-contention", "warning"),
    "lock contention in a server": (LOCKED_SERVER, "lock-contention", "warning"),
    "lock contention, and requests queue": (
        {**LOCKED_SERVER, "queue_time_histogram": same(30 * MS, 3000)},
        "lock-contention",
        "critical",
    ),
    "all cores are in use in spite of locks": (
        {**LOCKED_PROGRAM, "cpu_cores": 1.0},
        "cpu-bound",
        "note",
    ),
    "waits for locks where there is a GIL": (
        {**LOCKED_PROGRAM, "gil_mode": "enabled"},
        "unknown",
        "ok",
    ),
    "waits for work": (
        {**LOCKED_PROGRAM, "parked_time_histogram": [(60 * MS, 500)]},
        "healthy",
        "ok",
    ),
    "waits of a sender that does not report their lengths": (
        {**LOCKED_PROGRAM, "parked_time_histogram": None},
        "unknown",
        "ok",
    ),
    "an event loop in time": (LOOP, "idle", "ok"),
    "an event loop that is often late": (LATE, "late-loop", "warning"),
    "an event loop that is late now and then": (
        {**LATE, "loop_late_blocked": 0.06, "loop_late_computed": 0.0},
        "idle",
        "ok",
    ),
    "an event loop that was late once": (
        {**LATE, "loop_iteration_histogram": [(0.12, 1)], "loop_late": 1},
        "late-loop",
        "warning",
    ),
    "an event loop that has not come back": (
        {**LOOP, "loop_iterating": 3.0},
        "late-loop",
        "warning",
    ),
    "a late event loop of a healthy server": ({**HEALTHY, **LATE_LOOP}, "late-loop", "warning"),
    "a late event loop of a server with few requests": (
        {**requests(5, 900 * MS, cpu=100 * MS), "capacity_utilization": 0.1, **LATE_LOOP},
        "late-loop",
        "warning",
    ),
    "a late event loop beside a full GIL": ({**GIL_BOUND, **LATE_LOOP}, "gil-bound", "warning"),
    "a late event loop of a server that waits": ({**IO_BOUND, **LATE_LOOP}, "late-loop", "warning"),
    "a stopped world": (STOPPED, "stopped-world", "warning"),
    "saturated": (SATURATED, "saturated", "critical"),
    "threads that never finish": (
        {"capacity_utilization": 1.0, "cpu_user_utilization": 0.0, "gils": [gil()]},
        "saturated",
        "warning",
    ),
    "idle": ({"gils": [gil(0.001)]}, "idle", "ok"),
    "a health check now and then": (
        {**requests(2, 1 * MS, held=0.5 * MS, cpu=0.5 * MS), "gils": [gil(0.001)]},
        "idle",
        "ok",
    ),
    "too few to tell": (
        {**requests(5, 900 * MS, cpu=100 * MS), "capacity_utilization": 0.1},
        "unknown",
        "ok",
    ),
    "healthy": (HEALTHY, "healthy", "ok"),
    "throttled": (
        {
            **GIL_BOUND,
            "cgroup_periods": 100,
            "cgroup_throttled_periods": 40,
            "cgroup_cpu_limit": 1.0,
        },
        "cpu-limited",
        "critical",
    ),
    "at the limit of the cgroup": (
        {**HEALTHY, "cpu_user_utilization": 0.49, "cgroup_cpu_limit": 0.5, "cgroup_periods": 100},
        "cpu-limited",
        "warning",
    ),
    "other processes on all cores": (
        {**GIL_BOUND, "cpu_user_utilization": 0.4, "cpu_cores": 2.0, "cores_busy": 19.5},
        "cores-taken",
        "warning",
    ),
    "other processes on half of the cores": (
        {**GIL_BOUND, "cpu_user_utilization": 0.4, "cpu_cores": 4.0, "cores_busy": 20.0},
        "gil-bound",
        "warning",
    ),
    "other processes on all cores, and a GIL that is hardly needed": (
        {**HEALTHY, "gils": [gil(0.1)], "cpu_cores": 2.0, "cores_busy": 19.5},
        "healthy",
        "ok",
    ),
    "free-threaded with all cores in use": (
        {**FREE_THREADED, "cpu_cores": 4.0},
        "cpu-bound",
        "note",
    ),
    "free-threaded with all threads computing": (
        {**FREE_THREADED, "cpu_user_utilization": 4.7},
        "cpu-bound",
        "note",
    ),
    "free-threaded, waiting": (
        {**IO_BOUND, "gil_mode": "disabled", "gils": None},
        "io-bound",
        "note",
    ),
    "own GILs with all cores in use": (
        {
            **GIL_BOUND,
            "cpu_cores": 2.0,
            "cpu_user_utilization": 1.9,
            "gils": [FULL_GIL, {**FULL_GIL, "gil_name": "main 2"}],
        },
        "cpu-bound",
        "note",
    ),
    "own GILs with cores left": (
        {
            **GIL_BOUND,
            "cpu_user_utilization": 1.9,
            "gils": [FULL_GIL, {**FULL_GIL, "gil_name": "main 2"}],
        },
        "gil-bound",
        "warning",
    ),
    "mod_wsgi, gil-bound": (
        {**coarse(3000, 15 * MS, 6 * MS), "cpu_user_utilization": 0.95}
        | {"capacity_utilization": 0.9},
        "gil-bound",
        "warning",
    ),
    # The three that mod_wsgi-telemetry takes for GIL-bound.
    "mod_wsgi, io-bound": (
        {**coarse(200, 200 * MS, 1 * MS), "cpu_user_utilization": 0.1}
        | {"capacity_utilization": 0.8},
        "io-bound",
        "note",
    ),
    "mod_wsgi, maybe free-threaded, computing on one core": (
        {**coarse(3000, 3 * MS, 0.1 * MS), "cpu_user_utilization": 1.05}
        | {"capacity_utilization": 0.6},
        "healthy",
        "ok",
    ),
    "mod_wsgi, surely free-threaded": (
        {**coarse(3000, 8 * MS, 6 * MS), "cpu_user_utilization": 3.5}
        | {"capacity_utilization": 0.6},
        "healthy",
        "ok",
    ),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_verdict_on(situation: str) -> None:
    fields, name, severity = SITUATIONS[situation]
    found = verdict_on(tick(**fields))
    assert (found["name"], found["severity"]) == (name, severity), found["text"]


def test_what_a_late_event_loop_did_is_said_with_what_helps() -> None:
    found = verdict_on(tick(**LATE))
    said = "did not look for events for up to 49 ms, 6 times for 20 ms or longer"
    assert said in found["text"], found["text"]
    assert "300 ms in all: it blocked." in found["text"]
    assert found["advice"][0]["try"] == "use an asynchronous library for it, or asyncio.to_thread()"
    # Of C code that has dropped the GIL.
    ran = verdict_on(tick(**{**LATE, "loop_late_ran_blocked": 0.2}))
    assert "asyncio.to_thread() is enough" in ran["advice"][0]["try"]
    waited = {**LATE, "loop_late_waited": 0.2, "loop_late_blocked": 0.1}
    found = verdict_on(tick(**waited))
    assert "waited for the GIL for 200 ms, and blocked for 100 ms." in found["text"]
    assert "priority" in found["advice"][0]["try"]
    scheduled = verdict_on(tick(**{**waited, "policy": "priority"}))
    assert "another process" in scheduled["advice"][0]["try"]
    rows = [
        {"late_function": "fetch", "late_place": "/srv/a.py:3", "late_part": "blocked"}
        | {"late_time": 0.1},
        {"late_function": "score", "late_place": "/srv/b.py:4", "late_part": "waited"}
        | {"late_time": 0.1, "late_holder": "worker\x1b"},
        {"late_function": "other", "late_part": "waited", "late_time": 0.01},
    ]
    placed = verdict_on(tick(**{**waited, "late_lines": rows}))["text"]
    assert "waited for the GIL, which worker\\x1b held in score (b.py:4) for 200 ms" in placed
    assert "blocked in fetch (a.py:3) for 100 ms" in placed
    present = verdict_on(tick(**{**LOOP, "loop_iterating": 3.0}))
    assert "has not looked for events for 3 s." in present["text"], present["text"]
    assert present["advice"] == []
    both = verdict_on(tick(**{**LATE, "loop_iterating": 3.0}))
    assert both["text"].endswith("it blocked. It has looked for none for 3 s."), both["text"]
    ended = verdict_on(tick(**{**LATE, "loop_iterating": 0.03}))
    assert ended["text"].endswith("it blocked."), ended["text"]
    # Another verdict says it too.
    full = verdict_on(tick(**{**GIL_BOUND, **LATE_LOOP}))
    assert "Late event loop: the event loop did not look for events for up to" in full["text"]


def test_a_call_that_keeps_the_gil_is_named() -> None:
    waits = {"gils": [gil(4.0, gil_wait=same(0.3, 10), gil_hold=same(0.4, 10))]}
    found = verdict_on(tick(**{**HEALTHY, **waits}), holds=(HOLD,) * 9)
    assert (found["name"], found["severity"]) == ("long-hold", "warning")
    for part in ("headway-3", "/report", "render (shop.py:12)", "350 ms", "9 holds"):
        assert part in found["text"]
    # The cause is named as far as the holder's CPU time shows it.
    assert "not known" in found["text"]
    in_c = verdict_on(tick(**{**HEALTHY, **waits}), holds=({**HOLD, "hold_cpu": 0.34},) * 9)
    assert in_c["title"] == "A call keeps the GIL and cannot be preempted"
    starved = verdict_on(tick(**{**HEALTHY, **waits}), holds=({**HOLD, "hold_cpu": 1e-5},) * 9)
    assert starved["title"] == found["title"] == "A thread keeps the GIL although others ask for it"
    assert "used only 10 µs of CPU time" in starved["text"]
    # One that lasts a second is named whatever else was waited for.
    long = {**HOLD, "hold_waited": 1.2, "hold_duration": 1.5}
    many = {"gils": [gil(4.0, gil_wait=same(1 * MS, 90_000), gil_hold=same(0.4, 10))]}
    assert verdict_on(tick(**{**HEALTHY, **many}), holds=(long,))["severity"] == "critical"
    assert verdict_on(tick(**{**HEALTHY, **many}), holds=(HOLD,))["name"] == "healthy"
    # A hold that nobody waited for delays nobody.
    alone = {**HOLD, "hold_waited": 0.0}
    assert verdict_on(tick(**{**HEALTHY, **waits}), holds=(alone,) * 9)["name"] == "healthy"


def test_holders_that_sleep_do_not_lack_a_core() -> None:
    busy = {
        **HEALTHY,
        "cpu_cores": 2.0,
        "cores_busy": 19.5,
        "gils": [gil(9.5, gil_wait=same(0.4, 23), gil_hold=same(0.4, 23))],
    }
    assert verdict_on(tick(**busy))["name"] == "cores-taken"
    hold = {**HOLD, "hold_waited": 0.4}
    for cpu, verdict in ((1e-5, "long-hold"), (None, "long-hold"), (0.2, "cores-taken")):
        holds = ({**hold, "hold_cpu": cpu},) * 23
        assert verdict_on(tick(**busy), holds=holds)["name"] == verdict
    long = {**hold, "hold_waited": 1.2, "hold_duration": 1.2, "hold_cpu": 0.6}
    assert verdict_on(tick(**busy), holds=(long,) * 7)["name"] == "long-hold"
    short = {**hold, "hold_waited": 0.06, "hold_cpu": 1e-5}
    assert verdict_on(tick(**busy), holds=(short,) * 23)["name"] == "cores-taken"


def test_long_holds_need_no_number_of_requests_even_if_they_explain_less() -> None:
    few = {**GIL_BOUND, **requests(5, 900 * MS, wait=700 * MS, held=100 * MS, cpu=100 * MS)}
    assert verdict_on(tick(**few))["name"] == "unknown"
    assert verdict_on(tick(**few), holds=(HOLD,) * 9)["name"] == "long-hold"
    assert verdict_on(tick(**GIL_BOUND), holds=(HOLD,) * 9)["name"] == "gil-bound"


@pytest.mark.parametrize(
    ("name", "told", "never"),
    [
        (
            {"thread_preventable": 20.0},
            ("convoy", "67 % of all waiting", "light waited"),
            "Besides",
        ),
        (
            {"thread_preventable": 5.0},
            ("gil-bound", "light most", "--policy priority"),
            "collector",
        ),
        ({"thread_preventable": 0.0}, ("gil-bound", "one computes"), "--policy"),
        (
            {"thread_preventable": 4.0, "thread_collection": 20.0},
            ("garbage-collection", "in 40 collections", "67 % of the waiting", "Besides, short"),
            "--policy",
        ),
    ],
    ids=["a convoy", "a full GIL and a convoy", "a full GIL", "garbage collection"],
)
def test_the_parts_of_waits_decide(
    name: dict[str, float], told: tuple[str, ...], never: str
) -> None:
    """Of 30 s that threads waited in all."""
    rows = [{"thread_name": "light", "thread_gil": "main", "thread_waited": 30.0, **name}]
    collected = [{"gc_interpreter": "main", "gc_pause": same(0.5, 40)}]
    found = verdict_on(tick(**{**GIL_BOUND, "threads": rows, "gcs": collected}))
    text = f"{found['name']} {found['text']} {[each['try'] for each in found['advice']]}"
    for words in told:
        assert words in text, text
    assert never not in text, text


@pytest.mark.parametrize(
    ("stack", "frame"),
    [
        ("f (/a/b.py:3)\ng (/c.py:1)", "f (b.py:3)"),
        ("<module> (b.py:3)", "<module> (b.py:3)"),
        ("f (/x\x1b[2J.py:3)", "f (x\\x1b[2J.py:3)"),
        # As reports of earlier versions have it.
        ('  File "/a/b.py", line 3 in f\n  File "/c"', "f (b.py:3)"),
        (f"f (a.py:{'1' * 5_000})\ng (b.py:3)", "g (b.py:3)"),
        # A library's line says little without the application's that called it.
        (
            "search (/usr/lib/python3.13/re/__init__.py:177)\nhandle (/srv/app.py:9)\ng (/b.py:1)",
            "search (re/__init__.py:177), called from handle (app.py:9)",
        ),
        (
            "get (/v/lib/python3.13t/site-packages/orm.py:7)\nload (/srv/shop.py:3)",
            "get (orm.py:7), called from load (shop.py:3)",
        ),
        ("run (<frozen runpy>:88)", "run (<frozen runpy>:88)"),
        ("no stack", ""),
        (None, ""),
    ],
)
def test_the_top_of_a_stack(stack: str | None, frame: str) -> None:
    assert top_frame({"hold_stack": stack}) == frame


def test_long_holds_hide_no_convoy() -> None:
    # 9 of 13 s of waiting are for the convoy, 3.15 s for nine long holds.
    waits = {"gil_wait": [(5.1 * MS, 1800), (0.35, 9), (0.05 * MS, 200)]}
    both = {**CONVOY, "gils": [{**CONVOY["gils"][0], **waits}]}
    found = verdict_on(tick(**both), holds=(HOLD,) * 9)
    assert found["name"] == "convoy", found["text"]
    assert "Besides, headway-3 kept it for 400 ms at a time, which is at least 2" in found["text"]
    assert any("policy" in each["try"] for each in found["advice"])
    most = {**CONVOY, "gils": [{**CONVOY["gils"][0], "gil_wait": [(5.1 * MS, 300), (0.35, 9)]}]}
    assert verdict_on(tick(**most), holds=(HOLD,) * 9)["name"] == "long-hold"


# One thread of a program that computes, and another that sleeps.
COMPUTES = {
    "process_kind": "run",
    "request_threads_maximum": None,
    "cpu_user_utilization": 0.99,
    "gils": [gil(9.97, gil_takes=500, gil_wait=same(10e-6, 20), gil_hold=same(19 * MS, 500))],
}


def test_a_full_gil_that_nobody_waits_for_is_told_as_it_is() -> None:
    found = verdict_on(tick(**COMPUTES))
    assert found["name"] == "healthy"
    assert found["text"].startswith(
        "The GIL is in use 100 % of the time, but hardly a thread waits"
    )
    assert "used up" not in found["text"]
    # A program has no worker threads.
    assert [each["text"] for each in found["evidence"]] == ["GIL in use", "CPU of each process"]


def test_advice_to_a_program_names_no_option_of_the_server() -> None:
    convoy = verdict_on(tick(**SITUATIONS["convoy in a program without requests"][0]))
    waits = {"gils": [gil(4.0, gil_wait=same(0.3, 10), gil_hold=same(0.4, 10))]}
    long_hold = verdict_on(tick(**{**COMPUTES, **waits}), holds=(HOLD,) * 9)
    tries = [each["try"] for found in (convoy, long_hold) for each in found["advice"]]
    assert "HEADWAY=priority in the program's environment" in tries
    assert any(each.startswith("a process of its own for /report") for each in tries), tries
    assert not any("--" in each or "process-group" in each for each in tries), tries


def test_too_few_requests_say_how_many_are_needed_and_when_they_are_there() -> None:
    found = verdict_on(tick(**SITUATIONS["too few to tell"][0]))
    assert "needs 30 requests" in found["text"]
    assert "there were 5" in found["text"]
    assert "60 s" in found["text"]


def test_more_processes_bring_what_one_gil_and_the_cores_allow() -> None:
    found = verdict_on(tick(**GIL_BOUND))
    (more,) = [each for each in found["advice"] if "--processes" in each["try"]]
    # 9.3 s of GIL for 3,000 requests: full at 323/s. 9.6 s of CPU: 8 cores carry 2,500/s.
    assert more["try"] == "--processes 8 (now 1)"
    assert "one GIL is full at 323 requests/s" in more["expect"]
    assert "up to 2,500 requests/s" in more["expect"]
    assert "350 MB" in more["expect"]
    # Where two processes have used up two cores, more of them bring nothing.
    two = [tick(pid, **{**GIL_BOUND, "cpu_cores": 2.0}) for pid in (1, 2)]
    assert not any("--processes" in each["try"] for each in verdict_on(*two)["advice"])


def test_the_room_that_is_left_is_that_on_the_cores_that_others_leave() -> None:
    # 1.2 ms of CPU time a request, with a GIL each.
    two = {**HEALTHY, "cpu_cores": 2.0, "cpu_user_utilization": 0.12}
    alone = verdict_on(tick(**two), tick(2, **two))["text"]
    assert "At 1,670 requests/s" in alone
    assert "Other processes" not in alone
    # 0.24 cores of these, and 1.0 of others.
    beside = {**two, "cores_busy": 12.4}
    shared = verdict_on(tick(**beside), tick(2, **beside))["text"]
    assert "At 833 requests/s" in shared
    assert "Other processes use 1.0 cores; if they need more for more requests" in shared


def test_a_shorter_switch_interval_cuts_waits_in_proportion_and_costs_handoffs() -> None:
    found = verdict_on(tick(**CONVOY))
    (shorter,) = [each for each in found["advice"] if "--switch-interval" in each["try"]]
    # 0.1 s of handoffs in 1,200 contended takes: 83 us each, a tenth of 0.8 ms.
    assert "--switch-interval 0.8ms (now 5 ms)" in shorter["try"]
    assert "83.3 µs" in shorter["expect"]
    assert "9 % of the GIL's time" in shorter["expect"]
    scheduled = verdict_on(tick(**{**CONVOY, "policy": "priority"}))
    assert not any("--switch-interval" in each["try"] for each in scheduled["advice"])
    assert not any("--policy" in each["try"] for each in scheduled["advice"])


def test_options_that_advice_names_exist() -> None:
    known = {f"--{option.name}" for options in SECTIONS.values() for option in options}
    for fields, _, _ in SITUATIONS.values():
        for each in verdict_on(tick(**fields))["advice"]:
            assert set(re.findall(r"--[a-z-]+", each["try"])) <= known | {"--config"}, each


def test_mod_wsgis_own_figures_are_a_lower_bound_and_get_its_own_options() -> None:
    found = verdict_on(tick(**SITUATIONS["mod_wsgi, gil-bound"][0]))
    assert "lower bound" in found["text"]
    assert "lower bound" in found["evidence"][0]["text"]
    tried = " ".join(each["try"] for each in found["advice"])
    assert "WSGIDaemonProcess processes=2" in tried
    assert "WSGIDaemonProcess switch-interval=0.0001" in tried


def any_process(chance: random.Random) -> dict[str, Any]:
    """Any figures at all, within what a process can tell."""
    count = chance.choice([0, 5, 50, 5000])
    threads = chance.randint(1, 40)
    seconds = [10 ** chance.uniform(-5, 0.5) for _ in range(6)]
    wall = 10.0 * chance.randint(1, 4)
    held = wall * chance.random()
    handoff = (wall - held) * chance.random() * 0.3
    return {
        **requests(count, *seconds[:5]),
        "queue_time_histogram": same(seconds[5], count),
        "request_threads_maximum": threads,
        "capacity_utilization": chance.random(),
        "cpu_user_utilization": chance.uniform(0, 8),
        "cpu_cores": float(chance.randint(1, 16)),
        "policy": chance.choice(["interval", "priority", "deadline", None]),
        "switch_interval": 10 ** chance.uniform(-5, -1),
        "process_kind": chance.choice(["serve", "run"]),
        "gils": [
            gil(
                held,
                handoff,
                wall,
                gil_takes=1000,
                gil_contended_takes=chance.randint(0, 1000),
                gil_wait=same(10 ** chance.uniform(-5, 0), chance.randint(1, 5000)),
                gil_hold=same(10 ** chance.uniform(-5, 0), chance.randint(1, 5000)),
            )
        ],
    }


GIL_NAMES = {"gil-bound", "convoy", "long-hold"}


@pytest.mark.parametrize("seed", range(300))
def test_a_free_threaded_process_is_never_said_to_have_a_gil(seed: int) -> None:
    fields = any_process(random.Random(seed))
    found = verdict_on(tick(**{**fields, "gil_mode": "disabled"}), holds=(HOLD,) * 20)
    assert found["name"] not in GIL_NAMES, found["text"]
    for advice in found["advice"]:
        assert "--policy" not in advice["try"]


@pytest.mark.parametrize("seed", range(300))
def test_a_process_whose_gil_is_free_is_never_gil_bound(seed: int) -> None:
    chance = random.Random(seed)
    fields = any_process(chance)
    row = fields["gils"][0]
    share = chance.uniform(0, thresholds.GIL_FULL.value - 0.01)
    row["gil_held"], row["gil_handoff"] = share * row["gil_wall"], 0.0
    assert verdict_on(tick(**fields))["name"] != "gil-bound"


@pytest.mark.parametrize("seed", range(300))
def test_an_apache_without_a_core_of_computing_is_never_gil_bound(seed: int) -> None:
    """I/O-bound whatever else it tells; and so is one that uses more than a GIL allows."""
    chance = random.Random(seed)
    fields = {
        **coarse(chance.choice([5, 500, 5000]), chance.uniform(1e-4, 2), chance.uniform(1e-4, 1)),
        "capacity_utilization": chance.random(),
        "request_threads_maximum": chance.randint(1, 40),
        "switch_interval": 10 ** chance.uniform(-4, -2),
        "cpu_user_utilization": chance.choice([chance.uniform(0, 0.74), chance.uniform(1.16, 9)]),
    }
    assert verdict_on(tick(**fields))["name"] not in GIL_NAMES


@pytest.mark.parametrize("seed", range(100))
def test_any_figures_have_a_verdict_that_reads_as_text(seed: int) -> None:
    found = verdict_on(tick(**any_process(random.Random(seed))), holds=(HOLD,))
    text = " ".join([found["title"], found["text"], *(each["expect"] for each in found["advice"])])
    assert not re.search(r"\b(nan|inf|None)\b|\{|\}", text), text


def test_of_several_groups_the_worst_speaks() -> None:
    good, bad = verdict_on(tick(**HEALTHY)), verdict_on(tick(**GIL_BOUND))
    idle = verdict_on(tick())
    assert worst([]) is None
    assert worst([("a", good)]) == good
    found = worst([("shop", good), ("admin", bad), ("jobs", idle)])
    assert found is not None
    assert found["name"] == "gil-bound"
    assert found["text"].startswith("Process group admin: ")
    quiet = worst([("shop", good), ("jobs", idle)])
    assert quiet is not None
    assert quiet["name"] == "healthy"


def test_a_wait_counts_for_a_hold_as_long_as_the_hold_was() -> None:
    """The longest wait may have begun before the hold; only its part in the hold counts."""
    waits = {"gils": [gil(4.0, gil_wait=same(0.3, 10), gil_hold=same(0.4, 10))]}
    early = {**HOLD, "hold_waited": 2.0, "hold_duration": 0.4}
    found = verdict_on(tick(**{**HEALTHY, **waits}), holds=(early,))
    assert (found["name"], found["severity"]) == ("long-hold", "warning")
    assert "another thread waited for 400 ms of that" in found["text"]


def test_where_holders_of_the_gil_have_no_core_nobody_is_promised_more_processes_than_cores() -> (
    None
):
    """Other programs have the cores: CPU time per request is small, but not to be had."""
    starved = {
        **GIL_BOUND,
        "cpu_cores": 2.0,
        "cpu_user_utilization": 0.26,
        "request_cpu_time_histogram": same(0.8 * MS, 3000),
    }
    found = verdict_on(tick(**starved))
    assert found["name"] == "gil-bound"
    assert "had a core for only 28 %" in found["text"]
    (more,) = [each for each in found["advice"] if "--processes" in each["try"]]
    assert more["try"] == "--processes 2 (now 1)"


def test_requests_that_differ_very_much_make_a_guess_a_rough_one() -> None:
    spread = {**GIL_BOUND, "gil_held_time_histogram": [(0.01 * MS, 2990), (900 * MS, 10)]}
    (more,) = [
        each for each in verdict_on(tick(**spread))["advice"] if "--processes" in each["try"]
    ]
    assert "a rough guess" in more["expect"]


def test_groups_that_differ_are_judged_one_by_one() -> None:
    """Two hosts with two cores each, half of each in use: their sum would fill one host's cores."""
    bench = Bench(None)
    busy = {
        **requests(100, 8 * MS, wait=0.1 * MS, held=4 * MS, cpu=4 * MS),
        "capacity_utilization": 0.3,
        "cpu_user_utilization": 1.0,
        "cpu_cores": 2.0,
    }
    for second in range(1, 11):
        for host in ("alpha", "beta"):
            each = tick(stamp=START + second, seq=second, sample_period=1.0, hostname=host, **busy)
            bench.clock.now = START + second
            bench.give(each)
    both = measure(bench.history, Range(START, START + 10), Selection())
    assert both["summary"]["processes"] == pytest.approx(2.0)
    assert both["summary"]["cpu"] == pytest.approx(2.0)
    assert both["verdict"]["name"] == "healthy"
    one = measure(bench.history, Range(START, START + 10), Selection(frozenset(["alpha"])))
    bench.stop()
    assert one["summary"]["cpu"] == pytest.approx(1.0)
    assert one["verdict"]["name"] == "healthy"
