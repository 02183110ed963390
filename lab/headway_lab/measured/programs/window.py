"""A program's side of a benchmark's conversation: it is ready, learns the window, answers.

The window is two times on the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from typing import Any, NamedTuple, NoReturn

NS = 1e9


class Window(NamedTuple):
    begin_ns: int
    end_ns: int


def end_at_exception(failure: threading.ExceptHookArgs) -> None:
    """A thread that fails ends the program, or the benchmark would wait for it in vain."""
    traceback.print_exception(failure.exc_value)
    os._exit(1)


threading.excepthook = end_at_exception


def say(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def hear_window() -> Window:
    """The window, once the benchmark has named it; the process ends if it never will."""
    words = sys.stdin.readline().split()
    if not words:
        leave()
    begin_ns, end_ns = map(int, words)
    return Window(begin_ns, end_ns)


def answer(**facts: Any) -> NoReturn:
    """The last that a program says; it stays until the benchmark is done with it."""
    say(**facts)
    stay()


def stay() -> NoReturn:
    sys.stdin.readline()
    leave()


def leave() -> NoReturn:
    """Ends the process from whichever thread, though others may never stop by themselves."""
    os._exit(0)


def sleep_until(time_ns: int) -> None:
    left_ns = time_ns - time.monotonic_ns()
    if left_ns > 0:
        time.sleep(left_ns / NS)
