"""The rules by which a process's sub-interpreters are made, replaced and ended, on a clock and with
a native part that the test controls. test_interpreters.py shows the same with real ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from headway.errors import CommandError
from headway.server.settings import ApplicationGroup, Mount, ProcessGroup
from headway.server.worker.application import ImportFailed
from headway.server.worker.interpreter_manager import InterpreterManager
from headway.server.worker.interpreter_slots import Layout

SHOP = ApplicationGroup("shop")
# For `server_next_wanted` to return when the server is over.
OVER = None


class Native:
    """Records the functions that a manager calls. `wanted` are the answers to it in order; one may
    be a function, which is called first and has nothing wanted."""

    def __init__(self, *wanted: int | Callable[[], None] | None) -> None:
        self.now = 1000.0
        self.calls: list[tuple[Any, ...]] = []
        self.patiences_s: list[float] = []
        # Interpreters with a worker thread in them; answers of those whose applications cannot be
        # loaded; threads that are left when an interpreter ends.
        self.occupied: set[str] = set()
        self.answers: dict[str, str] = {}
        self.threads_left: dict[str, int] = {}
        self.refusal: Exception | None = None
        self._wanted = list(wanted)
        self._made = 0

    def clock(self) -> float:
        return self.now

    def server_next_wanted(self, server: object, patience_ns: int) -> int | None:
        self.patiences_s.append(patience_ns / 1e9)
        answer = self._wanted.pop(0)
        if callable(answer):
            answer()
            return -1
        return answer

    def interpreter_create(self, own_gil: bool, threads: int) -> str:
        if self.refusal is not None:
            raise self.refusal
        self._made += 1
        return f"#{self._made}"

    def interpreter_enter(self, interpreter: str, path: object, task: str) -> str | None:
        self.calls.append(("enter", interpreter, json.loads(task)["name"]))
        return self.answers.get(interpreter)

    def interpreter_end(self, interpreter: str) -> int:
        self.calls.append(("end", interpreter))
        return self.threads_left.get(interpreter, 0)

    def server_admit(self, server: object, slot: int, interpreter: str | None) -> None:
        self.calls.append(("admit", slot, interpreter))

    def server_retire(self, server: object, interpreter: str, timeout_ns: int) -> bool:
        return interpreter not in self.occupied

    def gil_match_interpreters(self) -> None:
        pass


def manager(native: Native, *groups: ApplicationGroup, **fields: Any) -> InterpreterManager:
    mounts = tuple(Mount(f"/{each.name}", "app:app", each.name) for each in groups)
    group = ProcessGroup(mounts=mounts, application_groups=groups, **fields)
    slots = Layout(group).slots
    return InterpreterManager(
        object(), group, slots, [{}], False, [], False, clock=native.clock, native=native
    )


def run(native: Native, *groups: ApplicationGroup, **fields: Any) -> InterpreterManager:
    """From the start to the end of the server."""
    it = manager(native, *groups, **fields)
    it.settle()
    it.join()
    return it


def test_interpreters_are_made_at_the_start_and_end_with_the_server() -> None:
    native = Native(OVER)
    it = run(native, SHOP, ApplicationGroup("docs", on_demand=True))
    assert native.calls == [("enter", "#1", "shop"), ("admit", 0, "#1"), ("end", "#1")]
    assert (it.made(0), it.made(1)) == (1, 0)


def test_an_interpreter_on_demand_is_made_when_it_is_wanted() -> None:
    native = Native(1, OVER)
    it = run(native, SHOP, ApplicationGroup("docs", on_demand=True))
    assert native.calls[2:4] == [("enter", "#2", "docs"), ("admit", 1, "#2")]
    assert {("end", "#1"), ("end", "#2")} == set(native.calls[4:])
    assert (it.made(0), it.made(1)) == (1, 1)


def test_a_new_interpreter_serves_before_the_former_ends() -> None:
    native = Native(0, 0, OVER)
    it = run(native, SHOP)
    assert native.calls == [
        ("enter", "#1", "shop"),
        ("admit", 0, "#1"),
        ("enter", "#2", "shop"),
        ("admit", 0, "#2"),
        ("end", "#1"),
        ("enter", "#3", "shop"),
        ("admit", 0, "#3"),
        ("end", "#2"),
        ("end", "#3"),
    ]
    assert it.made(0) == 3
    assert set(native.patiences_s) == {-1e-9}, "nothing to look after meanwhile"


def test_an_interpreter_ends_when_its_last_thread_has_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    native = Native()
    ended: list[bool] = []

    def look() -> None:
        ended.append(("end", "#1") in native.calls)

    native.occupied.add("#1")
    native._wanted = [0, look, look, lambda: native.occupied.clear(), look, OVER]
    run(native, SHOP)
    assert ended == [False, False, True]
    assert native.patiences_s == pytest.approx([-1e-9, 0.1, 0.1, 0.1, -1e-9, -1e-9])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("graceful_s", "shutdown_s", "limit_s"), [(15.0, 5.0, 15.0), (0.0, 5.0, 5.0)]
)
def test_a_thread_that_stays_is_logged_once(
    capsys: pytest.CaptureFixture[str], graceful_s: float, shutdown_s: float, limit_s: float
) -> None:
    native = Native()
    lines: list[str] = []

    def pass_time(seconds: float) -> Callable[[], None]:
        def step() -> None:
            lines.append(capsys.readouterr().err)
            native.now += seconds

        return step

    native.occupied.add("#1")
    native._wanted = [
        *(0, pass_time(limit_s - 0.01), pass_time(0.01)),
        *(pass_time(3600), pass_time(3600), lambda: native.occupied.clear(), OVER),
    ]
    run(native, SHOP, graceful_timeout_s=graceful_s, shutdown_timeout_s=shutdown_s)
    assert [line.count("\n") for line in lines] == [0, 0, 1, 0]
    assert lines[2].endswith(
        "application group shop: a worker thread has not left the former interpreter after "
        f"{limit_s:g} s; it stays until it has\n"
    )
    assert ("end", "#1") in native.calls


def test_an_application_that_can_no_longer_be_loaded_leaves_the_former_interpreter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    native = Native(0, 0, OVER)
    native.answers["#2"] = json.dumps(
        {"message": "importing app failed", "details": "Traceback\n1 / 0", "exit_code": 1}
    )
    it = run(native, SHOP)
    assert native.calls[2:6] == [
        ("enter", "#2", "shop"),
        ("end", "#2"),
        ("admit", 0, None),
        ("enter", "#3", "shop"),
    ]
    assert it.made(0) == 2
    lines = capsys.readouterr().err
    assert "Traceback\n1 / 0\n" in lines
    assert lines.endswith("application group shop: importing app failed\n")


def test_an_interpreter_that_cannot_be_had_leaves_the_former(
    capsys: pytest.CaptureFixture[str],
) -> None:
    native = Native()

    def refuse() -> None:
        native.refusal = RuntimeError("out of memory")

    native._wanted = [refuse, 0, OVER]
    run(native, SHOP)
    assert native.calls[2:] == [("admit", 0, None), ("end", "#1")]
    assert "no interpreter for shop: out of memory\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (
            json.dumps({"message": "importing app failed", "details": "Traceback"}),
            ImportFailed,
            "importing app failed",
        ),
        (
            json.dumps({"message": "no attribute", "details": "", "exit_code": 2}),
            CommandError,
            "no attribute",
        ),
        ("SystemError", CommandError, "the interpreter could not be prepared: SystemError"),
    ],
)
def test_a_start_that_fails_leaves_no_interpreter(
    answer: str, error: type[CommandError], message: str
) -> None:
    native = Native()
    native.answers["#2"] = answer
    it = manager(native, SHOP, ApplicationGroup("docs"))
    with pytest.raises(error, match=message):
        it.settle()
    assert native.calls[2:] == [("enter", "#2", "docs"), ("end", "#2"), ("end", "#1")]


def test_threads_that_an_interpreter_leaves_are_logged(capsys: pytest.CaptureFixture[str]) -> None:
    native = Native(0, OVER)
    native.threads_left["#1"] = 2
    run(native, SHOP)
    assert capsys.readouterr().err.endswith(
        "application group shop: 2 of its threads did not end, so its interpreter stays until "
        "the process ends\n"
    )


def test_an_interpreter_with_a_thread_in_it_stays_at_the_end() -> None:
    native = Native(0, OVER)
    native.occupied.update(("#1", "#2"))
    run(native, SHOP)
    assert not any(each[0] == "end" for each in native.calls)
