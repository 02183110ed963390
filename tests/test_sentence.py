"""The one line of plain words: what it says, and that it is true to the figures."""

from __future__ import annotations

from typing import Any

import pytest
from made_reports import convoy, decoded, histogram, report, thread

from headway.report import sentence

TURNS = report(
    [thread(f"hog-{n}", [0.0102] * 60, [0.005] * 60, forced_drops=60) for n in range(3)], 0.9
)
LONG_HOLDS = report(
    [
        thread(
            "MainThread",
            [],
            [0.05] * 20,
            forced_drops=20,
            longest_unanswered_s=0.045,
            longest_unanswered_cpu_s=0.044,
        ),
        thread("waiter", [0.0495] * 20, [1e-5] * 20),
    ],
    1.01,
    drop_requests=180,
)


def free_threaded(cpu_s: float, **waits: list[float]) -> dict[str, Any]:
    """The report of a program without a GIL, watched for a second. `waits` are the durations for
    locks and events by thread; those of a thread "suspended" are waits for a stopped world."""
    none = histogram([])
    rows = [
        {
            "name": name,
            "native_id": None,
            "alive": True,
            "folded": 0,
            "parked": none if name == "suspended" else histogram(waits_s),
            "suspended": histogram(waits_s) if name == "suspended" else none,
            "stopping": {"count": 0, "sum_s": 0.0},
        }
        for name, waits_s in waits.items()
    ]
    locks = [wait_s for name, waits_s in waits.items() if name != "suspended" for wait_s in waits_s]
    parks = {
        "cpu_s": cpu_s,
        "parked": histogram(locks),
        "suspended": histogram(waits.get("suspended", [])),
        "stopping": {"count": 0, "sum_s": 0.0},
        "threads": rows,
    }
    return report([], 1.0, gil="disabled", free_threading=parks)


CASES = {
    "convoy": (
        convoy(),
        "The convoy effect: echo waited 684 ms of 725 ms, in 100 waits of about one switch "
        "interval (5 ms), for a GIL that hog held.",
    ),
    "convoy at another interval": (
        convoy(0.0005),
        "The convoy effect: echo waited 68.5 ms of 72.5 ms, in 100 waits of about one switch "
        "interval (500 µs), for a GIL that hog held.",
    ),
    "turns": (
        TURNS,
        "The GIL limits what gets done: hog-0 waited 612 ms of 900 ms, in 60 waits of about 2 "
        "switch intervals of 5 ms, while 3 threads held the GIL most. No policy helps; more "
        "processes do.",
    ),
    "long holds": (
        LONG_HOLDS,
        "Long holds: MainThread kept the GIL for up to 45 ms after it was asked to drop it, 100 % "
        "of the waiting; waiter waited 990 ms of 1.01 s. No policy interrupts such a call: make it "
        "shorter, or move it to another process.",
    ),
    # The meter divides each wait: here, and in the next four cases.
    "a convoy that a policy ends": (
        report(
            [
                thread("hog", [1e-4] * 90, [0.005] * 140, forced_drops=100, preventable_s=0.0),
                thread("echo", [0.005] * 100, [1e-5] * 100, preventable_s=0.48),
            ],
            0.7,
        ),
        "The convoy effect: echo waited 500 ms of 700 ms, in 100 waits of about one switch "
        "interval (5 ms), for a GIL that hog held. The policy priority would prevent 480 ms of "
        "509 ms waited.",
    ),
    # Its waits under the policy are shorter than the switch interval.
    "short work that goes first and waits all the same": (
        report(
            [
                thread("hog", [1e-4] * 90, [0.001] * 400, forced_drops=100, preventable_s=0.0),
                thread("echo", [0.0004] * 300, [1e-5] * 300, preventable_s=0.1),
            ],
            0.7,
            policy="priority",
        ),
        "Waiting: echo waited 120 ms of 700 ms, in 300 waits, most of it in waits shorter than the "
        "switch interval (5 ms); the GIL was held 58 % of the time.",
    ),
    "a convoy of threads that do both": (
        report(
            [
                thread("pool-1", [0.005] * 80, [0.005] * 60, preventable_s=0.05),
                thread("pool-2", [0.005] * 70, [0.005] * 60, preventable_s=0.15),
            ],
            0.7,
        ),
        "The GIL limits what gets done: pool-1 waited 400 ms of 700 ms, in 80 waits of about one "
        "switch interval (5 ms), while 2 threads held the GIL most. Besides, pool-2 waited 150 ms "
        "behind CPU-bound threads, with short work.",
    ),
    "equal work": (
        report(
            [
                thread("page-1", [0.005] * 70, [0.005] * 60, preventable_s=0.01),
                thread("page-2", [0.005] * 70, [0.005] * 60, preventable_s=0.01),
            ],
            0.7,
        ),
        "The GIL limits what gets done: page-1 waited 350 ms of 700 ms, in 70 waits of about one "
        "switch interval (5 ms), while 2 threads held the GIL most. No policy helps; more "
        "processes do.",
    ),
    "a convoy with some long holds": (
        report(
            [
                thread(
                    "compute",
                    [],
                    [0.005] * 160 + [0.1] * 2,
                    forced_drops=160,
                    longest_unanswered_s=0.095,
                    longest_unanswered_cpu_s=0.09,
                    preventable_s=0.0,
                ),
                thread(
                    "MainThread",
                    [0.005] * 160 + [0.1] * 2,
                    [1e-5] * 162,
                    preventable_s=0.75,
                    unanswered_s=0.2,
                ),
            ],
            1.0,
        ),
        "The convoy effect: MainThread waited 1 s of 1 s, in 162 waits of about one switch "
        "interval (5 ms), for a GIL that compute held. The policy priority would prevent 750 ms of "
        "1 s waited. Besides, compute kept the GIL for up to 95 ms after it was asked to drop it, "
        "20 % of the waiting.",
    ),
    "garbage collection": (
        report(
            [
                thread(
                    "work",
                    [],
                    [0.1] * 8,
                    longest_unanswered_s=0.095,
                    longest_unanswered_cpu_s=0.09,
                    preventable_s=0.0,
                    collections_s=[0.09] * 7,
                ),
                thread(
                    "MainThread",
                    [0.1] * 8,
                    [1e-5] * 8,
                    preventable_s=0.05,
                    unanswered_s=0.1,
                    collection_s=0.63,
                ),
            ],
            1.0,
        ),
        "Garbage collection: work collected garbage for 630 ms, up to 90 ms at a time, 79 % of the "
        "waiting; MainThread waited 800 ms of 1 s. No policy helps; gc.freeze() after the start or "
        "a higher gc.set_threshold() does. Besides, work kept the GIL for up to 95 ms after it was "
        "asked to drop it, 12 % of the waiting.",
    ),
    "other programs on the cores": (
        {
            **report([thread("alone", holds_s=[1.0] * 2)], 2.1),
            "machine": {"cores": 2, "busy_s": 4.0, "own_s": 0.6, "cpu_s": 0.5},
        },
        "Other programs take the cores: they used 1.6 of 2 cores, and this one ran for 500 ms of "
        "the 2 s in which one of its threads had the GIL or was next.",
    ),
    "other programs, and a convoy": (
        {
            **report(
                [
                    thread("hog", [1e-4] * 90, [0.005] * 140, forced_drops=100, preventable_s=0.0),
                    thread("echo", [0.005] * 100, [1e-5] * 100, preventable_s=0.3),
                ],
                0.7,
            ),
            "machine": {"cores": 2, "busy_s": 1.4, "own_s": 0.3, "cpu_s": 0.3},
        },
        "Other programs take the cores: they used 1.6 of 2 cores, and this one ran for 300 ms of "
        "the 701 ms in which one of its threads had the GIL or was next. Besides, echo waited 300 "
        "ms behind CPU-bound threads, with short work. The policy priority would prevent 300 ms of "
        "509 ms waited.",
    ),
    "other programs, and a thread that sleeps with the GIL": (
        {
            **report(
                [
                    thread(
                        "sleeper",
                        [],
                        [0.2] * 5,
                        longest_unanswered_s=0.195,
                        longest_unanswered_cpu_s=1e-5,
                    ),
                    thread("waiter", [0.199] * 5, [1e-5] * 5),
                ],
                1.01,
            ),
            "machine": {"cores": 2, "busy_s": 2.02, "own_s": 0.1, "cpu_s": 0.05},
        },
        "Long holds: sleeper kept the GIL for up to 195 ms after it was asked to drop it, 100 % of "
        "the waiting; waiter waited 995 ms of 1.01 s. No policy interrupts such a call: make it "
        "shorter, or move it to another process.",
    ),
    "busy cores of which enough is left": (
        {
            **report([thread("alone", holds_s=[1.0] * 2)], 2.1),
            "machine": {"cores": 2, "busy_s": 4.0, "own_s": 1.6, "cpu_s": 1.6},
        },
        "No waiting: every take found the GIL free; the GIL was held 95 % of the time, for up to "
        "1 s at a time.",
    ),
    "short waits": (
        report(
            [thread("a", [0.001] * 90, [0.001] * 90), thread("b", [0.0009] * 90, [0.001] * 90)], 0.2
        ),
        "The GIL limits what gets done: a waited 90 ms of 200 ms, in 90 waits, most of it in waits "
        "shorter than the switch interval (5 ms), while 2 threads held the GIL most. No policy "
        "helps; more processes do.",
    ),
    "some waiting": (
        report([thread("a", [0.001] * 50, [0.001] * 50), thread("b", holds_s=[0.001] * 50)], 0.2),
        "Waiting: a waited 50 ms of 200 ms, in 50 waits, most of it in waits shorter than the "
        "switch interval (5 ms); the GIL was held 50 % of the time.",
    ),
    "a little": (
        report([thread("a", [0.006]), thread("b", holds_s=[0.02])], 0.3),
        "A little waiting: a waited 6 ms of 300 ms, the longest wait was 6 ms; the GIL was held "
        "7 % of the time.",
    ),
    "hardly any": (
        report([thread("a", [0.0001] * 3), thread("b", holds_s=[0.5])], 1.0),
        "Hardly any waiting: a waited 300 µs of 1 s, the longest wait was 100 µs; the GIL was held "
        "50 % of the time.",
    ),
    "none": (
        report([thread("MainThread", holds_s=[0.5])], 2.0),
        "No waiting: every take found the GIL free; the GIL was held 25 % of the time, for up to "
        "500 ms at a time.",
    ),
    "a hold that had not ended": (
        report(
            [
                thread("work", holds_s=[0.5], holding_now_s=4.0),
                thread("MainThread", holds_s=[0.5], waiting_now_s=3.9),
            ],
            6.0,
        ),
        "A long hold that had not ended: work had kept the GIL for 4 s; MainThread had waited "
        "3.9 s for it.",
    ),
    "a hold in progress that nobody waits for": (
        report([thread("MainThread", holds_s=[0.5], holding_now_s=4.0)], 2.0),
        "No waiting: every take found the GIL free; the GIL was held 25 % of the time, for up to "
        "500 ms at a time.",
    ),
    "disabled": (
        report([], 2.0, gil="disabled"),
        "The GIL is disabled (free-threaded): there is nothing to wait for.",
    ),
    "disabled, on for a while": (
        report([thread("MainThread", holds_s=[0.002])], 2.0, gil="disabled"),
        "The GIL is disabled (free-threaded): there is nothing to wait for; it came on for 2 ms in "
        "all.",
    ),
    "lock contention": (
        free_threaded(1.0, a=[0.002] * 400, b=[0.002] * 300, main=[1.0]),
        "Lock contention limits what gets done: 1.4 threads waited on average for locks, or for "
        "events as short, less than 50 ms at a time; a, with 800 ms, waited most.",
    ),
    "a stopped world": (
        free_threaded(1.0, suspended=[0.002] * 400, b=[0.002] * 300),
        "Stopped worlds limit what gets done: 0.8 threads stood still on average, or waited until "
        "others did; suspended, with 800 ms, lost most.",
    ),
    "waits for work": (
        free_threaded(1.0, a=[0.08] * 10, b=[0.002] * 200),
        "The GIL is disabled (free-threaded): there is nothing to wait for. For locks and events a "
        "waited most: 800 ms, in 10 waits.",
    ),
    "no takes": (report([], 1.0), "No thread took the GIL while it was watched."),
    "interval unknown": (
        report([thread("a", [0.5] * 2), thread("b", holds_s=[1.0])], 1.0, switch_interval_s=None),
        "The GIL limits what gets done: a waited 1 s of 1 s, in 2 waits, while b held the GIL "
        "most. No policy helps; more processes do.",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_it_says(case: str) -> None:
    made, wanted = CASES[case]
    assert sentence.sentence(decoded(made)) == wanted


def test_taken_cores_are_told_without_a_thread() -> None:
    """As in a report whose threads found no row."""
    made = {
        **report([thread("a", [0.1], holds_s=[1.0] * 2)], 2.1),
        "threads": [],
        "machine": {"cores": 2, "busy_s": 4.0, "own_s": 0.6, "cpu_s": 0.5},
    }
    assert sentence.sentence(decoded(made)).startswith("Other programs take the cores: ")


def test_the_gil_with_most_waiting_is_spoken_of() -> None:
    threads = [
        thread("calm", [1e-5], [0.1]),
        thread("busy", [0.006] * 50, [1e-5] * 60, gil=1),
        thread("hog", [1e-4] * 50, [0.006] * 60, forced_drops=50, gil=1),
    ]
    assert sentence.sentence(decoded(report(threads, 0.4))).startswith(
        "The convoy effect: busy waited 300 ms"
    )


def test_names_are_made_printable() -> None:
    made = report([thread("a\x1b[31m" + "b" * 99, [0.5] * 2), thread("\n", holds_s=[1.0])], 1.0)
    assert sentence.sentence(decoded({**made, "switch_interval_s": None})) == (
        rf"The GIL limits what gets done: a\x1b[31m{'b' * 17}~{'b' * 13} waited 1 s of 1 s, in 2 "
        r"waits, while \n held the GIL most. No policy helps; more processes do."
    )


def unanswered(policy: str, *longest_s: float | None, **changes: Any) -> str:
    threads = [thread(f"t{n}", longest_unanswered_s=each) for n, each in enumerate(longest_s)]
    return sentence.unanswered(decoded(report(threads, 1.0, policy=policy, **changes)))


def test_a_long_answer_is_told_with_what_is_known_of_its_cause() -> None:
    kept = "t1 kept the GIL for 48 ms after it was asked to drop it"
    assert unanswered("priority", 0.002, 0.048, None) == f"{kept}."

    def with_cpu(*cpu_s: float | None) -> str:
        threads = [
            thread(
                name,
                longest_unanswered_s=kept_s,
                cpu_in_longest_unanswered_s=each,
                longest_unanswered_cpu_s=each,
                unanswered_with_most_cpu_s=each and kept_s,
            )
            for name, kept_s, each in zip(("t1", "t2"), (0.048, 0.2), cpu_s, strict=True)
        ]
        return sentence.unanswered(decoded(report(threads, 1.0, policy="priority")))

    # A thread that runs C code for certain comes before one that waited longer for a processor.
    assert with_cpu(0.04, 0.0001) == (
        f"{kept} (1 more thread did so too), and used 40 ms of CPU time meanwhile: held by a call "
        "that cannot be preempted (C code)."
    )
    assert with_cpu(None, 0.0001) == (
        "t2 kept the GIL for 200 ms after it was asked to drop it (1 more thread did so too), but "
        "used 100 µs of CPU time meanwhile: it was off the processor, because others ran, or in a "
        "call that blocks and keeps the GIL."
    )
    assert "C code" not in with_cpu(0.004, None)


def test_the_figures_of_a_sentence_are_of_one_hold() -> None:
    """A call that blocks for 75 ms, and one that computes for 40 ms."""

    def told(**changes: float | None) -> str:
        figures = {
            "longest_unanswered_s": 0.075,
            "cpu_in_longest_unanswered_s": 0.0001,
            "longest_unanswered_cpu_s": 0.0395,
            "unanswered_with_most_cpu_s": 0.04,
            **changes,
        }
        return sentence.unanswered(decoded(report([thread("t", **figures)], 1.0)))

    kept = "t kept the GIL for {} after it was asked to drop it, "
    assert told().startswith(kept.format("40 ms") + "and used 39.5 ms of CPU time meanwhile: held")
    # The answer with the most CPU time was not slow.
    short = told(longest_unanswered_cpu_s=0.006, unanswered_with_most_cpu_s=0.007)
    assert short.startswith(kept.format("75 ms") + "but used 100 µs of CPU time meanwhile: it was")
    # A report of a version that did not keep the times together.
    earlier = told(cpu_in_longest_unanswered_s=None, unanswered_with_most_cpu_s=None)
    assert earlier.startswith("t kept the GIL after it was asked to drop it, and used 39.5 ms")


def test_more_threads_that_kept_the_gil_are_counted() -> None:
    several = unanswered("deadline", 0.011, 0.02, 0.03, 0.001)
    assert several.startswith("t2 kept the GIL for 30 ms after it was asked to drop it (2 more thr")


@pytest.mark.parametrize(
    ("policy", "interval_s", "longest_s", "told"),
    [
        ("priority", 0.005, 0.0099, False),
        ("priority", 0.005, 0.01, True),
        ("priority", 1.0, 0.01, True),
        ("interval", 0.005, 0.01, True),
        ("interval", 0.05, 0.099, False),
        ("interval", 0.05, 0.1, True),
        ("interval", 1e-5, 0.0099, False),
        ("interval", None, 0.01, True),
    ],
)
def test_short_answers_are_not_told(
    policy: str, interval_s: float | None, longest_s: float, told: bool
) -> None:
    assert bool(unanswered(policy, longest_s, switch_interval_s=interval_s)) is told


def test_a_policy_is_told_by_what_it_did() -> None:
    assert sentence.scheduling(1, 0.0001, None) == (
        "1 preemption; longest wait: I/O-bound 100 µs, CPU-bound -"
    )


def test_many_threads_are_not_long_holds() -> None:
    """Waits of many intervals come from many threads too: each drop begins an interval anew."""
    threads = [thread(f"hog-{n}", [0.095] * 10, [0.005] * 10, forced_drops=10) for n in range(20)]
    made: dict[str, Any] = report(threads, 1.0, drop_requests=220)
    assert sentence.sentence(decoded(made)).startswith("The GIL limits what gets done: ")
