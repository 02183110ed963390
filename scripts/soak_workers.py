"""The work of a soak's threads, see soak.py. Each worker is a generator that does a piece of work
and yields, without end; when it is closed, it leaves nothing behind.

Knows nothing of policies, nor of how often what is done.
"""

from __future__ import annotations

import gc
import hashlib
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any, NoReturn

from soak_counters import SoakFailure, check_counters

from headway import gil

# A forked child has so long to live.
CHILD_S = 90

Worker = Callable[[random.Random], Iterator[None]]


def find_interpreters() -> Any:
    """CPython's module of sub-interpreters, if it has one."""
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


interpreters = find_interpreters()


def hog(chance: random.Random) -> Iterator[None]:
    """Pure Python, C code that keeps the GIL, C code that drops it."""
    data = bytes(100_000)
    numbers = [chance.random() for _ in range(5_000)]
    while True:
        kind = chance.randrange(6)
        if kind == 0:
            hashlib.sha256(data).digest()
        elif kind == 1:
            sorted(numbers)
        else:
            for _ in range(chance.randrange(20_000)):
                pass
        yield


def sleeper(chance: random.Random) -> Iterator[None]:
    while True:
        time.sleep(chance.random() * 0.002)
        yield


def spinner(chance: random.Random) -> Iterator[None]:
    """Drops the GIL and wants it back at once, most of the time."""
    while True:
        time.sleep(0 if chance.randrange(100) else 0.001)
        yield


def masquerader(chance: random.Random) -> Iterator[None]:
    """Computes, but is away for a moment every 0.1 ms or so."""
    while True:
        sum(range(chance.randrange(5_000)))
        os.stat("/")
        yield


def echo(chance: random.Random) -> Iterator[None]:
    here, there = socket.socketpair()

    def answer() -> None:
        while data := there.recv(1_000):
            there.sendall(data)

    other = threading.Thread(target=answer, name="echo's other end")
    other.start()
    try:
        while True:
            size = chance.randrange(1, 100)
            here.sendall(bytes(size))
            while size:
                size -= len(here.recv(size))
            yield
    finally:
        # Not `close()`: a forked child may have this end, too.
        here.shutdown(socket.SHUT_RDWR)
        other.join()
        here.close()
        there.close()


def ping_pong(chance: random.Random) -> Iterator[None]:
    there: queue.Queue[int | None] = queue.Queue()
    back: queue.Queue[int] = queue.Queue()

    def answer() -> None:
        while (item := there.get()) is not None:
            back.put(item)

    other = threading.Thread(target=answer, name="ping_pong's other end")
    other.start()
    try:
        while True:
            items = range(chance.randrange(1, 4))
            for item in items:
                there.put(item)
            if [back.get() for _ in items] != [*items]:
                raise SoakFailure("ping_pong: items came back in another order")
            yield
    finally:
        there.put(None)
        other.join()


def starter(chance: random.Random) -> Iterator[None]:
    while True:
        size = chance.randrange(10_000)
        threads = [threading.Thread(target=sum, args=(range(size),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        yield


def collector(chance: random.Random) -> Iterator[None]:
    while True:
        circle: list[Any] = []
        circle.append(circle)
        del circle
        gc.collect(chance.randrange(3))
        time.sleep(0.005)
        yield


def runner(chance: random.Random) -> Iterator[None]:
    while True:
        data = bytes(chance.randrange(200_000))
        if subprocess.run(["cat"], input=data, stdout=subprocess.PIPE, check=True).stdout != data:
            raise SoakFailure("runner: cat gave back something else")
        time.sleep(chance.random() * 0.05)
        yield


# CPython cannot fork while there are sub-interpreters: it crashes in PyOS_AfterFork_Child.
forking_or_interpreting = threading.Lock()


def forker(chance: random.Random) -> Iterator[None]:
    while True:
        with forking_or_interpreting:
            pid = os.fork()
        if pid == 0:
            live_as_child(chance.randrange(100_000))
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status != 0:
            raise SoakFailure(f"forker: a child ended with {status}; what it said is above")
        time.sleep(chance.random() * 0.02)
        yield


def live_as_child(size: int) -> NoReturn:
    """Threads beside the one that forked, then counters of the child's own."""
    status = 1
    try:
        # Kills, and shows all stacks before if faulthandler was told so.
        signal.alarm(CHILD_S)
        threads = [threading.Thread(target=sum, args=(range(size),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(0)
        sum(range(size))
        for thread in threads:
            thread.join()
        if gil.is_installed():
            check_counters(gil.snapshot().report())
        status = 0
    except BaseException:
        # Not through sys.stderr, which another thread may have been using.
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


INTERPRETER_CODE = """
import threading, time
def work():
    for _ in range({rounds}):
        sum(range(1000))
        time.sleep(0)
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
work()
for thread in threads: thread.join()
"""


def interpreter_user(chance: random.Random) -> Iterator[None]:
    """Own GILs, two at once, from 3.12 on. Before, sub-interpreters share the GIL, and CPython
    bears only one."""
    count = 2 if sys.version_info >= (3, 12) else 1
    while True:
        with forking_or_interpreting, ThreadPoolExecutor(count) as executor:
            rounds = [chance.randrange(1, 50) for _ in range(count)]
            problems = [*executor.map(use_interpreter, rounds)]
        if any(problems):
            raise SoakFailure(f"interpreter_user: {problems}")
        time.sleep(chance.random() * 0.02)
        yield


def use_interpreter(rounds: int) -> object:
    """The exception that `run_string` reports, if it does."""
    if sys.version_info >= (3, 13):
        id = interpreters.create("isolated")
    else:
        # Before 3.12, isolated ones have no threads.
        id = interpreters.create(isolated=sys.version_info >= (3, 12))
    try:
        return interpreters.run_string(id, INTERPRETER_CODE.format(rounds=rounds))
    finally:
        interpreters.destroy(id)


WORKERS: tuple[Worker, ...] = (
    *(hog,) * 3,
    *(sleeper,) * 4,
    *(spinner, masquerader, echo, ping_pong, starter, collector, runner, forker),
    *((interpreter_user,) if interpreters else ()),
)
