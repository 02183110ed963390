"""A WSGI application that says which interpreter it runs in, and misbehaves there when asked to.

TENANT_AT_IMPORT is a statement that is run when it is imported; a request waits for TENANT_FILE.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

ENVIRON_KEYS = (
    "headway.application_group",
    "headway.process_group",
    "SCRIPT_NAME",
    "PATH_INFO",
    "wsgi.multithread",
    "wsgi.multiprocess",
)
requests = rounds = 0
gate = threading.Event()
lock = threading.Lock()
atexit.register(lambda: say("atexit of the tenant"))
exec(os.environ.get("TENANT_AT_IMPORT", ""))


def say(text: str) -> None:
    """In one write: other interpreters have the same stderr."""
    os.write(2, f"{text}\n".encode())


def interpreter_id() -> int:
    try:
        import _interpreters
    except ImportError:
        import _xxsubinterpreters as _interpreters
    current = _interpreters.get_current()
    return int(current[0] if isinstance(current, tuple) else current)


def facts(environ: dict[str, Any]) -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "interpreter": interpreter_id(),
        "requests": requests,
        "rounds": rounds,
        "switch_interval": sys.getswitchinterval(),
        "path": sys.path[:3],
        "handlers": len(logging.getLogger().handlers),
        **{key: environ[key] for key in ENVIRON_KEYS},
    }


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    global requests
    requests += 1
    path = environ["PATH_INFO"]
    if path.startswith("/do/"):
        ACTS[path.removeprefix("/do/")]()
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(facts(environ)).encode()]


def wait_for_file() -> None:
    say("a request waits")
    end = time.monotonic() + 20
    while not os.path.exists(os.environ["TENANT_FILE"]) and time.monotonic() < end:
        time.sleep(0.01)


def hold_lock() -> None:
    with lock:
        time.sleep(0.3)


def compute() -> None:
    """Until a request is interrupted."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        sum(range(1000))


def count_for_a_second() -> None:
    """How far this thread comes beside others that compute, all of which begin together."""
    global rounds
    wait_for_file()
    end = time.monotonic() + 1
    while time.monotonic() < end:
        sum(range(100))
        rounds += 1


def start_daemon() -> None:
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def start_thread() -> None:
    """Waits for the end of the interpreter as `threading` has it."""
    main = threading.main_thread()

    def work() -> None:
        while main.is_alive() and not gate.wait(0.01):
            pass
        say("the tenant's thread ends")

    # Otherwise it is as the worker thread, whose `threading` takes it for a daemon.
    thread = threading.Thread(target=work, daemon=False)
    thread.start()
    threading._register_atexit(gate.set)


def read_stdin() -> None:
    sys.stdin.read()


def print_something() -> None:
    print("printed by the tenant", flush=True)


ACTS: dict[str, Callable[[], object]] = {
    "wait": wait_for_file,
    "lock": hold_lock,
    "sleep": lambda: time.sleep(0.2),
    "compute": compute,
    "count": count_for_a_second,
    "add_handler": lambda: logging.getLogger().addHandler(logging.NullHandler()),
    "start_daemon": start_daemon,
    "start_thread": start_thread,
    "read_stdin": read_stdin,
    "print": print_something,
    "fail": lambda: 1 / 0,
}
