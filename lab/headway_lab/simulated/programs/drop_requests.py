"""How long a thread that computes takes to answer a drop request, and a GIL to change hands.

    drop_requests.py SWITCH_INTERVAL_US COUNT MILLISECONDS

The GIL meter tells the longest answer of a thread, so each of COUNT threads answers one request.
Then two threads compute for so long, and the meter measures the GIL's time between a drop and the
next take while a thread waits.
"""

from __future__ import annotations

import sys
import threading
import time

import window
from computation import Computation, add_and_subtract

from headway import _native, gil


class Holder:
    """A thread that computes from `go` until it is stopped."""

    def __init__(self) -> None:
        self._go = threading.Lock()
        self._go.acquire()
        self._stopping = False
        self._thread = threading.Thread(target=self._compute)
        self._thread.start()

    def answer_ns(self) -> int | None:
        """None if it was asked for something else too, or not at all."""
        self._go.release()
        # The holder is to have the GIL when this thread wants it back.
        time.sleep(0.002)
        counters = _native.gil_snapshot()
        assert counters is not None
        rows = [row for row in counters["threads"] if row["native_id"] == self._thread.native_id]
        self._stopping = True
        self._thread.join()
        once = len(rows) == 1 and rows[0]["forced_drops"] == 1
        return rows[0]["longest_answer_ns"] if once else None

    def _compute(self) -> None:
        self._go.acquire()
        while not self._stopping:
            add_and_subtract()


def handoffs(milliseconds: int) -> dict[str, float]:
    """The change of the GIL report while two threads compute."""
    computation = Computation(2)
    computation.start()
    before = gil.snapshot()
    time.sleep(milliseconds / 1e3)
    found = (gil.snapshot() - before).to_dict()["gils"][0]
    computation.stop()
    return {"handoff_ns": found["handoff_s"] * window.NS, "handoffs": found["contended_takes"]}


def main() -> None:
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        sys.exit("this interpreter has no GIL")
    interval_us, count, milliseconds = map(int, sys.argv[1:])
    sys.setswitchinterval(interval_us / 1e6)
    gil.install()
    answers_ns = [Holder().answer_ns() for _ in range(count)]
    found = handoffs(milliseconds)
    window.answer(answers_ns=[ns for ns in answers_ns if ns is not None], **found)


if __name__ == "__main__":
    main()
