"""Pages that do not return soon, or ever, or take what others need."""

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time

entered = threading.Event()
closed = threading.Event()
hoard = []


def application(environ, start_response):
    page, seconds = environ["PATH_INFO"].strip("/"), float(environ["QUERY_STRING"] or 0)
    if page == "endless":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return Endless(seconds)
    if page == "read":
        environ["wsgi.input"].read()
    body = PAGES[page](seconds)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [body]


class Endless:
    """Blocks without end, so many seconds apart."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __iter__(self):
        while True:
            time.sleep(self.seconds)
            yield b"x" * 10_000

    def close(self):
        closed.set()


def hello(seconds):
    return b"hello\n"


def read(seconds):
    return b"read\n"


def sleep(seconds):
    entered.set()
    os.write(2, b"asleep\n")
    time.sleep(seconds)
    return b"slept\n"


def deaf(seconds):
    """Sleeps in a thread that answers no signal, as one that waits for a broken disk does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    return sleep(seconds)


def compute(seconds):
    entered.set()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return b"computed\n"


def stubborn(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(BaseException):
            compute(seconds)
    return b"never\n"


def sleeping_and_hello(seconds):
    """Answers once another request is in `sleep`."""
    entered.wait()
    return b"entered\n"


def endless_was_closed(seconds):
    """Answers once the iterable of `endless` was closed."""
    closed.wait()
    return b"closed\n"


def wait_for_rest(seconds):
    """Answers once the main thread rests where it is."""
    main, seen, same = threading.main_thread().ident, None, 0
    while same < 20:
        time.sleep(0.01)
        frame = sys._current_frames()[main]
        same = same + 1 if seen == (frame, frame.f_lasti) else 0
        seen = (frame, frame.f_lasti)
    return b"rests\n"


def wedge(seconds):
    """Waits in C with the GIL held, for ever or so long."""
    os.write(2, b"wedged\n")
    libc = ctypes.PyDLL(None)
    semaphore = ctypes.create_string_buffer(64)
    libc.sem_init(semaphore, 0, 0)
    if seconds:
        # By the C library, so that no thread needs the GIL to end this.
        libc.clock_nanosleep.restype = ctypes.c_int
        deadline = (ctypes.c_long * 2)(0, 0)
        libc.clock_gettime(time.CLOCK_MONOTONIC, deadline)
        deadline[0] += int(seconds)
        while libc.clock_nanosleep(time.CLOCK_MONOTONIC, 1, deadline, None):
            pass
    else:
        libc.sem_wait(semaphore)
    return b"never\n"


def take_descriptors(seconds):
    try:
        while True:
            hoard.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return b"none left\n"


def give_back(seconds):
    while hoard:
        os.close(hoard.pop())
    return b"given back\n"


PAGES = {
    each.__name__: each
    for each in (
        hello,
        read,
        sleep,
        deaf,
        compute,
        stubborn,
        sleeping_and_hello,
        endless_was_closed,
        wait_for_rest,
        wedge,
        take_descriptors,
        give_back,
    )
}
