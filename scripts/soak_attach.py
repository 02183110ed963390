#!/usr/bin/env python3
"""Attaches to one program under load and leaves it again, many times, and kills commands meanwhile.

    .venvs/3.13/bin/python scripts/soak_attach.py --cycles 1000 --kills 100

The program is tests/attach/running.py of this interpreter: a thread that sleeps for moments beside
one that computes. A cycle is one `headway attach`, by turns plain, with `--policy priority`, with
`--profile`, with `--policy deadline`, with `--policy priority --keep` and `headway detach`. Then
`--kills` commands more are killed by SIGKILL, each at a random moment of its first three seconds,
by turns with a policy and in a comparison, and their policy has to end by itself. After each the
program has to be as it was: its threads, descriptors, callbacks, settings; and at the end its
mappings and its memory must not have grown since the first tenth.

Exit status 1 if the program has ended, if a command failed, or if something stayed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from headway.options import Whole, argument

PROGRAM = Path(__file__).resolve().parents[1] / "tests" / "attach" / "running.py"
FOR = ("--for", "0.2s")
KINDS: tuple[tuple[str, ...], ...] = (
    (),
    ("--policy", "priority"),
    ("--profile",),
    ("--policy", "deadline"),
    ("--policy", "priority", "--keep"),
)
KILLED = (("--policy", "priority"), ("--policy", "priority", "--compare"))
# A command that is killed leaves the program measured until its socket's end is seen.
WITHIN_S = 30.0
COMMAND_LIMIT_S = 120.0
# Where other programs have the cores, a command needs two seconds to be inside.
KILLED_WITHIN_S = 3.0
# Growth that is allowed after the first tenth, in which modules and caches are loaded.
MAPPINGS = 12
MEMORY_KB = 4096
ATTACHED = re.compile(r"attached to process .* in ([0-9.]+) (s|ms);")


class Program:
    """The program that runs, and what it says of itself."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", str(PROGRAM), "convoy"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line()
        time.sleep(0.2)
        self.before = self.seen()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            fail(f"the program has ended, with {self.process.wait()}")
        return line

    def seen(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write("seen\n")
        self.process.stdin.flush()
        found: dict[str, Any] = json.loads(self._line())
        return found

    def wait_until_as_before(self, after: str) -> None:
        end_s = time.monotonic() + WITHIN_S
        while True:
            found = self.seen()
            left = {
                name: (self.before[name], found[name])
                for name in self.before.keys() - {"woken", "headway"}
                if found[name] != self.before[name]
            }
            if not left:
                break
            if time.monotonic() > end_s:
                fail(f"after {after}, this stayed (before, now): {left}")
            time.sleep(0.02)
        woken = found["woken"]
        while self.seen()["woken"] == woken:
            if time.monotonic() > end_s:
                fail(f"after {after}, a thread of the program does not go on")
            time.sleep(0.02)

    def mappings(self) -> int:
        return len(Path(f"/proc/{self.process.pid}/maps").read_text().splitlines())

    def memory_kb(self) -> int:
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found is not None
        return int(found[1])

    def end(self) -> int:
        """Its exit status; it ends at the end of its stdin."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(WITHIN_S)


def fail(what: str) -> NoReturn:
    print(f"soak_attach: {what}", file=sys.stderr)
    raise SystemExit(1)


def headway(*words: str, folder: str) -> str:
    """Runs the command. Returns its stderr."""
    ended = subprocess.run(
        [sys.executable, "-m", "headway", *words],
        cwd=folder,
        env={**os.environ, "TMPDIR": folder},
        capture_output=True,
        text=True,
        timeout=COMMAND_LIMIT_S,
        check=False,
    )
    if ended.returncode:
        fail(f"headway {' '.join(words)} ended with {ended.returncode}: {ended.stderr.strip()}")
    return ended.stderr


def cycle(program: Program, number: int, folder: str) -> float:
    """Returns the seconds until the command was inside."""
    pid = str(program.process.pid)
    kind = KINDS[number % len(KINDS)]
    options = [*kind, *(["waits.txt"] if kind == ("--profile",) else [])]
    said = headway("attach", pid, *FOR, *options, folder=folder)
    if "--keep" in kind:
        headway("detach", pid, folder=folder)
    found = ATTACHED.search(said)
    if found is None:
        fail(f"headway attach did not say that it is inside: {said}")
    return float(found[1]) * (1e-3 if found[2] == "ms" else 1.0)


def kill_one(program: Program, moment_s: float, kind: Sequence[str], folder: str) -> None:
    command = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "headway",
            "attach",
            str(program.process.pid),
            *kind,
        ],
        cwd=folder,
        env={**os.environ, "TMPDIR": folder},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(moment_s)
    command.send_signal(signal.SIGKILL)
    command.wait()


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"soak_attach: {message}\n")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    number = argument(Whole(0, 1_000_000))
    parser.add_argument("--cycles", type=number, default=1000, metavar="N", help="(1000)")
    parser.add_argument("--kills", type=number, default=100, metavar="N", help="(100)")
    parser.add_argument("--seed", type=number, default=1, help="of the moments of the kills (1)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    chance = random.Random(options.seed)
    folder = tempfile.mkdtemp(prefix="soak-attach-")
    program = Program()
    began_s = time.monotonic()
    inside_s: list[float] = []
    first: tuple[int, int] | None = None
    try:
        for number in range(options.cycles):
            inside_s.append(cycle(program, number, folder))
            program.wait_until_as_before(f"cycle {number}")
            if number == max(options.cycles // 10, len(KINDS)):
                first = program.mappings(), program.memory_kb()
            if number % 100 == 99:
                took_s = time.monotonic() - began_s
                print(
                    f"{number + 1} cycles in {took_s:.0f} s: {program.mappings()} mappings, "
                    f"{program.memory_kb()} KB",
                    flush=True,
                )
        last = program.mappings(), program.memory_kb()
        for number in range(options.kills):
            moment_s = chance.uniform(0, KILLED_WITHIN_S)
            kill_one(program, moment_s, KILLED[number % len(KILLED)], folder)
            program.wait_until_as_before(f"kill {number} after {moment_s:.2f} s")
            if number % 20 == 19:
                print(f"{number + 1} kills", flush=True)
        if program.process.poll() is not None:
            fail("the program has ended")
        status = program.end()
    finally:
        if program.process.poll() is None:
            program.process.kill()
            program.process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    if status != 0:
        fail(f"the program ended with {status}")
    if inside_s:
        ordered = sorted(inside_s)
        print(
            f"{options.cycles} cycles: inside after {statistics.median(ordered) * 1e3:.0f} ms, "
            f"at most {ordered[-1] * 1e3:.0f} ms"
        )
    if first is not None:
        print(f"mappings {first[0]} to {last[0]}, memory {first[1]} to {last[1]} KB")
        if last[0] > first[0] + MAPPINGS or last[1] > first[1] + MEMORY_KB:
            fail("the program has grown")
    print(f"{options.kills} kills; the program ended with 0, by itself")
    return 0


if __name__ == "__main__":
    sys.exit(main())
