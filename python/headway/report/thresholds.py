"""The thresholds of the diagnosis in one table, each with its reason.

docs/telemetry.md has the same table for users, and a test compares both. The report of a program
uses some of the thresholds, so this module imports nothing.
"""

from __future__ import annotations


class Threshold:
    """A threshold: `value` in `unit`. A "share" is a part of one."""

    __slots__ = ("meaning", "reason", "unit", "value")

    def __init__(self, value: float, unit: str, meaning: str, reason: str) -> None:
        self.value = value
        self.unit = unit
        self.meaning = meaning
        self.reason = reason


ENOUGH_REQUESTS = Threshold(
    30,
    "requests",
    "fewer give no verdict on requests",
    "of 30 requests 3 lie above the 90th percentile, and a share is known to a fifth",
)
ENOUGH_TAKES = Threshold(
    100,
    "takes",
    "fewer takes of the GIL give no verdict on a program without requests",
    "a share of 100 takes is known to a tenth",
)
IDLE_BUSY = Threshold(
    0.05, "share", "less of its threads and cores in use is idle", "what a health check needs"
)
HARDLY_WAITING = Threshold(
    0.01,
    "threads",
    "a program with fewer threads that wait on average hardly waits",
    "one thread that waits for a hundredth of the time",
)
LITTLE_WAITING = Threshold(
    0.05,
    "threads",
    "fewer that wait for the GIL on average are no convoy, and no hold of less than a second "
    "counts",
    "all their waiting is a twentieth of one thread's time",
)
GIL_FULL = Threshold(
    0.8,
    "share",
    "a GIL that is held, or on its way from one thread to the next, for more is full",
    "with random arrivals the queue at four fifths is four long, and grows without bound above",
)
THREADS_WAIT = Threshold(
    0.5,
    "threads",
    "so many threads wait for the GIL on average where it is what limits",
    "a single thread that fills its GIL has nobody to wait for it: 0",
)
WHOLE_INTERVALS = Threshold(
    0.8,
    "switch intervals",
    "waits and holds from here on count as whole switch intervals",
    "a drop request comes after one interval; the kernel wakes up early by no more",
)
CONVOY_TIME = Threshold(
    0.5,
    "share",
    "of the time waited must lie in whole switch intervals in a convoy",
    "else most waiting ends because the holder dropped the GIL by itself",
)
CONVOY_HELD = Threshold(
    0.3,
    "share",
    "of the time held must lie in holds of whole switch intervals in a convoy",
    "else the waiters are many, but nobody keeps them",
)
CONVOY_WORK = Threshold(
    0.5,
    "switch intervals",
    "half of the requests hold the GIL for less in a convoy",
    "requests that compute for a whole interval wait for their own kind, which is gil-bound",
)
LONG_HOLD_INTERVALS = Threshold(
    4,
    "switch intervals",
    "a thread that waited for one hold so long was not heard",
    "Python code answers a drop request after one interval, within microseconds",
)
LONG_HOLD_S = Threshold(
    0.05, "s", "and at least so long", "shorter ones may be the kernel keeping the holder waiting"
)
LONG_HOLD_SHARE = Threshold(
    0.1,
    "share",
    "of all waiting must be for such holds",
    "else they are rare beside what else is waited for",
)
C_CODE_CPU_S = Threshold(
    0.005,
    "s",
    "CPU time after a drop request shows a call into C code, whose holds count from four switch "
    "intervals on, also where these are short",
    "Python code answers within microseconds; less may be the kernel's work or a hypervisor's",
)
LONG_HOLD_CPU = Threshold(
    0.5,
    "of the wait",
    "CPU time after a drop request is a call into C code",
    "Python code answers within microseconds of CPU time; one without a processor uses none",
)
LONG_HOLD_ALONE_S = Threshold(
    1, "s", "a single wait so long is named whatever its share", "users notice a second"
)
SLOW_ANSWER_S = Threshold(
    0.01,
    "s",
    "a program's report has a line on a thread that kept the GIL so long after a request",
    "the kernel runs other programs for a few milliseconds now and then",
)
LOCK_WAIT_S = Threshold(
    0.05,
    "s",
    "without a GIL, shorter waits for a lock or an event are waits for a contended lock",
    "CPython waits for both in the same way; threads that have nothing to do mostly wait longer",
)
THREADS_PARKED = Threshold(
    0.5,
    "threads",
    "so many wait on average for contended locks, or because the world is stopped, where these are "
    "what limits",
    "half of a core that could have been in use",
)
PARKED_SHARE = Threshold(
    0.25,
    "share",
    "of the time of threads that compute or wait so must be these waits",
    "without the waits the threads would compute a third more",
)
LOCK_CPU = Threshold(
    0.1,
    "cores",
    "less CPU time is no lock contention",
    "then threads wait for something outside of the process",
)
THROTTLED = Threshold(
    0.05,
    "share",
    "of the cgroup's periods in which it was throttled",
    "each stops all threads, the holder of the GIL too, for up to 100 ms",
)
THROTTLED_BADLY = Threshold(0.25, "share", "likewise, where it is critical", "p95 is hit for sure")
AT_LIMIT = Threshold(
    0.95,
    "share",
    "of the cgroup's CPU limit in use",
    "what comes on top is throttled",
)
CORES_FULL = Threshold(
    0.9,
    "share",
    "of the cores that the processes may use are in use by them",
    "the rest goes to the kernel's own work and to imbalance",
)
THREADS_FULL = Threshold(
    0.9,
    "share",
    "of the worker threads are busy",
    "with random arrivals a request then waits for a thread more often than not",
)
THREADS_ALL_BUSY = Threshold(
    0.98,
    "share",
    "of the worker threads are busy, so that no queue is needed as evidence",
    "a queue before the listener is not seen by any server",
)
QUEUE_SHARE = Threshold(
    0.25,
    "of application time",
    "waited for a thread (95th percentile) is a queue",
    "less is within what one request differs from another",
)
QUEUE_S = Threshold(0.005, "s", "and at least so long", "less is scheduling")
AWAY = Threshold(
    0.7,
    "share",
    "of application time spent neither on a core nor waiting for the GIL is I/O-bound",
    "then more cores, processes or GILs change little",
)
CPU_OF_A_GIL = Threshold(
    0.75,
    "cores",
    "mod_wsgi only: a process of one GIL that uses less is not held up by it",
    "the GIL can be full only while somebody computes",
)
CPU_ABOVE_A_GIL = Threshold(
    1.15,
    "cores",
    "mod_wsgi only: a process that uses more has no GIL, or computes outside of it",
    "one GIL carries one core of Python, and the server's own work a little beside it",
)
WAIT_OF_APPLICATION = Threshold(
    0.15,
    "share",
    "mod_wsgi only: of application time were seen as waits for the GIL",
    "mod_wsgi's own measure; it sees only waits at its own calls",
)
WORTH_TRYING = Threshold(
    1.1,
    "times",
    "an advice that is computed to bring less is not given",
    "it would drown in the noise of a measurement",
)

TABLE = {name: value for name, value in list(globals().items()) if isinstance(value, Threshold)}
