"""Has a CPython from 3.14 on run a script, by the fields of PEP 768.

`sys.remote_exec` asks the main thread alone, which may have ended or sit in a call. Here the thread
that held the GIL last is asked, and the others of the main interpreter with it: whichever runs
bytecode next takes the request. Source: `_Py_DebugOffsets` in CPython's
`Include/internal/pycore_debug_offsets.h`, and `Python/remote_debugging.c`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from headway.attach.stopped import while_stopped
from headway.attach.target import COOKIE, Refused, Target

# PEP 768: the bit of `eval_breaker` that makes a thread look at its requests.
PLEASE_STOP = 1 << 5
# Besides the holder of the GIL, the newest threads are asked. A list that is longer than the second
# figure is damaged.
MOST_THREADS = 256
MOST_LISTED = 100_000
# By version: the number of `thread_state.native_thread_id`, and of the first field of
# `debugger_support`, which is the last group, among the table's words.
NUMBERS = {(3, 14): (28, 89), (3, 15): (31, 105)}


class Offsets(NamedTuple):
    """The words of `_Py_DebugOffsets` that are needed. Offsets are in bytes."""

    finalizing: int
    first_interpreter: int
    interpreter_id: int
    next_interpreter: int
    first_thread: int
    gil_holder: int
    next_thread: int
    eval_breaker: int
    support: int
    enabled: int
    pending_call: int
    path: int
    path_size: int


class RemoteDebugging:
    """The request to run a script. After `withdraw` no thread runs it any more."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._memory = os.open(f"/proc/{target.pid}/mem", os.O_RDWR)
        self._asked: list[int] = []
        self._offsets = self._read_offsets()

    def close(self) -> None:
        os.close(self._memory)

    def ask(self, script: str) -> None:
        """Raises `Refused` if the process does not allow it, and `CannotStop`."""
        path = os.fsencode(script) + b"\0"
        if len(path) > self._offsets.path_size:
            raise Refused(f"{script}: its path is longer than {self._offsets.path_size} bytes")
        while_stopped(self._target.pid, lambda: self._ask(path))

    def _ask(self, path: bytes) -> None:
        offsets = self._offsets
        if self._word(self._target.runtime + offsets.finalizing):
            raise Refused(f"process {self._target.pid} is ending")
        interpreter = self._main_interpreter()
        if self._integer(interpreter + offsets.enabled) != 1:
            raise Refused(
                f"process {self._target.pid} does not allow it: it was started with "
                "-X disable-remote-debug or PYTHON_DISABLE_REMOTE_DEBUG"
            )
        threads = list(self._threads(interpreter))
        # The last holder may have ended, and its memory may be something else's by now.
        holder = self._word(interpreter + offsets.gil_holder)
        first = [holder] if holder in threads else []
        self._asked = list(dict.fromkeys([*first, *threads[:MOST_THREADS]]))
        for thread in self._asked:
            support = thread + offsets.support
            self._write(support + offsets.path, path)
            self._write(support + offsets.pending_call, struct.pack("<i", 1))
            breaker = self._word(thread + offsets.eval_breaker) | PLEASE_STOP
            self._write(thread + offsets.eval_breaker, struct.pack("<Q", breaker))

    def withdraw(self) -> None:
        """Takes back the requests that nobody has taken. Raises `CannotStop`."""
        if self._asked:
            while_stopped(self._target.pid, self._withdraw)
            self._asked = []

    def _withdraw(self) -> None:
        offsets = self._offsets
        present = set(self._threads(self._main_interpreter()))
        for thread in self._asked:
            # The memory of one that has ended may be in use for something else.
            if thread in present:
                support = thread + offsets.support
                self._write(support + offsets.pending_call, struct.pack("<i", 0))
                self._write(support + offsets.path, b"\0")

    def _read_offsets(self) -> Offsets:
        numbers = NUMBERS.get(self._target.version)
        if numbers is None:
            raise Refused(f"CPython {self._target.python} has no layout that Headway knows")
        _, support = numbers
        if self._read(self._target.runtime, len(COOKIE)) != COOKIE:
            raise Refused(f"process {self._target.pid}: the file of its interpreter was replaced")
        words = struct.unpack(
            f"<{support + 6}Q", self._read(self._target.runtime, 8 * (support + 6))
        )
        return Offsets(
            finalizing=words[4],
            first_interpreter=words[5],
            interpreter_id=words[7],
            next_interpreter=words[8],
            first_thread=words[9],
            gil_holder=words[19],
            next_thread=words[24],
            eval_breaker=words[support],
            support=words[support + 1],
            enabled=words[support + 2],
            pending_call=words[support + 3],
            path=words[support + 4],
            path_size=words[support + 5],
        )

    def _main_interpreter(self) -> int:
        offsets = self._offsets
        interpreter = self._word(self._target.runtime + offsets.first_interpreter)
        while interpreter:
            if self._word(interpreter + offsets.interpreter_id) == 0:
                return interpreter
            interpreter = self._word(interpreter + offsets.next_interpreter)
        raise Refused(f"process {self._target.pid} has no interpreter yet, or no more")

    def _threads(self, interpreter: int) -> Iterator[int]:
        """The thread states of an interpreter, the newest first."""
        thread = self._word(interpreter + self._offsets.first_thread)
        for _ in range(MOST_LISTED):
            if not thread:
                return
            yield thread
            thread = self._word(thread + self._offsets.next_thread)

    def _read(self, address: int, size: int) -> bytes:
        found = os.pread(self._memory, size, address)
        if len(found) != size:
            raise Refused(f"process {self._target.pid} is ending, or its memory is unreadable")
        return found

    def _word(self, address: int) -> int:
        return int(struct.unpack("<Q", self._read(address, 8))[0])

    def _integer(self, address: int) -> int:
        return int(struct.unpack("<i", self._read(address, 4))[0])

    def _write(self, address: int, data: bytes) -> None:
        os.pwrite(self._memory, data, address)
