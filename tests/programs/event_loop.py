"""An event loop with stalls whose causes and durations are known.

    python event_loop.py asyncio|uvloop|trio CAUSE...

Causes: sleep, python, c, thread. Prints as JSON, in seconds, how long the stalls of each cause took
by the program's own clocks, and under "late" the iterations of 20 ms or longer, as the program
itself found them: their number, their sum and its parts.

The loop waits for nothing but a timer whose moments the program sets. So it knows when an iteration
begins, also if its thread cannot run then.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import sys
import threading
import time

STALL_S = 0.3
STALLS = 4
THREAD_S = 2.0
# As Headway's.
LATE_S = 0.02
# A thread that computes and does not run for so long wants the GIL.
GAP_S = 0.02
NS = 1_000_000_000
TFD_TIMER_ABSTIME = 1

has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
# With a loader that keeps the GIL: another thread cannot take it in a call.
libc = ctypes.PyDLL(None, use_errno=True)


class TimerSpec(ctypes.Structure):
    """`struct itimerspec`: the period, and the moment."""

    _fields_ = [(name, ctypes.c_long) for name in ("period_s", "period_ns", "at_s", "at_ns")]


class Timer:
    """A descriptor that can be read from a moment of `time.monotonic_ns` on."""

    def __init__(self):
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self.descriptor = libc.timerfd_create(time.CLOCK_MONOTONIC, flags)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def set(self, at_ns):
        """0 for no moment."""
        moment = TimerSpec(0, 0, *divmod(at_ns, NS))
        libc.timerfd_settime(self.descriptor, TFD_TIMER_ABSTIME, ctypes.byref(moment), None)


class CoreWait:
    """How long the calling thread waits for a core. While it computes, it does not want the GIL
    then: it may have it."""

    def __init__(self):
        try:
            file = f"/proc/self/task/{threading.get_native_id()}/schedstat"
            self._descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a kernel without it
            self._descriptor = -1
        self._last_ns = 0

    def lap(self):
        """The time since the last lap."""
        text = ctypes.create_string_buffer(64)
        libc.pread(self._descriptor, text, 63, 0)
        _, now_ns, *_ = *map(int, text.value.split()), 0, 0
        passed_ns, self._last_ns = now_ns - self._last_ns, now_ns
        return passed_ns / NS


class Ledger:
    """The parts of the iterations, by the program's own clocks.

    `lap` charges the time since the last one to a part, and what is beyond `at_most_s` to
    `elsewhere`: the program needs microseconds for it, or waits for the GIL, if another thread
    computes.
    """

    def __init__(self, causes):
        self.elsewhere = "waited" if "thread" in causes and has_gil else "computed"
        self.stalled = dict.fromkeys((*STALLING, "thread"), 0.0)
        self.core_wait = CoreWait()
        self.late = 0
        self.late_ns = {"computed": 0, "waited": 0, "blocked": 0}
        self._present_ns = dict.fromkeys(self.late_ns, 0)
        self._last_ns = time.monotonic_ns()

    def lap(self, part=None, at_most_s=None):
        """Returns for how long it charges `part`."""
        now_ns = time.monotonic_ns()
        passed_ns = now_ns - self._last_ns
        self._last_ns = now_ns
        charged_ns = passed_ns if at_most_s is None else min(passed_ns, int(at_most_s * NS))
        self._present_ns[part or self.elsewhere] += charged_ns
        self._present_ns[self.elsewhere] += passed_ns - charged_ns
        return charged_ns / NS

    def end_iteration(self):
        if sum(self._present_ns.values()) >= LATE_S * NS:
            self.late += 1
            for part, ns in self._present_ns.items():
                self.late_ns[part] += ns
        self._present_ns = dict.fromkeys(self.late_ns, 0)

    def begin_iteration(self, began_ns):
        self._last_ns = began_ns

    def shown(self):
        late_s = {part: ns / NS for part, ns in self.late_ns.items()}
        if self.elsewhere == "waited":
            self.stalled["thread"] = late_s["waited"]
        total_s = sum(late_s.values())
        late = {"count": self.late, "late_s": total_s}
        late.update((f"{part}_s", s) for part, s in late_s.items())
        return {**self.stalled, "late": late}


def sum_in_c(number):
    return sum(range(number))


def calibrated():
    """An argument with which `sum_in_c` takes about as long as a stall."""
    number = 1_000_000
    began = time.perf_counter()
    sum_in_c(number)
    return int(number * STALL_S / (time.perf_counter() - began))


def compute():
    """A stall that ends by the clock. Returns for how long it computed: while another thread has
    the GIL, its CPU clock stands still."""
    computed_s = 0.0
    last, last_cpu = time.perf_counter(), time.thread_time()
    end = last + STALL_S
    while last < end:
        now, cpu = time.perf_counter(), time.thread_time()
        passed_s, cpu_s = now - last, cpu - last_cpu
        computed_s += cpu_s if passed_s - cpu_s >= GAP_S else passed_s
        last, last_cpu = now, cpu
    return computed_s


async def sleeping(ledger):
    ledger.lap()
    time.sleep(STALL_S)
    # It comes back with the GIL, for which it may have waited.
    at_most_s = STALL_S if ledger.elsewhere == "waited" else None
    ledger.stalled["sleep"] += ledger.lap("blocked", at_most_s)


async def computing(ledger):
    ledger.lap()
    computed_s = compute()
    ledger.stalled["python"] += ledger.lap("computed", computed_s)


async def calling_c(ledger):
    ledger.lap()
    ledger.core_wait.lap()
    began, began_cpu = time.perf_counter(), time.thread_time()
    sum_in_c(number_of_a_stall())
    cpu_s = time.thread_time() - began_cpu + ledger.core_wait.lap()
    # The thread drops the GIL on request as soon as the call of C returns, and does not run then.
    computed_s = cpu_s if time.perf_counter() - began - cpu_s >= GAP_S else None
    ledger.stalled["c"] += ledger.lap("computed", computed_s)


STALLING = {"sleep": sleeping, "python": computing, "c": calling_c}


@functools.cache
def number_of_a_stall():
    return calibrated()


def keep_the_gil(is_over):
    """Calls of C that keep the GIL for half a stall, with pauses."""
    while not is_over.wait(0.05):
        sum_in_c(number_of_a_stall() // 2)


async def main(make_pauses, causes):
    ledger = Ledger(causes)
    timer = Timer()
    wait = make_pauses(timer, ledger)

    async def pause(seconds):
        ledger.lap()
        ledger.end_iteration()
        at_ns = time.monotonic_ns() + int(seconds * NS)
        timer.set(at_ns)
        await wait(at_ns)

    is_over = threading.Event()
    hog = threading.Thread(target=keep_the_gil, args=(is_over,), name="hog")
    if "thread" in causes:
        hog.start()
    for _ in range(STALLS):
        for cause, stall in STALLING.items():
            await pause(0.05)
            if cause in causes:
                await stall(ledger)
    end = time.perf_counter() + (THREAD_S if "thread" in causes else 0)
    while time.perf_counter() < end:
        await pause(0.005)
    is_over.set()
    while hog.is_alive():
        await pause(0.005)
    ledger.lap()
    ledger.end_iteration()
    return ledger


def pauses_of_asyncio(timer, ledger):
    """A descriptor's callback runs in one iteration, the task that waits for it in the next."""
    import asyncio

    loop = asyncio.get_running_loop()
    waiting = None

    def ready():
        began_ns, future = waiting
        ledger.begin_iteration(began_ns)
        timer.set(0)
        ledger.lap()
        ledger.end_iteration()
        future.set_result(None)

    async def wait(at_ns):
        nonlocal waiting
        waiting = at_ns, loop.create_future()
        await waiting[1]
        ledger.lap()

    loop.add_reader(timer.descriptor, ready)
    return wait


def pauses_of_trio(timer, ledger):
    import trio

    async def wait(at_ns):
        await trio.lowlevel.wait_readable(timer.descriptor)
        ledger.begin_iteration(at_ns)
        timer.set(0)
        ledger.lap()

    return wait


def run(kind, causes):
    number_of_a_stall()
    if kind == "trio":
        import trio

        return trio.run(main, pauses_of_trio, causes)
    import asyncio

    if kind == "uvloop":
        import uvloop

        return uvloop.run(main(pauses_of_asyncio, causes))
    return asyncio.run(main(pauses_of_asyncio, causes))


if __name__ == "__main__":
    kinds, causes = sys.argv[1:2], sys.argv[2:]
    if kinds not in (["asyncio"], ["uvloop"], ["trio"]) or not {*STALLING, "thread"} >= {*causes}:
        sys.exit(__doc__)
    print(json.dumps(run(*kinds, causes).shown()))
