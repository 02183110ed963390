"""The thresholds of the diagnosis in one table, each with its reason.

docs/reference/thresholds.md is generated from it. The report of a program uses some of the
thresholds, so this module imports nothing.
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
    "A verdict on requests needs at least this many.",
    "Of 30 requests, 3 lie above the 90th percentile, and a share is known to a fifth.",
)
ENOUGH_TAKES = Threshold(
    100,
    "takes",
    "A verdict on a program without requests needs at least this many takes of the GIL.",
    "A share of 100 takes is known to a tenth.",
)
IDLE_BUSY = Threshold(
    0.05,
    "share",
    "A service that uses less of its threads and cores is idle.",
    "A health check needs about as much.",
)
HARDLY_WAITING = Threshold(
    0.01,
    "threads",
    "A program in which fewer threads wait on average hardly waits.",
    "This is one thread that waits for a hundredth of the time.",
)
LITTLE_WAITING = Threshold(
    0.05,
    "threads",
    "If fewer threads wait for the GIL on average, there is no convoy, and only a hold of a "
    "second or more is named.",
    "All waiting together is a twentieth of one thread's time.",
)
GIL_FULL = Threshold(
    0.8,
    "share",
    "A GIL is full if it is held, or on its way from one thread to the next, for more of the time.",
    "With random arrivals the queue is four long at four fifths, and grows without bound above.",
)
THREADS_WAIT = Threshold(
    0.5,
    "threads",
    "A full GIL is the limit only if at least this many threads wait for it on average.",
    "For a GIL that a single thread fills, no thread waits.",
)
WHOLE_INTERVALS = Threshold(
    0.8,
    "switch intervals",
    "Waits and holds of at least this length count as whole switch intervals.",
    "A drop request comes after one interval, and the kernel wakes threads up no earlier than"
    " this.",
)
PREVENTABLE_SHARE = Threshold(
    0.1,
    "share",
    "There is a convoy if at least this part of all waiting is that of work of less than a "
    "millisecond behind code that computes.",
    "This is what the policy `priority` prevents; less would not be noticed.",
)
CONVOY_TIME = Threshold(
    0.5,
    "share",
    "Where the meter does not divide the waits (mod_wsgi, traces, reports of earlier versions), "
    "in a convoy at least this part of all waiting is in waits of whole switch intervals.",
    "With less, most waits end because the holder drops the GIL by itself.",
)
CONVOY_HELD = Threshold(
    0.3,
    "share",
    "There, at least this part of the time held is in holds of whole switch intervals.",
    "With less, many threads wait, but no thread keeps the GIL from them.",
)
CONVOY_WORK = Threshold(
    0.5,
    "switch intervals",
    "There, half of the requests hold the GIL for less than this.",
    "Requests that compute for a whole interval wait for each other, which is `gil-bound`.",
)
LONG_HOLD_INTERVALS = Threshold(
    4,
    "switch intervals",
    "A long hold is one for which a thread waited at least this long,",
    "Python code answers a drop request after one interval, within microseconds.",
)
LONG_HOLD_S = Threshold(
    0.05,
    "s",
    "and at least this long.",
    "In shorter ones the kernel may have kept the holder off its core.",
)
LONG_HOLD_SHARE = Threshold(
    0.1,
    "share",
    "Long holds, and passes of the garbage collector, are named if waits for them are at least "
    "this part of all waiting.",
    "With less, they are rare among other waits.",
)
C_CODE_CPU_S = Threshold(
    0.005,
    "s",
    "A holder that used this much CPU time after a drop request is in a call into C code. Its"
    " hold is long from four switch intervals on, even if these are shorter than 0.05 s.",
    "Python code answers within microseconds; less may be the kernel's work or a hypervisor's.",
)
LONG_HOLD_CPU = Threshold(
    0.5,
    "of the wait",
    "If the holder used this part of the wait as CPU time after a drop request, the verdict "
    "says that a call into C code keeps the GIL.",
    "Python code answers within microseconds of CPU time, and a thread without a processor "
    "uses none.",
)
LONG_HOLD_ALONE_S = Threshold(
    1,
    "s",
    "A single wait of this length is named, however small its part of all waiting.",
    "Users notice a second.",
)
SLOW_ANSWER_S = Threshold(
    0.01,
    "s",
    "A program's report has a line about a thread that kept the GIL for this long after a "
    "drop request.",
    "The kernel runs other programs for a few milliseconds now and then.",
)
LOOP_LATE_S = Threshold(
    0.1,
    "s",
    "An event loop is named as late if an iteration took this long,",
    "asyncio's debug mode logs callbacks of this length.",
)
LOOP_LATE_SHARE = Threshold(
    0.01,
    "share",
    "or if its late iterations, of 20 ms or what the program says, are at least this part of the"
    " time in which it was watched.",
    "One event in a hundred comes in such an iteration.",
)
LOCK_WAIT_S = Threshold(
    0.05,
    "s",
    "Without a GIL, shorter waits for a lock or an event count as waits for a contended lock.",
    "CPython waits for both in the same way, and threads that have nothing to do mostly wait "
    "longer.",
)
THREADS_PARKED = Threshold(
    0.5,
    "threads",
    "Contended locks, or stopped worlds, are the limit only if at least this many threads "
    "wait for them on average.",
    "This is half of a core that could have been in use.",
)
PARKED_SHARE = Threshold(
    0.25,
    "share",
    "These waits must also be at least this part of the time of threads that compute or wait "
    "in this way.",
    "Without the waits the threads would compute a third more.",
)
LOCK_CPU = Threshold(
    0.1,
    "cores",
    "A process that uses less CPU time has no lock contention.",
    "Its threads wait for something outside of the process.",
)
THROTTLED = Threshold(
    0.05,
    "share",
    "A cgroup that was throttled in this part of its periods is `cpu-limited`.",
    "Each such period stops all threads, the holder of the GIL too, for up to 100 ms.",
)
THROTTLED_BADLY = Threshold(
    0.25,
    "share",
    "If it was throttled in this part of its periods, the verdict is critical.",
    "The 95th percentile is certain to suffer.",
)
AT_LIMIT = Threshold(
    0.95,
    "share",
    "A cgroup that uses this part of its CPU limit is `cpu-limited`.",
    "Any further work is throttled.",
)
CORES_FULL = Threshold(
    0.9,
    "share",
    "Processes that use this part of the cores that they may use are `cpu-bound`.",
    "The rest goes to the kernel's own work and to imbalance.",
)
CORES_OF_OTHERS = Threshold(
    0.25,
    "share",
    "Other programs take the cores if these are full, at least this part of it is theirs,",
    "With less, the program itself fills them.",
)
GIL_NEEDED = Threshold(
    0.1,
    "share",
    "the GIL is held or handed over for at least this part of the time,",
    "A program that hardly needs it is not slowed down by this.",
)
ON_A_CORE = Threshold(
    0.75,
    "share",
    "and the process used less CPU time than this part of that.",
    "The rest was a thread that held the GIL, or was to have it, without a core.",
)
CORE_WAIT_S = Threshold(
    0.1,
    "s",
    "Holds are left out of that time whose holder did not answer a drop request for this long and "
    "used less CPU time than a call into C code does.",
    "Beside some programs that compute, the kernel lets a thread wait for tens of milliseconds. "
    "Such a holder sleeps.",
)
THREADS_FULL = Threshold(
    0.9,
    "share",
    "A service in which this part of the worker threads is busy, and requests queue, is "
    "`saturated`.",
    "With random arrivals a request then waits for a thread more often than not.",
)
THREADS_ALL_BUSY = Threshold(
    0.98,
    "share",
    "A service in which this part of the worker threads is busy is `saturated` even without a"
    " visible queue.",
    "No server sees the queue in front of its listener.",
)
QUEUE_SHARE = Threshold(
    0.25,
    "of application time",
    "Requests queue if the 95th percentile of their waits for a thread is at least this part "
    "of the mean application time,",
    "Less is within the difference between two requests.",
)
QUEUE_S = Threshold(
    0.005,
    "s",
    "and at least this long.",
    "Less is the kernel's scheduling.",
)
AWAY = Threshold(
    0.7,
    "share",
    "A service whose requests spend this part of their application time neither on a core nor"
    " waiting for the GIL is `io-bound`.",
    "More cores, processes or GILs change little there.",
)
CPU_OF_A_GIL = Threshold(
    0.75,
    "cores",
    "mod_wsgi only: the GIL does not limit a process that uses less.",
    "The GIL can be full only while some thread computes.",
)
CPU_ABOVE_A_GIL = Threshold(
    1.15,
    "cores",
    "mod_wsgi only: a process that uses more has no GIL, or computes outside of it.",
    "Python under one GIL uses one core, and the server's own work a little more.",
)
WAIT_OF_APPLICATION = Threshold(
    0.15,
    "share",
    "mod_wsgi only: a process is `gil-bound` if at least this part of its application time "
    "was seen as waits for the GIL.",
    "This is mod_wsgi's own measure, which sees only the waits at its own calls.",
)
WORTH_TRYING = Threshold(
    1.1,
    "times",
    "An advice is given only if it is computed to bring at least this much.",
    "Less would be lost in the noise of a measurement.",
)

TABLE = {name: value for name, value in list(globals().items()) if isinstance(value, Threshold)}
