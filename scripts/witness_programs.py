"""The programs of scripts/witness.py, each run in a process of its own by the instrumented CPython.

    witness_programs.py PROGRAM POLICY

installs the meter, runs PROGRAM and prints what the meter and the witness counted meanwhile, as
JSON. `application` is what `headway serve` runs. Both read the witness through ctypes with the GIL
held, so that nothing is counted between the two readings.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import hashlib
import io
import json
import re
import runpy
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from headway import gil

SECONDS = 2.0
COUNTERS = (
    "takes",
    "contended_takes",
    "waited_ns",
    "drops",
    "forced_drops",
    "held_ns",
    "doubtful_takes",
    "mutex_waited_ns",
)
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
MAX_WAITS = 1 << 22
MAX_MARKS = 1 << 18

witness = ctypes.pythonapi
witness.witness_begin.restype = None
witness.witness_present_hold_ns.restype = ctypes.c_uint64
witness.witness_mark.argtypes = [ctypes.c_uint64]
witness.witness_mark.restype = ctypes.c_uint64


def run_together(*targets: Callable[[], object]) -> None:
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def for_a_while(step: Callable[[], object]) -> Callable[[], None]:
    """A function that calls `step` again and again for `SECONDS`."""

    def loop() -> None:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            step()

    return loop


def compute() -> None:
    sum(range(100))


def convoy() -> None:
    example = Path(__file__).resolve().parent.parent / "examples/convoy.py"
    with contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(str(example), run_name="__main__")


def hashing() -> None:
    message = bytes(16_384)

    def hash_messages() -> None:
        for _ in range(300):
            hashlib.sha256(message).digest()

    run_together(*[hash_messages] * 64)


def short_threads() -> None:
    for _ in range(24):
        run_together(*[lambda: sum(range(20_000))] * 50)


def asyncio_beside_two() -> None:
    async def tick(deadline: float) -> None:
        while time.monotonic() < deadline:
            await asyncio.sleep(0.002)

    async def tick_all() -> None:
        deadline = time.monotonic() + SECONDS
        await asyncio.gather(*[tick(deadline) for _ in range(10)])

    run_together(lambda: asyncio.run(tick_all()), *[for_a_while(compute)] * 2)


def files_and_sqlite() -> None:
    with tempfile.TemporaryDirectory() as folder:

        def write() -> None:
            file = Path(folder, "file")
            for_a_while(lambda: (file.write_bytes(bytes(4_096)), file.read_bytes()))()

        def insert() -> None:
            with contextlib.closing(sqlite3.connect(f"{folder}/base")) as base:
                base.execute("PRAGMA synchronous = OFF")
                base.execute("CREATE TABLE numbers (number)")

                def insert_one() -> None:
                    base.execute("INSERT INTO numbers VALUES (1)")
                    base.commit()

                for_a_while(insert_one)()

        run_together(write, insert, for_a_while(compute))


def regular_expression() -> None:
    # 2 ** 18 steps in one call, which does not look at drop requests.
    subject = "a" * 18 + "b"
    match = for_a_while(lambda: re.match("(a+)+$", subject))
    run_together(match, *[for_a_while(lambda: time.sleep(0.002))] * 4)


PROGRAMS = {
    "convoy": convoy,
    "64 threads that hash": hashing,
    "1,200 short threads": short_threads,
    "asyncio beside two": asyncio_beside_two,
    "files and SQLite": files_and_sqlite,
    "regular expression": regular_expression,
}


def run(program: str, policy: str) -> dict[str, Any]:
    gil.install(policy)
    # No other thread runs, so the GIL was not dropped since the counters opened.
    witness.witness_begin()
    PROGRAMS[program]()
    # All threads have ended; this one drops the GIL no more.
    snapshot = gil.snapshot()
    counted = read_witness()
    meter = snapshot.to_dict()["gils"][0]
    # A snapshot is made with the GIL dropped, and it is taken again behind the snapshot.
    counted["takes"] -= 1 - meter["held_now"]
    return {"meter": meter, "witness": counted}


def read_witness() -> dict[str, Any]:
    numbers = (ctypes.c_uint64 * len(COUNTERS)).in_dll(witness, "witness_counters")
    counted: dict[str, Any] = dict(zip(COUNTERS, numbers, strict=True))
    counted["held_ns"] += witness.witness_present_hold_ns()
    if counted["contended_takes"] > MAX_WAITS:
        raise SystemExit(f"the witness has room for {MAX_WAITS} waits")
    waits = (ctypes.c_uint64 * MAX_WAITS).in_dll(witness, "witness_waits")
    ordered = sorted(waits[: counted["contended_takes"]])
    for key, share in PERCENTILES.items() if ordered else ():
        # The least wait that this share of all waits does not exceed; and the least and the most
        # that it can be if the meter does not count the doubtful takes, or counts others.
        place, last = max(0, -int(-share * len(ordered) // 1) - 1), len(ordered) - 1
        counted[key] = ordered[place]
        counted[f"{key}_least"] = ordered[max(0, place - counted["doubtful_takes"])]
        counted[f"{key}_most"] = ordered[min(last, place + counted["doubtful_takes"])]
    return counted


class Body:
    """A response of one block. Its end is marked by C code that the server calls, so that no
    bytecode, at which the GIL may be dropped, runs before the server reads the meter."""

    def __init__(self, name: int, block: bytes) -> None:
        self._block = block
        self.close = functools.partial(witness.witness_mark, name)

    def __iter__(self) -> Iterator[bytes]:
        yield self._block


@functools.cache
def start_computing() -> None:
    def compute_on() -> None:
        while True:
            compute()

    threading.Thread(target=compute_on, daemon=True).start()


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """`/N`, with N from 1 on, is marked N; `/0` lists the marks."""
    start_computing()
    name = int(environ["PATH_INFO"][1:])
    body = b"."
    if name:
        sum(range(20_000))
    else:
        count = witness.witness_mark(0)
        marks = (ctypes.c_uint64 * 4 * MAX_MARKS).in_dll(witness, "witness_marks")
        body = json.dumps([list(mark) for mark in marks[: count - 1]]).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return Body(name, body)


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], sys.argv[2])))
