"""The reports that the supervisor sends for processes that could not: to which, with what reason,
and how often it tries."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from simulated import Machine, Simulation, settings

from headway import _native
from headway.server.control import Control
from headway.server.settings import Telemetry
from headway.server.supervisor.exit_reports import (
    MAX_WAITING,
    PROCESS_STOPPED,
    ExitReports,
    reason_of,
)
from headway.server.supervisor.process import End, Process

CRASH = End(None, signal.SIGSEGV, False)
STARTED_STAMP = 1_700_000_000.0


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as recorder:
        recorder.bind(str(tmp_path / "recorder"))
        recorder.setblocking(False)
        yield recorder


def reporting(path: Path, *, machine: Machine | None = None, has_begun: bool = True) -> Process:
    """A process that reports to this socket."""
    group = settings({"name": "shop"}).groups[0]
    with socket.socket() as unused:
        process = Process(group, 1, 1, Control(unused), machine or Machine())
    process.pid = 4242
    process.telemetry = Telemetry(str(path))
    process.reports_since = STARTED_STAMP if has_begun else None
    return process


def received(recorder: socket.socket) -> list[tuple[int, int, dict[str, Any]]]:
    """The kind, pid and fields of each datagram that has come."""
    found = []
    while True:
        try:
            kind, pid, _, _, fields = _native.telemetry_parse(recorder.recv(65_536))
        except BlockingIOError:
            return found
        found.append((kind, pid, fields))


def test_a_crash_is_reported_once(recorder: socket.socket, tmp_path: Path) -> None:
    machine = Machine()
    all_of_them = ExitReports(machine.monotonic)
    all_of_them.tell(reporting(tmp_path / "recorder"), CRASH, 7)
    ((kind, pid, fields),) = received(recorder)
    assert (kind, pid) == (PROCESS_STOPPED, 4242)
    assert (fields["process_kind"], fields["process_group"]) == ("serve", "shop")
    assert fields["process_parent_pid"] == os.getpid()
    assert fields["process_started_stamp"] == STARTED_STAMP
    assert (fields["shutdown_reason"], fields["death"]) == ("crash", "killed by SIGSEGV")
    assert fields["lifetime_request_count"] == 7
    assert (fields["graceful_drain"], fields["reported_by_supervisor"]) == (0, 1)
    assert all_of_them.retry_at is None
    all_of_them.send()
    assert received(recorder) == []


def test_a_number_that_is_not_known_is_left_out(recorder: socket.socket, tmp_path: Path) -> None:
    ExitReports(Machine().monotonic).tell(reporting(tmp_path / "recorder"), None, None)
    ((_, _, fields),) = received(recorder)
    assert "lifetime_request_count" not in fields
    assert (fields["shutdown_reason"], fields["death"]) == ("unknown", "unknown")


def test_only_those_are_reported_that_began_and_did_not_report_their_end(
    recorder: socket.socket, tmp_path: Path
) -> None:
    all_of_them = ExitReports(Machine().monotonic)
    path = tmp_path / "recorder"
    without_recorder = reporting(path)
    without_recorder.telemetry = None
    has_reported = reporting(path)
    has_reported.has_reported = True
    for process in (without_recorder, has_reported, reporting(path, has_begun=False)):
        all_of_them.tell(process, CRASH, 7)
    assert received(recorder) == []
    assert all_of_them.retry_at is None


def test_a_recorder_that_is_not_there_is_tried_again(tmp_path: Path) -> None:
    machine = Machine()
    all_of_them = ExitReports(machine.monotonic)
    path = tmp_path / "recorder"
    all_of_them.tell(reporting(path), CRASH, 1)
    for _ in range(5):
        assert all_of_them.retry_at == machine.now + 1.0
        machine.now += 1.0
        all_of_them.send()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as recorder:
        recorder.bind(str(path))
        recorder.setblocking(False)
        machine.now += 1.0
        all_of_them.send()
        assert len(received(recorder)) == 1
    assert all_of_them.retry_at is None


def test_a_recorder_that_never_comes_is_given_up(tmp_path: Path) -> None:
    machine = Machine()
    began = machine.now
    all_of_them = ExitReports(machine.monotonic)
    all_of_them.tell(reporting(tmp_path / "recorder"), CRASH, 1)
    while all_of_them.retry_at is not None:
        machine.now = all_of_them.retry_at
        all_of_them.send()
    assert machine.now - began == 60.0


def test_the_latest_are_kept_where_no_recorder_takes_them(tmp_path: Path) -> None:
    all_of_them = ExitReports(Machine().monotonic)
    path = tmp_path / "recorder"
    for number in range(MAX_WAITING + 44):
        all_of_them.tell(reporting(path), CRASH, number)
    counts = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as recorder:
        recorder.bind(str(path))
        recorder.setblocking(False)
        # The kernel's queue takes a few at once.
        while all_of_them.retry_at is not None:
            all_of_them.send()
            counts += [each[2]["lifetime_request_count"] for each in received(recorder)]
    assert sorted(counts) == list(range(44, MAX_WAITING + 44))


@pytest.mark.parametrize(
    ("end", "reason", "was_oom_kill", "expected"),
    [
        (End(None, signal.SIGSEGV, True), "", False, "crash"),
        (End(9, None, False), "", False, "crash"),
        (End(None, signal.SIGKILL, False), "", False, "crash"),
        (End(None, signal.SIGKILL, False), "", True, "memory_limit"),
        (End(None, signal.SIGSEGV, False), "", True, "crash"),
        (End(0, None, False), "", False, "unknown"),
        (None, "", False, "unknown"),
        (End(None, signal.SIGKILL, False), "request_timeout", True, "request_timeout"),
    ],
)
def test_the_reason(
    tmp_path: Path, end: End | None, reason: str, was_oom_kill: bool, expected: str
) -> None:
    process = reporting(tmp_path / "recorder")
    process.reason = reason
    assert reason_of(process, end, was_oom_kill=was_oom_kill) == expected


def test_the_supervisor_reports_a_crash_when_its_recorder_is_back(tmp_path: Path) -> None:
    path = tmp_path / "recorder"
    with Simulation(telemetry=str(path)) as server:
        (worker,) = server.workers
        worker.sends("reporting", started=STARTED_STAMP)
        server.wait()
        worker.is_ended_by(signal.SIGSEGV)
        server.wait(10)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as recorder:
            recorder.bind(str(path))
            recorder.setblocking(False)
            reports: list[Any] = []
            assert server.time_until(lambda: reports.extend(received(recorder)) or reports) <= 1.0
            ((_, pid, fields),) = reports
        assert (pid, fields["shutdown_reason"]) == (worker.pid, "crash")


@pytest.mark.parametrize("how", ["reports its end", "retires"])
def test_a_process_that_reports_its_own_end_is_not_reported(
    recorder: socket.socket, tmp_path: Path, how: str
) -> None:
    with Simulation(telemetry=str(tmp_path / "recorder")) as server:
        (worker,) = server.workers
        worker.sends("reporting", started=STARTED_STAMP)
        if how == "reports its end":
            worker.sends("reported")
            worker.exits()
        else:
            server.reload()
        server.wait()
        reasons = [each[2]["shutdown_reason"] for each in received(recorder)]
    # Its end by the supervisor's wish has the supervisor's reason.
    assert reasons == ([] if how == "reports its end" else ["graceful_signal"])
