"""The manager: one thread that makes, replaces and ends the sub-interpreters of a process.

A single thread does this, because CPython requires that the thread that made an interpreter ends
it. Worker threads enter and leave the interpreters without the manager. The manager makes the
interpreters that are needed at the start before the process serves, and the others at their first
request. It replaces an interpreter that has reached its limit before it ends that interpreter. The
manager uses the native part and no sockets.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from headway import _native
from headway.errors import CommandError
from headway.server.settings import ProcessGroup
from headway.server.stderr import say
from headway.server.system import Clock
from headway.server.worker import gil_events, imported_files, search_path
from headway.server.worker.application import ImportFailed
from headway.server.worker.interpreter_slots import InterpreterSlot, interval_ns, mounts_of
from headway.server.worker.native_limits import drain_s, to_ns

# CPython keeps the C state of these modules for the whole process. State that an own-GIL
# interpreter made is freed with that interpreter, while others still use it. In 3.12 the state
# includes the names of the keyword arguments with which the Python modules call C functions.
FOR_THE_MAIN_INTERPRETER = {
    (3, 12): ("datetime", "decimal", "hashlib", "ssl"),
    (3, 13): ("_datetime",),
}
# The interval at which the manager checks whether the last thread has left a replaced interpreter.
LOOK_S = 0.1
# The time that a thread gets to leave an interpreter when the server ends.
MOMENT_S = 1.0


class InterpreterManager:
    """The thread that owns the server constructs this object, and calls `settle` and `join`."""

    def __init__(
        self,
        server: Any,
        group: ProcessGroup,
        slots: Sequence[InterpreterSlot],
        about: Sequence[Mapping[str, object]],
        multiprocess: bool,
        path: Sequence[str],
        reported: bool,
        *,
        clock: Clock = time.monotonic,
        native: Any = _native,
    ) -> None:
        """`server` is the native server, whose slots the interpreters fill. `about` has, for each
        listener, variables for the environ of requests; `path` is the initial sys.path of an
        interpreter. With `reported`, the passes of the garbage collectors are reported. `native`
        has the functions that make and end interpreters."""
        self._clock = clock
        self._native = native
        self._server = server
        self._group = group
        self._slots = slots
        self._about = about
        self._multiprocess = multiprocess
        self._path = path
        self._reported = reported
        # The native handle of the interpreter in each slot.
        self._interpreters: dict[int, Any] = {}
        # The number of interpreters that each slot has had.
        self._made = [0] * len(slots)
        # Replaced interpreters, their names, and the time at which the log says that a thread is
        # still in the interpreter.
        self._retiring: list[tuple[Any, str, float]] = []
        self._settled = threading.Event()
        self._failure: CommandError | None = None
        # Not a daemon: the end of the program waits for it, as for the application's threads.
        self._thread = threading.Thread(target=self._keep, name="headway-manager", daemon=False)

    def made(self, index: int) -> int:
        """The number of interpreters that a slot has had."""
        return self._made[index]

    def settle(self) -> None:
        """Makes the interpreters that are needed at the start. Raises `CommandError` or
        `ImportFailed` if an application cannot be loaded; then no interpreter is left."""
        self._thread.start()
        self._settled.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def join(self) -> None:
        """Waits until the interpreters have ended; call it after the server has ended."""
        self._thread.join()

    def _keep(self) -> None:
        if any(each.group.own_gil for each in self._slots):
            _import_for_others()
        try:
            for index, slot in enumerate(self._slots):
                if not (slot.is_main or slot.group.on_demand):
                    self._replace(index, self._make(slot))
        except CommandError as error:
            self._failure = error
        finally:
            self._settled.set()
        while self._failure is None:
            patience_ns = to_ns(LOOK_S) if self._retiring else -1
            wanted = self._native.server_next_wanted(self._server, patience_ns)
            if wanted is None:
                break
            if wanted >= 0:
                self._renew(wanted)
            self._end_retired()
        self._end_all()

    def _renew(self, index: int) -> None:
        slot = self._slots[index]
        try:
            self._replace(index, self._make(slot))
        except CommandError as error:
            if isinstance(error, ImportFailed):
                say(error.details)
            say(f"application group {slot.name}: {error}")
            # A former interpreter in this slot continues to serve.
            self._native.server_admit(self._server, index, None)

    def _make(self, slot: InterpreterSlot) -> Any:
        """Returns a new interpreter with the application loaded. Raises `CommandError`."""
        group = slot.group
        try:
            interpreter = self._native.interpreter_create(group.own_gil, self._group.threads)
        except RuntimeError as error:
            raise CommandError(f"no interpreter for {slot.name}: {error}") from None
        task = json.dumps(self._task(slot))
        try:
            answer = self._native.interpreter_enter(interpreter, self._path, task)
        except Exception as error:
            # Any other exception would end the manager, and threads would wait for it for ever.
            self._end(interpreter, slot.name)
            raise CommandError(f"the interpreter of {slot.name}: {error}") from error
        if answer is None:
            return interpreter
        self._end(interpreter, slot.name)
        raise _failure_of(answer)

    def _task(self, slot: InterpreterSlot) -> dict[str, object]:
        group = slot.group
        return {
            "name": slot.name,
            "mounts": [
                (each.path, each.application) for each in mounts_of(self._group, group.name)
            ],
            "search_path": search_path.parts(self._group, group),
            "own_gil": group.own_gil,
            # A shared GIL has the process's interval; under a policy, threads have their own.
            "switch_interval_s": self._interval_s(slot) if group.own_gil else None,
            "stack_size_bytes": self._group.stack_size_bytes,
            "thread_interval_ns": None if group.own_gil else interval_ns(group) or None,
            "reported": self._reported,
            "control_fd": gil_events.descriptor_for_others(),
            "files_fd": imported_files.descriptor_for_others(),
            "restricted": (group.restrict_stdin, group.restrict_stdout, group.restrict_signal),
            "environs": [
                {**each, **slot.about(self._group.threads, self._multiprocess)}
                for each in self._about
            ],
        }

    def _interval_s(self, slot: InterpreterSlot) -> float | None:
        own = slot.group.switch_interval_s
        return self._group.switch_interval_s if own is None else own

    def _replace(self, index: int, interpreter: Any) -> None:
        self._native.server_admit(self._server, index, interpreter)
        self._made[index] += 1
        former = self._interpreters.get(index)
        self._interpreters[index] = interpreter
        if former is not None:
            until = self._clock() + drain_s(self._group)
            self._retiring.append((former, self._slots[index].name, until))

    def _end_retired(self) -> None:
        still = []
        for interpreter, name, until in self._retiring:
            if self._native.server_retire(self._server, interpreter, 0):
                self._end(interpreter, name)
                continue
            if self._clock() >= until:
                say(
                    f"application group {name}: a worker thread has not left the former "
                    f"interpreter after {drain_s(self._group):g} s; it stays until it has"
                )
                until = float("inf")
            still.append((interpreter, name, until))
        self._retiring = still

    def _end_all(self) -> None:
        for index, interpreter in self._interpreters.items():
            self._retiring.append((interpreter, self._slots[index].name, 0.0))
        for interpreter, name, _ in self._retiring:
            if self._native.server_retire(self._server, interpreter, to_ns(MOMENT_S)):
                self._end(interpreter, name)

    def _end(self, interpreter: Any, name: str) -> None:
        """Ends an interpreter: its atexit handlers run, and its threads are waited for."""
        threads = self._native.interpreter_end(interpreter)
        if threads:
            say(
                f"application group {name}: {threads} of its threads did not end, so its "
                "interpreter stays until the process ends"
            )
        else:
            # The meter closes the counters of the interpreter.
            self._native.gil_match_interpreters()


def _import_for_others() -> None:
    for name in FOR_THE_MAIN_INTERPRETER.get(sys.version_info[:2], ()):
        # A Python build may lack a module.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _failure_of(answer: str) -> CommandError:
    try:
        told = json.loads(answer)
    except ValueError:
        # An exception came before `sub_interpreter.enter` ran, so the answer is not JSON.
        return CommandError(f"the interpreter could not be prepared: {answer}")
    if told["details"]:
        return ImportFailed(told["message"], told["details"])
    return CommandError(told["message"], exit_code=told["exit_code"])
