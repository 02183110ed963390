"""The programs of scripts/soak_exits.py: small, random, and made of parts.

A program is text: the functions below that it uses, and a call of each. `source` draws them from a
seed, so that the same seed makes the same program on every CPython. A part says on stdout what it
saw, in a line that does not depend on time. Threads that nobody ends stop at `END_S`, because a
process whose main thread has called pthread_exit() lives on until its last thread ends.

The parts run in this order, and after them one of `ENDS`:

- `FIRST` set signal masks, which threads that start later inherit.
- `PARTS` start what is at work when the program ends.
"""

from __future__ import annotations

import atexit
import functools
import gc
import inspect
import os
import random
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

END_S = time.monotonic() + 0.5
# These objects live as long as the process.
kept: list[object] = []

# The values that a parameter of this name can have.
VALUES: dict[str, tuple[object, ...]] = {
    "count": (1, 2, 3, 5),
    "pause_s": (0.0, 0.001, 0.01, 0.03),
    "child": ("os._exit", "sys.exit", "return", "raise"),
    "own_gil": (False, True),
    "left": (False, True),
    "method": ("fork", "spawn", "forkserver"),
    "policy": ("interval", "priority", "deadline"),
    "tracer": ("tracemalloc", "settrace", "setprofile", "monitoring"),
    "number": ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGKILL", "SIGPIPE"),
}
MOST_PARTS = 4
FIRST_CHANCE = 0.15


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def wait_for(pid: int) -> None:
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    say(f"a child ended with {status}")


def start_daemons(count: int, target: Callable[[], None]) -> None:
    for _ in range(count):
        threading.Thread(target=target, daemon=True).start()


def compute() -> None:
    while time.monotonic() < END_S:
        sum(range(500))


def block_signal(number: int) -> None:
    """In this thread and those that it starts. Sent to the process, it stays pending, unless
    another thread of the process can receive it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [number])


def unblock_signal(number: int) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])


def end_child(child: str) -> None:
    """Returns where the child shall end by a return."""
    if child == "os._exit":
        os._exit(5)
    if child == "sys.exit":
        sys.exit(6)
    if child == "raise":
        raise LookupError("in a child")


# FIRST


def signalfd_gets_sigterm(count: int, pause_s: float) -> None:
    import ctypes

    libc = ctypes.CDLL(None)
    mask = (ctypes.c_uint64 * 16)(1 << (signal.SIGTERM - 1))
    block_signal(signal.SIGTERM)
    descriptor = libc.signalfd(-1, mask, 0)
    for _ in range(count):
        time.sleep(pause_s)
        os.kill(os.getpid(), signal.SIGTERM)
        os.read(descriptor, 128)
    say("signalfd has got all SIGTERMs")
    unblock_signal(signal.SIGTERM)


def sigwait_in_a_thread(count: int, pause_s: float) -> None:
    def wait() -> None:
        for _ in range(count):
            signal.sigwait([signal.SIGTERM])
            received.release()

    block_signal(signal.SIGTERM)
    received = threading.Semaphore(0)
    thread = threading.Thread(target=wait)
    thread.start()
    for _ in range(count):
        time.sleep(pause_s)
        os.kill(os.getpid(), signal.SIGTERM)
        received.acquire()
    thread.join()
    say("sigwait has got all SIGTERMs")
    unblock_signal(signal.SIGTERM)


# PARTS: threads


def computing_daemons(count: int) -> None:
    start_daemons(count, compute)


def sleeping_daemons(count: int) -> None:
    def sleep() -> None:
        while time.monotonic() < END_S:
            time.sleep(0.0005)

    start_daemons(count, sleep)


def reading_daemons(count: int) -> None:
    def read(source: int, sink: int) -> None:
        while time.monotonic() < END_S:
            os.write(sink, b"x" * 512)
            select.select([source], [], [], 0.01)
            os.read(source, 4096)

    # Opened here: a thread may come too late to open anything (`few_descriptors`).
    for _ in range(count):
        threading.Thread(target=read, args=os.pipe(), daemon=True).start()


def locking_daemons(count: int) -> None:
    lock = threading.Lock()

    def lock_and_unlock() -> None:
        while time.monotonic() < END_S:
            with lock:
                sum(range(50))
                time.sleep(0)

    start_daemons(count + 1, lock_and_unlock)


def starting_daemons(count: int) -> None:
    """Threads that start others all the time, also while the interpreter ends."""

    def start_others() -> None:
        with suppress(RuntimeError):
            while time.monotonic() < END_S:
                thread = threading.Thread(target=sum, args=(range(100),))
                thread.start()
                thread.join()

    start_daemons(count, start_others)


def thread_churn(count: int) -> None:
    for _ in range(5 * count):
        threads = [threading.Thread(target=sum, args=(range(2000),)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def threads_outlive_main(count: int, pause_s: float) -> None:
    """No daemons: the interpreter waits for them."""

    def outlive() -> None:
        time.sleep(pause_s)
        sum(range(20_000))

    for _ in range(count):
        threading.Thread(target=outlive).start()


def thread_pool(count: int) -> None:
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(count)
    for _ in range(3 * count):
        pool.submit(time.sleep, 0.002)
    kept.append(pool)


def asynchronous_exceptions(count: int) -> None:
    """The exception comes once the thread runs its target. Before, while `threading` enters a
    `with` block, it leaves `_active_limbo_lock` locked now and then, and no thread can start."""
    import ctypes

    def begin() -> None:
        begun.set()
        compute()

    for _ in range(count):
        begun = threading.Event()
        thread = threading.Thread(target=begin)
        thread.start()
        begun.wait()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
        )
        thread.join()


def cancelled_threads(count: int) -> None:
    """By pthread_cancel, in a sleep, without the GIL."""
    import ctypes

    for _ in range(count):
        thread = threading.Thread(target=time.sleep, args=(5,), daemon=True)
        thread.start()
        time.sleep(0.005)
        ctypes.CDLL(None).pthread_cancel(ctypes.c_ulong(thread.ident or 0))


def c_threads_outlive_main(count: int, pause_s: float) -> None:
    """Threads that never enter Python: pthread_create(usleep)."""
    import ctypes

    libc = ctypes.CDLL(None)
    for number in range(count):
        thread = ctypes.c_ulong()
        argument = ctypes.c_void_p(int(pause_s * 1e6) + 5000 * number + 1)
        libc.pthread_create(ctypes.byref(thread), None, libc.usleep, argument)


def c_threads_call_python(count: int) -> None:
    """Threads of pthread_create, whose start routine is Python's."""
    import ctypes

    def call(_: object) -> None:
        while time.monotonic() < END_S:
            sum(range(100))
            time.sleep(0.001)

    libc = ctypes.CDLL(None)
    routine = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(call)
    kept.append(routine)
    for _ in range(count):
        thread = ctypes.c_ulong()
        libc.pthread_create(ctypes.byref(thread), None, routine, None)


def c_timer_calls_python() -> None:
    """Each expiry of a timer with SIGEV_THREAD calls Python in a new thread, also when there is no
    interpreter any more."""
    import ctypes

    libc = ctypes.CDLL(None)
    if not hasattr(libc, "timer_create"):
        libc = ctypes.CDLL("librt.so.1")
    notify = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
    # struct sigevent: value, signal, SIGEV_THREAD, function, attributes.
    event = (ctypes.c_uint64 * 8)(0, 2 << 32, ctypes.cast(notify, ctypes.c_void_p).value or 0, 0)
    timer = ctypes.c_void_p()
    libc.timer_create(1, event, ctypes.byref(timer))
    every = (ctypes.c_int64 * 4)(0, 1_000_000, 0, 1_000_000)
    libc.timer_settime(timer, 0, every, None)
    kept.append((notify, every))
    time.sleep(0.005)


def greenlets(count: int) -> None:
    """Nothing where the package is not installed."""
    try:
        import greenlet  # type: ignore[import-untyped]
    except ImportError:
        return

    def run() -> None:
        def step() -> None:
            while True:
                time.sleep(0)
                parent.switch()

        parent = greenlet.getcurrent()
        children = [greenlet.greenlet(step) for _ in range(count)]
        while time.monotonic() < END_S:
            for child in children:
                child.switch()

    def run_once() -> None:
        child = greenlet.greenlet(lambda: greenlet.getcurrent().parent.switch())
        child.switch()
        kept.append(child)

    start_daemons(2, run)
    run_once()


# PARTS: children


def forks(count: int, child: str) -> None:
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            end_child(child)
            sys.exit(7)
        wait_for(pid)


def forks_in_a_thread(child: str) -> None:
    """In CPython such a child ends when its only thread does."""

    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            return end_child(child)
        return wait_for(pid)

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()


def forking_daemons(count: int) -> None:
    def fork() -> None:
        # CPython 3.12 and later refuse to fork when the interpreter ends.
        with suppress(RuntimeError):
            while time.monotonic() < END_S:
                pid = os.fork()
                if pid == 0:
                    os._exit(0)
                os.waitpid(pid, 0)

    start_daemons(count, fork)


def commands_in_a_daemon() -> None:
    import subprocess

    def run() -> None:
        with suppress(RuntimeError, OSError):
            while time.monotonic() < END_S:
                subprocess.run(["true"], check=True)

    start_daemons(1, run)


def python_child() -> None:
    import subprocess

    code = "import threading; threading.Thread(target=sum, args=([1, 2],)).start()"
    done = subprocess.run([sys.executable, "-c", code], check=False)
    say(f"Python as a child ended with {done.returncode}")


def multiprocessing_child(method: str) -> None:
    import multiprocessing

    multiprocessing.set_start_method(method)
    process = multiprocessing.Process(target=compute_a_little)
    process.start()
    process.join()
    say(f"a process of multiprocessing ended with {process.exitcode}")


def compute_a_little() -> None:
    sum(range(1000))


# PARTS: signals


def handled_signals(count: int) -> None:
    signal.signal(signal.SIGUSR2, lambda *_: time.sleep(0))
    for _ in range(5 * count):
        os.kill(os.getpid(), signal.SIGUSR2)
        sum(range(100))


def interval_timer() -> None:
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)


def handler_forks(count: int) -> None:
    forked = []

    def fork(*_: object) -> None:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        forked.append(pid)

    signal.signal(signal.SIGALRM, fork)
    signal.setitimer(signal.ITIMER_REAL, 0.04, 0.04)
    while len(forked) < count:
        sum(range(500))
    signal.setitimer(signal.ITIMER_REAL, 0)


# PARTS: the interpreter


def interpreters(count: int, own_gil: bool, left: bool) -> None:
    """Sub-interpreters, which are destroyed or `left` to the end of the process."""
    config = "isolated" if own_gil else "legacy"
    create: Callable[[], Any]
    try:
        import _interpreters as module  # type: ignore[import-not-found]

        create, run = (lambda: module.create(config)), module.exec
    except ImportError:
        import _xxsubinterpreters as module  # type: ignore[import-not-found]

        create, run = (lambda: module.create(isolated=own_gil)), module.run_string
    for _ in range(count):
        interpreter = create()
        run(interpreter, "import time; sum(range(1000)); time.sleep(0.001)")
        if not left:
            module.destroy(interpreter)


def interpreters_in_daemons(count: int, own_gil: bool) -> None:
    def make() -> None:
        with suppress(RuntimeError):
            while time.monotonic() < END_S:
                interpreters(1, own_gil, left=False)

    start_daemons(count, make)


def garbage_callbacks() -> None:
    gc.callbacks.append(lambda phase, info: time.sleep(0))
    gc.set_threshold(50)
    kept.append([[] for _ in range(1000)])


def trace_all(tracer: str) -> None:
    def trace(*_: object) -> None:
        time.sleep(0)

    if tracer == "tracemalloc":
        import tracemalloc

        tracemalloc.start(5)
    elif tracer == "settrace":
        threading.settrace(trace)
        sys.settrace(trace)
    elif tracer == "setprofile":
        threading.setprofile(trace)
        sys.setprofile(trace)
    elif sys.version_info >= (3, 12):
        sys.monitoring.use_tool_id(3, "trace")
        sys.monitoring.set_events(3, sys.monitoring.events.PY_START)
        sys.monitoring.register_callback(3, sys.monitoring.events.PY_START, trace)
    compute_a_little()


def stack_dumps() -> None:
    import faulthandler

    devnull = os.open(os.devnull, os.O_WRONLY)
    faulthandler.enable()
    # A forked child would wait for the thread that dumps, which it has not got.
    os.register_at_fork(before=faulthandler.cancel_dump_traceback_later)
    faulthandler.dump_traceback_later(0.002, repeat=True, file=devnull)


def slow_finalizer(pause_s: float) -> None:
    """Python runs this when it has ended all daemon threads' hopes of the GIL but its own."""

    class Slow:
        def __del__(self, sleep: Callable[[float], None] = time.sleep) -> None:
            sleep(pause_s + 0.03)

    sys.slow = Slow()  # type: ignore[attr-defined]


def short_switch_interval() -> None:
    sys.setswitchinterval(1e-5)


def closed_descriptors() -> None:
    """As a daemon closes all that it did not open."""
    os.closerange(3, 256)


def no_stderr() -> None:
    os.close(2)


def few_descriptors() -> None:
    """From the begin of the interpreter's end no more can be opened."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    atexit.register(resource.setrlimit, resource.RLIMIT_NOFILE, (3, most))


# PARTS: Headway, and atexit


def thread_at_exit() -> None:
    def start() -> None:
        try:
            thread = threading.Thread(target=compute_a_little)
            thread.start()
            thread.join()
            say("atexit has started a thread")
        except RuntimeError:
            say("atexit could start no thread")

    atexit.register(start)


def measuring_daemons(count: int, policy: str) -> None:
    """Threads that call Headway all the time, also while the interpreter ends. Without Headway
    they compute, after imports like those of a profile: CPython 3.12.1 warns of a fork while it
    holds the import lock, and hangs if another thread imports `re` meanwhile."""

    def import_and_compute() -> None:
        from importlib import import_module

        for module in ("dataclasses", "inspect", "typing"):
            import_module(module)
        compute()

    if "HEADWAY_SOAK_MEASURED" not in os.environ:
        return start_daemons(count, import_and_compute)
    from headway import errors, gil

    def measure() -> None:
        while time.monotonic() < END_S:
            gil.install(policy)
            with suppress(errors.Error):
                gil.snapshot()
            with suppress(errors.Error):
                profiling = gil.profile()
                profiling.start()
                profiling.stop()

    return start_daemons(count, measure)


def policy_changes(policy: str, left: bool) -> None:
    """Installs and uninstalls, now and at exit; nothing without Headway."""
    if "HEADWAY_SOAK_MEASURED" not in os.environ:
        return
    from headway import gil

    def change() -> None:
        gil.install(policy)
        gil.snapshot()
        gil.uninstall()
        if left:
            gil.install(policy)

    change()
    atexit.register(change)


def profile_at_exit(left: bool) -> None:
    """Keeps a contention profile at exit, unless `headway run` does so. Without Headway it imports
    what a profile does: a watchdog of faulthandler reads the frames of code that runs."""
    if "HEADWAY_SOAK_MEASURED" not in os.environ:
        from importlib import import_module

        for module in ("dataclasses", "inspect", "typing"):
            import_module(module)
        return
    from headway import errors, gil

    def profile(left: bool) -> None:
        gil.install()
        with suppress(errors.Unsupported):
            profiling = gil.profile()
            profiling.start()
            time.sleep(0.005)
            if not left:
                profiling.stop()

    # CPython forgets at such an import that a KeyboardInterrupt ends the program.
    profile(False)
    atexit.register(profile, left)


# ENDS


def returns() -> None:
    pass


def exits_with_status() -> None:
    sys.exit(3)


def fails() -> None:
    raise LookupError("nobody catches this")


def exits_at_once(pause_s: float) -> None:
    time.sleep(pause_s)
    os._exit(4)


def exits_at_once_in_a_thread(pause_s: float) -> None:
    def end() -> None:
        time.sleep(pause_s)
        os._exit(4)

    threading.Thread(target=end).start()


def exits_at_once_at_exit() -> None:
    atexit.register(os._exit, 8)


def sys_exit_in_a_thread() -> None:
    threading.Thread(target=sys.exit, args=(3,)).start()


def fails_in_a_thread() -> None:
    threading.Thread(target=fails).start()


def aborts(pause_s: float) -> None:
    time.sleep(pause_s)
    os.abort()


def signals_itself(number: str, pause_s: float) -> None:
    time.sleep(pause_s)
    signal.raise_signal(getattr(signal, number))


def signal_from_a_thread(number: str, pause_s: float) -> None:
    """While the main thread waits for another one, at the end of the program."""

    def send() -> None:
        time.sleep(0.02 + pause_s)
        os.kill(os.getpid(), getattr(signal, number))
        time.sleep(0.02)

    threading.Thread(target=send).start()


def handler_exits(pause_s: float) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
    time.sleep(pause_s)
    os.kill(os.getpid(), signal.SIGTERM)
    compute()


def executes_itself() -> None:
    sys.stdout.flush()
    code = "import threading; threading.Thread(target=print, args=('a new image',)).start()"
    os.execv(sys.executable, [sys.executable, "-c", code])


def main_thread_exits() -> None:
    """By pthread_exit(); its interpreter does not end."""
    import ctypes

    ctypes.CDLL(None).pthread_exit(None)


def goes_to_the_background() -> None:
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    time.sleep(0.01)


def child_ends_too() -> None:
    """Parent and child run to the end of the program."""
    pid = os.fork()
    if pid:
        atexit.register(wait_for, pid)


FIRST = (signalfd_gets_sigterm, sigwait_in_a_thread)
PARTS: tuple[Callable[..., None], ...] = (
    computing_daemons,
    sleeping_daemons,
    reading_daemons,
    locking_daemons,
    starting_daemons,
    thread_churn,
    threads_outlive_main,
    thread_pool,
    asynchronous_exceptions,
    cancelled_threads,
    c_threads_outlive_main,
    c_threads_call_python,
    c_timer_calls_python,
    greenlets,
    forks,
    forks_in_a_thread,
    forking_daemons,
    commands_in_a_daemon,
    python_child,
    multiprocessing_child,
    handled_signals,
    interval_timer,
    handler_forks,
    interpreters,
    interpreters_in_daemons,
    garbage_callbacks,
    trace_all,
    stack_dumps,
    slow_finalizer,
    short_switch_interval,
    closed_descriptors,
    no_stderr,
    few_descriptors,
    thread_at_exit,
    measuring_daemons,
    policy_changes,
    profile_at_exit,
)
ENDS: tuple[Callable[..., None], ...] = (
    returns,
    exits_with_status,
    fails,
    exits_at_once,
    exits_at_once_in_a_thread,
    exits_at_once_at_exit,
    sys_exit_in_a_thread,
    fails_in_a_thread,
    aborts,
    signals_itself,
    signal_from_a_thread,
    handler_exits,
    executes_itself,
    main_thread_exits,
    goes_to_the_background,
    child_ends_too,
)
# These leave threads that do not end, so that a process without its main thread would not end.
ENDLESS = (c_timer_calls_python, stack_dumps, thread_pool)
NAMES = tuple(part.__name__ for part in (*FIRST, *PARTS, *ENDS))
# Parts call these by name.
CALLED: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        say,
        wait_for,
        start_daemons,
        compute,
        compute_a_little,
        block_signal,
        unblock_signal,
        end_child,
        interpreters,
        fails,
    )
}
HEAD = """\
from __future__ import annotations

import atexit, gc, os, select, signal, sys, threading, time
from contextlib import suppress

END_S = time.monotonic() + 0.5
kept = []


def end_slowly():
    import argparse, json, re

    end_s = time.monotonic() + 0.1
    while time.monotonic() < end_s:
        re.purge()
        re.compile("(a|b)+[c-z]{2,5}|x(?P<name>[0-9]+)")
        time.sleep(0)


if "HEADWAY_SOAK_SLOW" in os.environ:
    atexit.register(end_slowly)
"""


def draw(seed: int) -> list[Callable[..., None]]:
    """The parts of a program, the last of which ends it."""
    chance = random.Random(seed)
    first = [part for part in FIRST if chance.random() < FIRST_CHANCE]
    parts = chance.sample(PARTS, chance.randrange(1, MOST_PARTS + 1))
    end = chance.choice(ENDS)
    if end is main_thread_exits and not set(ENDLESS).isdisjoint(parts):
        end = returns
    return [*first, *parts, end]


def source(seed: int) -> str:
    """The text of a program, which needs nothing but an interpreter."""
    chance = random.Random(-seed)
    parts = draw(seed)
    calls = "".join(f"    {part.__name__}({_arguments(part, chance)})\n" for part in parts)
    needed: dict[str, Callable[..., Any]] = {}
    for part in parts:
        needed |= {part.__name__: part, **_called_by(part)}
    functions = "\n\n".join(map(_text, needed.values()))
    return f'{HEAD}\n\n{functions}\n\nif __name__ == "__main__":\n{calls}'


def _arguments(part: Callable[..., None], chance: random.Random) -> str:
    return ", ".join(
        f"{name}={chance.choice(VALUES[name])!r}" for name in inspect.signature(part).parameters
    )


@functools.cache
def _text(function: Callable[..., Any]) -> str:
    return inspect.getsource(function)


def _called_by(function: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    words = set(re.findall(r"\w+", _text(function)))
    for name, other in CALLED.items():
        if name in words and other is not function:
            found |= {name: other, **_called_by(other)}
    return found
