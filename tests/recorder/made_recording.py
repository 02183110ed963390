"""A recording whose story is known: a convoy, a crash, a restart, and then no convoy.

Two processes of five threads each serve `shop` at a switch interval of 5 ms, and requests wait
whole intervals for the GIL. One of them is killed. Both are replaced under the policy `deadline`,
and the waits become short. Beside them a group whose names, paths and stacks are what an attacker
would send. Made of datagrams as processes send them, stamped with the past, so that minutes are
recorded in a second.
"""

from __future__ import annotations

import math
import random
import socket
from collections.abc import Iterator
from typing import Any

from headway import _native

TICK, SLOW, STARTED, STOPPING, STOPPED, GC_EVENT = 2, 4, 5, 6, 7, 9
HOSTILE = "</script><img src=x onerror=alert(1)>"
INTERVAL_S = 0.005
PHASE_S = 90
GAP_S = 4
THREADS = 5
BEFORE_PIDS, AFTER_PIDS, HOSTILE_PID = (4001, 4002), (4101, 4102), 4201
STACK = "score (/srv/shop/recommendations.py:41)\npage (/srv/shop/shop.py:9)"

Waits = list[tuple[float, int]]
Ending = tuple[tuple[int, ...], dict[str, object]]

NO_END: Ending = ((), {})
KILLED: Ending = (
    (STOPPED,),
    {"shutdown_reason": "crash", "death": "killed by SIGSEGV", "reported_by_supervisor": 1},
)
RELOADED: Ending = (
    (STOPPING, STOPPED),
    {
        "shutdown_reason": "script_reload",
        "lifetime_request_count": 9000,
        "active_requests_at_exit": 0,
    },
)


Phase = tuple[float, float]


def send(path: str, end: float) -> tuple[int, Phase, Phase]:
    """Sends it all to the socket at `path`, the last of it stamped `end`; returns how many
    datagrams that were, and when the two phases were."""
    after = (end - PHASE_S, end)
    before = (after[0] - GAP_S - PHASE_S, after[0] - GAP_S)
    story = sorted(_story(before[0], after[0]), key=lambda each: each[0])
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
        sending.connect(path)
        for _, datagram in story:
            sending.send(datagram)
    return len(story), before, after


def _story(before: float, after: float) -> Iterator[tuple[float, bytes]]:
    for pid, ends in zip(BEFORE_PIDS, (KILLED, RELOADED), strict=True):
        yield from _life(pid, "shop", before, policy="interval", convoy=True, ends=ends)
    for pid in AFTER_PIDS:
        yield from _life(pid, "shop", after, policy="deadline", convoy=False)
    yield from _life(HOSTILE_PID, HOSTILE, before, policy="interval", convoy=False, load=0.1)


def _life(
    pid: int,
    group: str,
    start: float,
    policy: str,
    convoy: bool,
    load: float = 1.0,
    ends: Ending = NO_END,
) -> Iterator[tuple[float, bytes]]:
    made = random.Random(pid)
    sequence = 0
    who = {"hostname": "web1", "process_group": group, "process_started_stamp": start}

    def datagram(kind: int, stamp: float, **fields: object) -> tuple[float, bytes]:
        nonlocal sequence
        sequence += 1
        return stamp, _native.telemetry_encode(kind, pid, sequence, stamp, {**who, **fields})

    yield datagram(STARTED, start, process_parent_pid=4000)
    for second in range(1, PHASE_S + 1):
        stamp = start + second
        yield datagram(TICK, stamp, **_tick(made, policy, convoy, load, group, stamp, second))
        if second % 15 == 0:
            yield datagram(SLOW, stamp, **_slow(made, group, stamp, second))
            yield datagram(
                GC_EVENT,
                stamp,
                interpreter_name="",
                gc_event_start_stamp=stamp - 0.01,
                gc_event_duration=0.004,
                gc_event_generation=2,
                gc_event_collected=120,
                gc_event_uncollectable=0,
            )
    kinds, fields = ends
    for kind in kinds:
        yield datagram(kind, start + PHASE_S + 1, process_uptime=float(PHASE_S), **fields)


def _tick(
    made: random.Random,
    policy: str,
    convoy: bool,
    load: float,
    group: str,
    stamp: float,
    second: int,
) -> dict[str, Any]:
    pace = load * (0.9 + 0.1 * math.sin(second / 9)) * made.uniform(0.95, 1.05)
    requests = max(1, round((100 if convoy else 190) * pace))
    takes = 6 * requests
    waits = _waits(made, takes, convoy)
    waited = sum(wait * number for wait, number in waits)
    held = min(0.97, 0.003 * requests)
    response = 0.028 if convoy else 0.011
    return {
        "headway_version": "0.1.0",
        "python_version": "3.13.0",
        "gil_mode": "enabled",
        "policy": policy,
        "process_kind": "serve",
        "cpu_cores": 2.0,
        "sample_period": 1.0,
        "telemetry_interval": 1.0,
        "switch_interval": INTERVAL_S,
        "request_count": requests,
        "request_threads_maximum": THREADS,
        "request_threads_started": THREADS,
        "capacity_utilization": min(0.99, 0.8 * pace if load == 1.0 else 0.1),
        "request_threads_busy_time": [
            min(1.0, max(0.0, made.gauss(0.8 if load == 1.0 else 0.1, 0.15)))
            for _ in range(THREADS)
        ],
        "cpu_user_utilization": held * 0.93,
        "cpu_system_utilization": held * 0.07,
        "cpu_utilization": held,
        "memory_rss": 61_000_000 + 40_000 * second,
        "input_bytes_total": 200 * requests,
        "output_bytes_total": 1400 * requests,
        "connections_open": 10,
        "status_2xx_total": requests - 1,
        "status_4xx_total": 1,
        "server_time_histogram": [(0.00004, requests)],
        "queue_time_histogram": _spread(made, 0.0008, requests),
        "application_time_histogram": _spread(made, response * 0.8, requests),
        "request_time_histogram": _spread(made, response, requests),
        "gil_wait_time_histogram": _spread(made, response * (0.55 if convoy else 0.1), requests),
        "gil_held_time_histogram": _spread(made, held / requests, requests, 0.2),
        "request_cpu_time_histogram": _spread(made, held / requests, requests, 0.2),
        "gils": [
            {
                "gil_name": "main",
                "gil_interpreter": 0,
                "gil_wall": 1.0,
                "gil_held": held,
                "gil_handoff": 0.01,
                "gil_idle": 0.99 - held,
                "gil_takes": takes * 2,
                "gil_contended_takes": takes,
                "gil_voluntary_drops": takes,
                "gil_forced_drops": takes // 4,
                "gil_drop_requests": takes // 4,
                "gil_preemptions": 0 if convoy else takes // 3,
                "gil_wait": waits,
                "gil_hold": _spread(made, 0.0004, takes * 2, 1.0),
                "gil_threads": THREADS + 1,
                "gil_switch_interval": INTERVAL_S,
            }
        ],
        "threads": [
            {
                "thread_name": HOSTILE if group == HOSTILE else f"headway-worker-{number}",
                "thread_native_id": 70 + number,
                "thread_gil": "main",
                "thread_held": held / THREADS,
                "thread_waited": waited / THREADS,
                "thread_takes": takes // THREADS,
                "thread_contended_takes": takes // THREADS,
                "thread_forced_drops": takes // 20,
                "thread_preemptions": 0,
            }
            for number in range(1 if group == HOSTILE else THREADS)
        ],
        "endpoints": [
            _endpoint(
                made, name, max(1, round(requests * share)), held * of_held, response * slower
            )
            for name, share, of_held, slower in (
                [(f"/{HOSTILE}", 1.0, 1.0, 1.0)]
                if group == HOSTILE
                else [
                    ("/recommend/<int:product>", 0.1, 0.8, 3.0),
                    ("/product/<int:product>", 0.6, 0.15, 1.0),
                    ("/", 0.3, 0.05, 0.9),
                ]
            )
        ],
        "interpreters": [
            {
                "interpreter_row_name": "",
                "interpreter_requests": requests,
                "interpreter_errors": 0,
                "interpreter_application": response * 0.8 * requests,
                "interpreter_gil_wait": waited,
                "interpreter_gil_held": held,
                "interpreter_own_gil": 0,
            }
        ],
        "holds": [
            {
                "hold_stamp": stamp - 0.5,
                "hold_duration": 0.142,
                "hold_thread": HOSTILE if group == HOSTILE else "headway-worker-2",
                "hold_native_id": 72,
                "hold_gil": "main",
                "hold_waited": 0.12,
                "hold_cpu": 0.115,
                "hold_stack": HOSTILE if group == HOSTILE else STACK,
                "hold_endpoint": "/recommend/<int:product>",
            }
        ]
        if second % 20 == 0
        else [],
        **_lines(group, convoy, second),
        "gcs": [
            {
                "gc_interpreter": "",
                "gc_pauses_generation0": 3,
                "gc_pauses_generation1": 1,
                "gc_pauses_generation2": 0,
                "gc_pause": _spread(made, 0.0004, 4),
                "gc_collected_total": 40,
                "gc_uncollectable_total": 0,
            }
        ],
    }


def _lines(group: str, convoy: bool, second: int) -> dict[str, Any]:
    """Lines by their numbers, and their stacks. Names come with the first of them, and again."""
    callers = [("respond", "/srv/shop/web.py:77"), ("page", "/srv/shop/shop.py:9")]
    leaves = [
        ("score", "/srv/shop/recommendations.py:41", "/recommend/<int:product>"),
        ("page", "/srv/shop/shop.py:9", "/"),
    ]
    if group == HOSTILE:
        callers = [(HOSTILE, f"/{HOSTILE}:2")] * 2
        leaves = [(HOSTILE, f"{HOSTILE}:1", f"/{HOSTILE}")]
    fields = ("line_function", "line_place", "line_endpoint")
    rows = [
        {"line_number": number, **dict(zip(fields, leaf, strict=True))}
        for number, leaf in enumerate(leaves, 16)
    ]
    paths = [[*callers, leaves[0]], [callers[0], *leaves[1:]]][: len(leaves)]
    calls: dict[tuple[Any, ...], dict[str, Any]] = {}
    innermost = []
    for path in paths:
        caller: tuple[Any, ...] = ()
        texts = [*(dict(zip(fields, call[:2], strict=False)) for call in path)]
        for text in [*texts, {"line_endpoint": path[-1][2]}]:
            key = (*caller, *text.values())
            call = calls.setdefault(key, {"call_number": len(calls) + 1, **text})
            if caller:
                call["call_parent"] = calls[caller]["call_number"]
            caller = key
        innermost.append(calls[caller]["call_number"])
    times = [800_000 if convoy else 40_000, *[30_000] * (len(rows) - 1)]
    is_named = second % 60 == 1
    return {
        "line_names": rows if is_named else [],
        # 1 is for handoffs.
        "line_numbers": [*(row["line_number"] for row in rows), 1],
        "line_times": [*times, 10_000],
        "calls": list(calls.values()) if is_named else [],
        "stack_numbers": innermost,
        "stack_times": times,
    }


def _waits(made: random.Random, takes: int, convoy: bool) -> Waits:
    """Of contended takes: with a convoy they gather just above the interval's multiples."""
    waits = []
    for _ in range(takes):
        missed = made.choices(range(6), (45, 28, 14, 7, 4, 2))[0] if convoy else 0
        short_s = made.lognormvariate(math.log(3e-5), 1.1)
        waits.append((short_s if missed == 0 else missed * INTERVAL_S + 6e-5 + short_s, 1))
    return waits


def _spread(made: random.Random, median_s: float, number: int, width: float = 0.5) -> Waits:
    return [(made.lognormvariate(math.log(median_s), width), 1) for _ in range(number)]


def _endpoint(
    made: random.Random, name: str, requests: int, held: float, response: float
) -> dict[str, Any]:
    return {
        "endpoint_name": name,
        "endpoint_is_route": 1,
        "endpoint_requests": requests,
        "endpoint_errors": 0,
        "endpoint_response": _spread(made, response, requests),
        "endpoint_gil_wait": _spread(made, response / 3, requests),
        "endpoint_gil_held": held,
        "endpoint_application": response * requests * 0.8,
        "endpoint_cpu": held,
        "endpoint_application_group": "",
    }


def _slow(made: random.Random, group: str, stamp: float, second: int) -> dict[str, Any]:
    is_hostile = group == HOSTILE
    return {
        "slow_record_state": 1,
        "slow_start_stamp": stamp - 1.5,
        "slow_duration": 1.2 + made.random() / 4,
        "slow_thread_id": second,
        "slow_log_id": f"log-{second}",
        "slow_method": "GET",
        "slow_scheme": "http",
        "slow_hostname": HOSTILE if is_hostile else "shop.example",
        "slow_script_name": "",
        "slow_path_info": f"/{HOSTILE}" if is_hostile else f"/recommend/{second}",
        "slow_status": 200,
        "slow_server_time": 0.0001,
        "slow_queue_time": 0.05,
        "slow_application_time": 1.1,
        "slow_gil_wait_time": 0.5,
        "slow_gil_wait_count": 44,
        "slow_gil_held_time": 0.4,
        "slow_cpu_user_time": 0.4,
        "slow_output_bytes": 8192,
        "slow_stack": HOSTILE if is_hostile else STACK,
        "slow_endpoint": "/recommend/<int:product>",
    }
