"""Calls functions of `headway._native` with odd arguments, each in forked children of its own.

Usage: odd_arguments.py INSTALLED NAME... Prints a JSON object of the exit statuses: 0, or that of
the first child that ended otherwise. A child that waits too long for something is ended, and counts
as 0.
"""

from __future__ import annotations

import ast
import contextlib
import faulthandler
import json
import os
import random
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from headway import _native

CHILDREN = 2
CALLS = 1500
# A function that waits gets this signal, which ends the child.
LONGEST_S = 2.0


class Odd:
    """Raises wherever it is asked."""

    def __len__(self) -> int:
        raise MemoryError

    def __getitem__(self, index: int) -> Any:
        raise KeyboardInterrupt

    def __index__(self) -> int:
        return 2**70

    def __float__(self) -> float:
        raise ZeroDivisionError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


class LongSequence:
    def __len__(self) -> int:
        return 2**62

    def __getitem__(self, index: int) -> int:
        if index > 50:
            raise IndexError
        return index


NUMBERS = [
    0,
    1,
    -1,
    2,
    7,
    63,
    64,
    255,
    65536,
    2**31 - 1,
    2**31,
    2**32,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63),
]
TEXTS = [
    "",
    "a",
    "\0",
    "\ud800",
    "é" * 300,
    "{}",
    "[]",
    "a = 1",
    "plain",
    "/" * 5000,
    "x" * 100_000,
]
BYTES = [text.encode("utf-8", "surrogatepass") for text in TEXTS] + [b"\xff" * 64, bytes(4096)]


def odd_values(random: random.Random) -> list[Any]:
    numbers = [*NUMBERS, *(-random.randrange(2**64) for _ in range(2))]
    floats = [0.0, -1.0, 1e308, float("nan"), float("inf")]
    simple = [None, True, False, *numbers, *floats, *TEXTS, *BYTES, Odd(), LongSequence(), object()]
    listed = [[random.choice(simple) for _ in range(random.randrange(5))] for _ in range(8)]
    return [
        *simple,
        *listed,
        *(tuple(each) for each in listed),
        *({random.choice(TEXTS): random.choice(simple)} for _ in range(8)),
        [[("a", 1)], [(1, 2, 3)]],
        [(1, 2, 3)],
        [("a", 0)],
        lambda *arguments: arguments,
        sys,
        bytearray(b"abc"),
        memoryview(b"abc"),
        range(3),
    ]


def own_values() -> Iterator[Any]:
    """Values that functions of the module return, for others to take."""
    yield _native.telemetry_holder_names()
    yield _native.interpreter_of_caller(None, lambda *_: None, list, RuntimeError)
    recorder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    recorder.bind(f"{os.getpid()}.socket")
    yield recorder
    yield recorder.fileno()
    yield _native.telemetry_start(os.fsencode(recorder.getsockname()), 1.0, 0.0, {}, False)
    yield _native.telemetry_encode(1, 1, 1, 0.0, {})
    yield _native.telemetry_record(_native.telemetry_encode(1, 1, 1, 0.0, {}))


def parameters_of(name: str) -> list[str]:
    """The types that the stub declares."""
    stub = ast.parse((files("headway") / "_native.pyi").read_text())
    function = next(
        node for node in stub.body if isinstance(node, ast.FunctionDef) and node.name == name
    )
    return [ast.unparse(each.annotation) for each in function.args.posonlyargs if each.annotation]


def call_with_odd_arguments(name: str, seed: int) -> None:
    generator = random.Random(f"{name} {seed}")
    own, values = list(own_values()), odd_values(generator)
    of_type = {"int": NUMBERS, "str": TEXTS, "bytes": BYTES, "bool": [False, True], "object": own}
    parameters = parameters_of(name)
    function = getattr(_native, name)
    for call in range(CALLS):
        types = parameters if call % 4 else parameters[: call % 7] + ["Any"] * (call % 5)
        arguments = [
            generator.choice(values if generator.random() < 0.1 else of_type.get(type, values))
            for type in types
        ]
        with contextlib.suppress(BaseException):
            function(*arguments)


def end_of_child(name: str, seed: int, installed: bool) -> int:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.closerange(3, 1000)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
        if installed:
            _native.gil_install(None, False, None, None)
        faulthandler.enable(all_threads=False)
        call_with_odd_arguments(name, seed)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return 0 if status == -signal.SIGALRM else status


def main() -> None:
    installed, names = sys.argv[1] == "1", sys.argv[2:]
    ends = {}
    for name in names:
        statuses = [end_of_child(name, seed, installed) for seed in range(CHILDREN)]
        ends[name] = next((status for status in statuses if status != 0), 0)
    print(json.dumps(ends))


main()
