"""Copies lists, which takes and drops a reference for each item, and says what such a pair takes.

list_copies.py THREADS one|own SECONDS

The items of a list are one object: the same in all lists, made by the main thread, or each list's
own, made by the thread that copies it.
"""

from __future__ import annotations

import sys
import threading
import time

import window
from bytecodes import bytecode_ns

ITEMS = 10_000
COPIES_BETWEEN_LOOKS = 10


class Copying:
    """A thread, how many pairs it counted, some however late it comes, and in how much CPU time."""

    def __init__(self, shared: object | None) -> None:
        self.pairs = 0
        self.cpu_ns = 0
        self._shared = shared
        self._end_ns = 0
        self._thread = threading.Thread(target=self._copy)

    def start(self, end_ns: int) -> None:
        self._end_ns = end_ns
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _copy(self) -> None:
        items = [object() if self._shared is None else self._shared] * ITEMS
        began_ns = time.thread_time_ns()
        while True:
            for _ in range(COPIES_BETWEEN_LOOKS):
                items.copy()
            self.pairs += ITEMS * COPIES_BETWEEN_LOOKS
            if time.monotonic_ns() >= self._end_ns:
                break
        self.cpu_ns = time.thread_time_ns() - began_ns


def main() -> None:
    threads, shared, seconds = int(sys.argv[1]), sys.argv[2] == "one", float(sys.argv[3])
    the_object = object() if shared else None
    copying = [Copying(the_object) for _ in range(threads)]
    window.say()
    window.sleep_until(window.hear_window().begin_ns)
    a_bytecode_ns = bytecode_ns(seconds)
    end_ns = time.monotonic_ns() + round(seconds * window.NS)
    for each in copying:
        each.start(end_ns)
    for each in copying:
        each.join()
    pairs = sum(each.pairs for each in copying)
    window.answer(
        cpu_ns=sum(each.cpu_ns for each in copying) / pairs,
        bytecode_ns=a_bytecode_ns,
    )


if __name__ == "__main__":
    main()
