"""Pages whose threads are to be looked at: they wait, compute, or keep the GIL in a call of C code.

A number of seconds comes as the query, or the path of a file: then a page waits or computes until
there is such a file, and its body has the seconds that this took.
"""

from __future__ import annotations

import errno
import gc
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

# The CPU time after which a page that computes ends, once the file exists.
CPU_S = 0.2
LOCK = threading.Lock()


def wait_for_a_while(seconds: float, file: str = "") -> None:
    time.sleep(seconds)
    while file and not os.path.exists(file):
        time.sleep(0.01)


def compute_for_a_while(seconds: float, file: str = "") -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    end_cpu = time.thread_time() + CPU_S
    while file and (time.thread_time() < end_cpu or not os.path.exists(file)):
        # Between the looks at the clock and for the file, whose time is the kernel's.
        for _ in range(20_000):
            pass


def hold_for_a_while(seconds: float) -> None:
    """A call of C code that keeps the GIL and waits: for a mutex that this thread has. No signal
    ends it, as one would a sleep, between whose calls the GIL is dropped."""
    # Not at the top: in 3.12 no interpreter with a GIL of its own can import it.
    import ctypes

    library = ctypes.PyDLL(None)
    # As large as a pthread_mutex_t, or larger; in zeros it is PTHREAD_MUTEX_INITIALIZER.
    mutex = (ctypes.c_long * 8)()
    library.pthread_mutex_lock(mutex)
    end = time.clock_gettime_ns(time.CLOCK_REALTIME) + int(seconds * 1e9)
    ended = library.pthread_mutex_timedlock(mutex, (ctypes.c_long * 2)(*divmod(end, 10**9)))
    if ended != errno.ETIMEDOUT:
        raise OSError(ended, os.strerror(ended))


def search_for_long(_: float) -> None:
    re.match(r"(1+)+$", "1" * 22 + "x")


def collect_garbage(_: float) -> None:
    for _ in range(5_000):
        cycle: list[object] = []
        cycle.append(cycle)
    gc.collect()


def compute_with_the_lock(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        # The sleep makes the others wait: they spin for a lock that is soon free.
        with LOCK:
            sum(range(50_000))
            time.sleep(0.003)


PAGES: dict[str, Callable[[float], None]] = {
    "/wait": wait_for_a_while,
    "/compute": compute_for_a_while,
    "/lock": compute_with_the_lock,
    "/hold": hold_for_a_while,
    "/search": search_for_long,
    "/collect": collect_garbage,
}
UNTIL_FILE = {"/wait": wait_for_a_while, "/compute": compute_for_a_while}


def application(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    path, query = environ["PATH_INFO"], environ["QUERY_STRING"]
    done = b"done\n"
    if query.startswith("/"):
        began = time.monotonic()
        UNTIL_FILE[path](0, query)
        done = b"%f\n" % (time.monotonic() - began)
    elif path in PAGES:
        PAGES[path](float(query or 0))
    body = environ["wsgi.input"].read() or done
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [body]
