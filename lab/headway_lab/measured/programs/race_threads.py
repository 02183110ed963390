"""Adds one, often and in several threads, to one number, and says how many additions were lost.

    race_threads.py FORM THREADS ADDITIONS SWITCH_INTERVAL_S

A run is ADDITIONS by each thread, all of them let go at once. There are runs until the window ends.
FORM is how one is added.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import window

x = 0
counts = {"k": 0}
lock = threading.Lock()
text = "1"


class Counter:
    def __init__(self) -> None:
        self.x = 0


class Guarded:
    """A number behind a property."""

    def __init__(self) -> None:
        self._x = 0

    @property
    def x(self) -> int:
        return self._x

    @x.setter
    def x(self, value: int) -> None:
        self._x = value


counter = Counter()
guarded = Guarded()


def one() -> int:
    return 1


# The published function, and its variants. Each has a loop of its own, or there would be a call in
# all of them.


def add_to_global(additions: int) -> None:
    global x
    for _ in range(additions):
        x += 1


def add_to_attribute(additions: int) -> None:
    for _ in range(additions):
        counter.x += 1


def add_to_item(additions: int) -> None:
    for _ in range(additions):
        counts["k"] += 1


def add_to_property(additions: int) -> None:
    for _ in range(additions):
        guarded.x += 1


def add_result_of_python(additions: int) -> None:
    global x
    for _ in range(additions):
        x += one()


def add_result_of_c(additions: int) -> None:
    global x
    for _ in range(additions):
        x += int(text)


def add_with_lock(additions: int) -> None:
    global x
    for _ in range(additions):
        with lock:
            x += 1


FORMS: dict[str, Callable[[int], None]] = {
    "x += 1": add_to_global,
    "obj.x += 1": add_to_attribute,
    "d[k] += 1": add_to_item,
    "obj.property += 1": add_to_property,
    "x += f()": add_result_of_python,
    "x += int(s)": add_result_of_c,
    "with lock: x += 1": add_with_lock,
}


def take_sum() -> int:
    """The sum of all forms of the counter since the last call; sets them to 0."""
    global x
    found = x + counter.x + counts["k"] + guarded.x
    x = counter.x = counts["k"] = guarded.x = 0
    return found


class Race:
    """Threads that run until the window is over. The counts are written by the thread that reaches
    the barrier last, while all others wait there."""

    def __init__(self, add: Callable[[int], None], threads: int, additions: int) -> None:
        self.lost = self.runs_that_lost = 0
        # The barrier is first reached before anything was added.
        self.runs = -1
        self._add = add
        self._additions = additions
        self._expected = threads * additions
        self._end_ns = 0
        self._is_over = False
        self._barrier = threading.Barrier(threads, action=self._end_run)
        self._threads = [
            threading.Thread(target=self._run, name=f"race-{index}") for index in range(threads)
        ]

    def take_place(self, end_ns: int) -> None:
        self._end_ns = end_ns
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        self._barrier.wait()
        while not self._is_over:
            self._add(self._additions)
            self._barrier.wait()

    def _end_run(self) -> None:
        lost = self._expected - take_sum()
        self.runs += 1
        if self.runs > 0:
            self.lost += lost
            self.runs_that_lost += lost > 0
            self._is_over = time.monotonic_ns() >= self._end_ns


def main() -> None:
    form, threads, additions, switch_interval_s = sys.argv[1:]
    sys.setswitchinterval(float(switch_interval_s))
    race = Race(FORMS[form], int(threads), int(additions))
    window.say()
    race.take_place(window.hear_window().end_ns)
    window.answer(
        lost=race.lost,
        runs=race.runs,
        runs_that_lost=race.runs_that_lost,
        additions=race.runs * int(threads) * int(additions),
    )


if __name__ == "__main__":
    main()
