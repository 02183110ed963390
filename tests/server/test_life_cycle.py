"""The rules by which processes start, take each other's places and end, on a clock and with
processes that the test controls. The other files' servers show the same with real ones."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest
from simulated import DAYS_S, Machine, Simulated, Simulation

from headway.address import Address
from headway.errors import CommandError

TWO = {"processes": 2}
BEFORE_ANY_SERVES = "; no request is answered before all processes have started"


def slow_to_import() -> Machine:
    """Its processes report that they are ready when the test has them do so."""
    machine = Machine()
    machine.imports = False
    return machine


def deaf() -> Machine:
    """Its processes end at SIGKILL alone."""
    machine = Machine()
    machine.obeys = False
    return machine


def kill(server: Simulation, process: Simulated) -> None:
    process.is_ended_by(signal.SIGKILL)
    server.wait()


# The first start


def test_no_process_serves_before_all_have_imported(tmp_path: Any) -> None:
    groups = (
        TWO | {"name": "shop", "binds": (Address("localhost", 80, f"{tmp_path}/shop"),)},
        {"name": "docs", "binds": (Address("localhost", 80, f"{tmp_path}/docs"),)},
    )
    with Simulation(*groups, machine=slow_to_import()) as server:
        assert [each.task["number"] for each in server.workers] == [1, 1, 2]
        *others, last = server.machine.started
        for process in others:
            process.sends("ready")
        server.wait(3600)
        assert server.states() == ["ready", "ready", "starting"]
        assert not any(each.commands for each in others)
        assert server.log == []
        last.sends("ready")
        server.wait()
        assert server.states() == ["serving"] * 3
        assert [each.command_names() for each in server.workers] == [["serve"]] * 3
    assert server.log == [
        f"group shop is listening on unix:{tmp_path}/shop",
        f"group docs is listening on unix:{tmp_path}/docs",
    ]


def fails(process: Simulated) -> None:
    process.fails(2, "importing app failed (see above)", "Traceback\nZeroDivisionError\n")


@pytest.mark.parametrize(
    ("how", "exit_code", "message"),
    [
        (fails, 2, "importing app failed (see above)"),
        (
            lambda process: process.exits(9),
            1,
            "process 2 of group main (pid #2) ended with exit status 9 before it could serve",
        ),
        (
            lambda process: process.exits(),
            1,
            "process 2 of group main (pid #2) ended with exit status 0 before it could serve",
        ),
    ],
)
def test_a_process_that_cannot_start_ends_the_server(
    how: Callable[[Simulated], None], exit_code: int, message: str, tmp_path: Any
) -> None:
    path = tmp_path / "socket"
    group = TWO | {"binds": (Address("localhost", 80, str(path)),)}
    with Simulation(group, machine=slow_to_import()) as server:
        first, second = server.workers
        assert path.exists()
        how(second)
        server.wait()
        assert first.signals == [signal.SIGTERM]
        assert not path.exists()
        with pytest.raises(CommandError) as raised:
            server.exit_status()
    assert raised.value.exit_code == exit_code
    assert re.sub(r"pid 5\d+2\b", "pid #2", str(raised.value)) == message
    # The traceback is in the log, and the message is the command's.
    assert server.log == (["Traceback", "ZeroDivisionError"] if how is fails else [])


def test_a_process_that_the_system_refuses_ends_the_server() -> None:
    machine = Machine()
    machine.spawn_error = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    with Simulation(TWO, machine=machine) as server, pytest.raises(CommandError) as raised:
        server.exit_status()
    assert str(raised.value) == (
        "process 1 of group main cannot be started: resource temporarily unavailable"
    )
    assert server.machine.started == []


def test_an_import_has_its_startup_timeout() -> None:
    with Simulation({"startup_timeout_s": 7.0}, machine=slow_to_import()) as server:
        (worker,) = server.workers
        assert server.time_until(lambda: worker.signals) == 7.0
        assert worker.signals == [signal.SIGKILL]
        server.wait()
        with pytest.raises(CommandError, match=r"did not import its application in 7 s \(startup"):
            server.exit_status()


def test_without_a_startup_timeout_an_import_has_all_the_time() -> None:
    with Simulation(machine=slow_to_import()) as server:
        server.wait(DAYS_S)
        assert server.states() == ["starting"]


def test_kills_during_the_first_start_are_retried_later_and_later() -> None:
    """By the kernel for want of memory, say."""
    with Simulation(TWO, machine=slow_to_import()) as server:
        server.workers[1].sends("ready")
        delays = []
        for _ in range(4):
            count = len(server.machine.started)
            server.workers[0].is_ended_by(signal.SIGKILL)
            delays.append(server.time_until(lambda c=count: len(server.machine.started) > c))
        assert delays == [0.0, 0.1, 0.2, 0.4]
        assert server.states() == ["ready", "starting"]
        server.newest().sends("ready")
        server.wait()
        assert server.states() == ["serving", "serving"]
    killed = "was ended by SIGKILL before it could serve"
    assert [line.partition(f"{killed}; ")[2] for line in server.log[:4]] == [
        f"{each}{BEFORE_ANY_SERVES}"
        for each in (
            "starting another",
            "2 times in a row, so another starts in 0.1 s",
            "3 times in a row, so another starts in 0.2 s",
            "4 times in a row, so another starts in 0.4 s",
        )
    ]
    assert "listening on" in server.log[4]


@pytest.mark.parametrize("is_killed_before", [False, True])
def test_sigterm_ends_a_server_that_does_not_serve_yet(is_killed_before: bool) -> None:
    with Simulation(machine=slow_to_import()) as server:
        for _ in range(3 * is_killed_before):
            server.workers[0].is_ended_by(signal.SIGKILL)
            server.time_until(lambda: server.workers)
        if is_killed_before:
            kill(server, server.workers[0])
            assert server.workers == []
        assert server.stop() == 0


# Deaths


def test_a_process_that_died_starts_again_later_and_later() -> None:
    with Simulation(TWO) as server:
        other = server.workers[1]
        delays = []
        for _ in range(12):
            count = len(server.machine.started)
            server.workers[0].exits(3)
            delays.append(server.time_until(lambda c=count: len(server.machine.started) > c))
            server.wait()
        assert delays == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
        assert other.is_alive
    assert server.log[1] == (
        "process 1 of group main (pid #1) ended with exit status 3 while it served; "
        "starting another"
    )
    assert server.log[2].endswith("served; 2 times in a row, so another starts in 0.1 s")


@pytest.mark.parametrize(("served_s", "delay_s"), [(9.99, 0.2), (10.0, 0.0)])
def test_deaths_before_a_process_that_did_well_do_not_count(
    served_s: float, delay_s: float
) -> None:
    with Simulation() as server:
        for _ in range(2):
            kill(server, server.workers[0])
            server.time_until(lambda: server.workers)
            server.wait()
        server.wait(served_s)
        server.workers[0].is_ended_by(signal.SIGSEGV)
        count = len(server.machine.started)
        assert server.time_until(lambda: len(server.machine.started) > count) == delay_s


def test_deaths_of_one_process_are_not_held_against_another() -> None:
    with Simulation(TWO) as server:
        for _ in range(3):
            server.workers[0].is_ended_by(signal.SIGSEGV)
            server.time_until(lambda: len(server.workers) == 2)
            server.wait()
        kill(server, server.workers[1])
        assert len(server.workers) == 2
        assert server.log[-1].endswith("while it served; starting another")
        assert server.deaths() == {"SIGSEGV": 3, "SIGKILL": 1}


def test_a_process_that_cannot_start_while_others_serve_is_retried() -> None:
    with Simulation(TWO) as server:
        server.machine.spawn_error = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        kill(server, server.workers[0])
        assert server.log[-1] == (
            "process 1 of group main cannot be started: cannot allocate memory; starting another"
        )
        server.machine.spawn_error = None
        assert server.time_until(lambda: len(server.workers) == 2) == 1.0


def test_a_crash_loop_at_import_backs_off_and_recovers() -> None:
    with Simulation() as server:
        server.machine.imports = False
        kill(server, server.workers[0])
        delays = []
        for _ in range(4):
            server.newest().exits(9)
            count = len(server.machine.started)
            delays.append(server.time_until(lambda c=count: len(server.machine.started) > c))
        assert delays == [0.1, 0.2, 0.4, 0.8]
        assert server.log[-1].endswith(
            "ended with exit status 9 before it could serve; "
            "5 times in a row, so another starts in 0.8 s"
        )
        server.newest().sends("ready")
        server.wait()
        assert server.states() == ["serving"]


def test_an_import_that_takes_too_long_is_retried_while_others_serve() -> None:
    with Simulation(TWO | {"startup_timeout_s": 5.0}) as server:
        server.machine.imports = False
        kill(server, server.workers[0])
        late = server.newest()
        server.machine.imports = True
        assert server.time_until(lambda: late.signals) == 5.0
        server.time_until(lambda: server.states() == ["serving", "serving"])
    assert "did not import its application in 5 s (startup-timeout); 2 times" in server.log[-1]


# Replacement

REASONS = [
    ("maximum_requests", "50 requests have ended"),
    ("inactivity_timeout", "no request for 5 s"),
    ("request_timeout", "GET /slow has run for 9 s"),
    ("cpu_time_limit", "1 s"),
    ("inactivity_timeout", ""),
]


@pytest.mark.parametrize(("reason", "detail"), REASONS)
def test_a_process_at_a_limit_serves_until_another_is_ready(reason: str, detail: str) -> None:
    with Simulation(TWO) as server:
        first, other = server.workers
        server.machine.imports = False
        first.sends("limit", reason=reason, detail=detail)
        server.wait()
        successor = server.newest()
        assert (successor.number, successor.is_template) == (1, False)
        server.wait(3600)
        assert server.states() == ["serving", "serving", "starting"]
        assert first.command_names() == ["serve"]
        successor.sends("ready")
        server.wait()
        assert successor.command_names() == ["serve"]
        assert first.commands[1:] == [{"command": "retire", "reason": reason, "detail": detail}]
        assert server.workers == [successor, other]
        assert server.states() == ["serving", "serving"]
        assert server.deaths() == {reason: 1}
        assert server.stop() == 0
    why = f"{reason}: {detail}" if detail else reason
    assert server.log[1:] == [f"process 1 of group main (pid #1) is replaced ({why})"]


def test_a_process_at_two_limits_is_replaced_once_for_the_first() -> None:
    with Simulation() as server:
        (first,) = server.workers
        server.machine.imports = False
        first.sends("limit", reason="maximum_requests", detail="50")
        first.sends("limit", reason="request_timeout", detail="GET /")
        server.wait()
        assert server.states() == ["serving", "starting"]
        server.newest().sends("ready")
        server.wait()
        assert server.deaths() == {"maximum_requests": 1}
    assert len(server.log) == 2


@pytest.mark.parametrize("state", ["starting", "ready", "retiring", "stopping"])
def test_a_process_that_does_not_serve_is_not_replaced(state: str) -> None:
    machine = deaf()
    machine.imports = False
    with Simulation(TWO, machine=machine) as server:
        first, other = server.workers
        if state != "starting":
            first.sends("ready")
            server.wait()
        if state in ("retiring", "stopping"):
            server.machine.imports = True
            other.sends("ready")
            server.wait()
            server.reload() if state == "retiring" else server.send(signal.SIGTERM)
        assert server.seen(first).state.value == state
        count = len(server.machine.started)
        first.sends("limit", reason="maximum_requests", detail="50")
        server.wait()
        assert len(server.machine.started) == count
    assert "is replaced" not in "".join(server.log)


def test_a_successor_that_does_not_serve_yet_is_not_replaced() -> None:
    with Simulation() as server:
        server.machine.imports = False
        server.workers[0].sends("limit", reason="maximum_requests", detail="50")
        server.wait()
        server.newest().sends("limit", reason="inactivity_timeout", detail="5 s")
        server.wait()
        assert server.states() == ["serving", "starting"]
    assert len(server.log) == 2


def test_a_restart_interval_is_one_of_service() -> None:
    """Up to a tenth earlier, so that not all end at once; the time of imports does not count."""
    machine = slow_to_import()
    with Simulation({"restart_interval_s": 100.0}, machine=machine) as server:
        server.wait(1000)
        (worker,) = server.workers
        intervals = []
        for _ in range(20):
            worker.sends("ready")
            server.wait()
            count = len(server.machine.started)
            intervals.append(server.time_until(lambda c=count: len(server.machine.started) > c))
            server.wait(30)
            assert server.states() == ["serving", "starting"]
            worker = server.newest()
    assert all(90 <= each <= 100.01 for each in intervals)
    assert len(set(intervals)) > 10
    assert server.log[1] == "process 1 of group main (pid #1) is replaced (restart_interval)"


def test_a_successor_that_cannot_start_leaves_the_former_in_its_place() -> None:
    with Simulation() as server:
        (first,) = server.workers
        server.machine.imports = False
        first.sends("limit", reason="maximum_requests", detail="50")
        server.wait()
        delays = []
        for _ in range(3):
            server.newest().fails(1, "importing app failed", "Traceback")
            count = len(server.machine.started)
            delays.append(server.time_until(lambda c=count: len(server.machine.started) > c))
        assert delays == [0.0, 0.1, 0.2]
        assert first.command_names() == ["serve"]
        assert server.log[-2:] == [
            "Traceback",
            "importing app failed; 3 times in a row, so another starts in 0.2 s",
        ]
        server.newest().sends("ready")
        server.wait()
        assert not first.is_alive
        assert server.states() == ["serving"]


def test_a_death_while_a_successor_starts_starts_no_other() -> None:
    with Simulation() as server:
        (first,) = server.workers
        server.machine.imports = False
        first.sends("limit", reason="maximum_requests", detail="50")
        server.wait()
        kill(server, first)
        server.wait(60)
        assert len(server.machine.started) == 2
        server.newest().sends("ready")
        server.wait()
        assert server.states() == ["serving"]
    assert server.log[-1].endswith("was ended by SIGKILL while it served; another is starting")
    # The reason was known before the signal.
    assert server.deaths() == {"maximum_requests": 1}


def test_a_deadlocked_process_ends_before_another_is_ready() -> None:
    group = {"shutdown_timeout_s": 3.0}
    with Simulation(group, machine=deaf()) as server:
        (first,) = server.workers
        server.machine.imports = False
        first.sends("limit", reason="deadlock_timeout", detail="thread 1 holds the GIL")
        server.wait()
        assert first.signals == [signal.SIGTERM]
        assert server.states() == ["stopping", "starting"]
        assert server.time_until(lambda: not first.is_alive) == 3.0
        server.machine.imports = True
        server.newest().sends("ready")
        server.wait()
        assert server.states() == ["serving"]
        assert server.deaths() == {"deadlock_timeout": 1}
        server.newest().obeys = True
        assert server.stop() == 0, "that one was killed is long over"
    assert server.log[1:] == [
        "process 1 of group main (pid #1) is replaced (deadlock_timeout: thread 1 holds the GIL)",
        "process 1 of group main (pid #1) does not end, and is killed",
    ]


# Retirement


@pytest.mark.parametrize(
    ("graceful_s", "shutdown_s", "killed_after_s"),
    [(15.0, 5.0, 22.0), (0.0, 5.0, 7.0), (60.0, 1.0, 63.0), (15.0, 0.0, None)],
)
def test_a_process_that_retires_has_its_timeouts(
    graceful_s: float, shutdown_s: float, killed_after_s: float | None
) -> None:
    group = {"graceful_timeout_s": graceful_s, "shutdown_timeout_s": shutdown_s}
    with Simulation(group, machine=deaf()) as server:
        (first,) = server.workers
        server.reload()
        assert first.command_names() == ["serve", "retire"]
        if killed_after_s is None:
            server.wait(DAYS_S)
            assert first.is_alive
        else:
            assert server.time_until(lambda: not first.is_alive) == killed_after_s
            server.wait()
            assert server.log[-1] == "process 1 of group main (pid #1) does not end, and is killed"
            assert server.deaths() == {"graceful_signal": 1}
        server.newest().obeys = True
        first.obeys = True
        assert server.stop() == 0


def test_a_process_that_cannot_hear_is_terminated() -> None:
    with Simulation(machine=deaf()) as server:
        (first,) = server.workers
        first.control.close()
        first.control = None
        server.reload()
        assert first.signals == [signal.SIGTERM]


def test_without_a_request_under_way_the_rest_is_for_the_shutdown_timeout() -> None:
    group = {"graceful_timeout_s": 60.0, "shutdown_timeout_s": 5.0}
    with Simulation(group, machine=deaf()) as server:
        (first,) = server.workers
        server.reload()
        server.wait(2)
        first.sends("stopped")
        server.wait()
        assert server.seen(first).state.value == "stopping"
        assert server.time_until(lambda: not first.is_alive) == 5.0


def test_months_of_time_are_no_problem() -> None:
    group = {"graceful_timeout_s": 60 * 86_400.0, "restart_interval_s": 60 * 86_400.0}
    with Simulation(group, machine=deaf()) as server:
        (first,) = server.workers
        server.reload()
        server.wait(53 * 86_400)
        assert server.states() == ["retiring", "serving"]
        server.time_until(lambda: first.signals)
        assert first.signals == [signal.SIGKILL]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (lambda each: each.is_ended_by(signal.SIGSEGV), "was ended by SIGSEGV while it retired"),
        (lambda each: each.exits(1), "ended with exit status 1 while it retired"),
        (lambda each: each.exits(0), None),
    ],
)
def test_a_crash_of_a_process_that_retires_is_logged(
    how: Callable[[Simulated], None], expected: str | None
) -> None:
    with Simulation(machine=deaf()) as server:
        (first,) = server.workers
        server.reload()
        how(first)
        server.wait()
        server.newest().obeys = True
        assert server.stop() == 0, "long over when the server ends"
    # It is not started again.
    assert len(server.machine.started) == 2
    if expected is None:
        assert server.log[-1] == "generation 2 serves, 1 retires"
    else:
        assert server.log[-1] == f"process 1 of group main (pid #1) {expected}"


def test_an_exit_status_of_a_process_that_retired_is_not_the_servers() -> None:
    """As of one whose requests were cut off."""
    with Simulation(machine=deaf()) as server:
        (first,) = server.workers
        server.reload()
        first.sends("stopped")
        first.exits(1)
        server.wait()
        server.newest().obeys = True
        assert server.stop() == 0
    assert (
        server.log[-1]
        == "process 1 of group main (pid #1) ended with exit status 1 while it stopped"
    )


# The end


def test_at_sigterm_no_connection_gets_in_and_those_that_are_in_are_answered(
    tmp_path: Any,
) -> None:
    path = tmp_path / "socket"
    group = TWO | {"binds": (Address("localhost", 80, str(path)),)}
    with Simulation(group, machine=deaf()) as server:
        first, second = server.workers
        server.send(signal.SIGTERM)
        assert not path.exists()
        assert first.signals == second.signals == [signal.SIGTERM]
        addresses = lambda: server.listeners.addresses_of(server.settings.groups[0])  # noqa: E731
        assert addresses()
        first.sends("closed")
        server.wait()
        assert addresses(), "the second may accept from it"
        second.sends("closed")
        server.wait()
        assert not addresses()
        server.wait(10)
        assert server.states() == ["stopping", "stopping"], "requests are under way"
        for each in (first, second):
            each.exits()
        server.wait()
        assert server.exit_status() == 0
        assert server.deaths() == {"shutdown_signal": 2}


@pytest.mark.parametrize(
    ("graceful_s", "shutdown_s", "killed_after_s"), [(15.0, 5.0, 22.0), (0.5, 0.5, 3.0)]
)
def test_a_process_that_cannot_end_is_killed(
    graceful_s: float, shutdown_s: float, killed_after_s: float
) -> None:
    group = {"graceful_timeout_s": graceful_s, "shutdown_timeout_s": shutdown_s}
    with Simulation(group, machine=deaf()) as server:
        server.send(signal.SIGTERM)
        assert server.time_until(server.supervisor.is_over) == killed_after_s
        assert server.exit_status() == 1
    assert server.log[-1] == "process 1 of group main (pid #1) does not end, and is killed"


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (lambda each: each.is_ended_by(signal.SIGKILL), "was ended by SIGKILL while it stopped"),
        (lambda each: each.exits(1), "ended with exit status 1 while it stopped"),
    ],
)
def test_the_exit_status_tells_of_a_process_that_died_at_the_end(
    how: Callable[[Simulated], None], expected: str
) -> None:
    with Simulation(TWO, machine=deaf()) as server:
        first, second = server.workers
        server.send(signal.SIGTERM)
        second.exits()
        how(first)
        server.wait()
        assert server.exit_status() == 1
    assert server.log[1:] == [f"process 1 of group main (pid #1) {expected}"]


def test_the_exit_status_does_not_tell_of_a_process_that_was_killed_before() -> None:
    """Its end is seen together with the signal."""
    group = {"deadlock_timeout_s": 4.0, "shutdown_timeout_s": 2.0}
    with Simulation(group) as server:
        (worker,) = server.workers
        worker.stops()
        server.time_until(lambda: not worker.is_alive)
        server.send(signal.SIGTERM)
        assert server.exit_status() == 0
    assert server.log[-1] == "process 1 of group main (pid #1) does not end, and is killed"


@pytest.mark.parametrize("at_end", ["starts", "waits to start", "is replaced"])
def test_no_process_starts_after_sigterm(at_end: str) -> None:
    with Simulation() as server:
        (worker,) = server.workers
        server.machine.imports = False
        if at_end == "is replaced":
            worker.sends("limit", reason="maximum_requests", detail="50")
            server.wait()
        else:
            kill(server, worker)
        if at_end == "waits to start":
            kill(server, server.newest())
            assert server.workers == []
        count = len(server.machine.started)
        assert server.stop() == 0
        assert len(server.machine.started) == count
        assert not server.machine.alive


def test_a_process_that_waits_to_start_again_does_not_after_sigterm() -> None:
    with Simulation(TWO, machine=deaf()) as server:
        for _ in range(3):
            kill(server, server.workers[0])
        assert len(server.workers) == 1
        server.send(signal.SIGTERM)
        server.wait(5)
        assert len(server.workers) == 1


def test_a_process_that_dies_after_sigterm_is_not_started_again() -> None:
    with Simulation(TWO, machine=deaf()) as server:
        first, second = server.workers
        server.send(signal.SIGTERM)
        kill(server, first)
        server.wait(5)
        assert server.machine.alive == [second]


@pytest.mark.parametrize(
    ("second", "after_s", "ends"),
    [
        (signal.SIGTERM, 0.0, False),
        (signal.SIGTERM, 0.09, False),
        (signal.SIGTERM, 0.11, True),
        (signal.SIGINT, 0.11, True),
        (signal.SIGQUIT, 0.0, True),
    ],
)
def test_a_second_signal_ends_all_at_once(
    second: signal.Signals, after_s: float, ends: bool
) -> None:
    """But not one that comes with the first: `timeout` sends its child two."""
    with Simulation(TWO, machine=deaf()) as server:
        workers = server.workers
        server.send(signal.SIGTERM)
        server.wait(after_s)
        server.send(second)
        assert server.supervisor.ended_by == (second if ends else None)
        assert [each.signals[1:] for each in workers] == [[signal.SIGKILL] * ends] * 2
        assert server.supervisor.is_over() == ends
    assert len(server.log) == 1, "nothing of who is killed so"


def test_a_second_signal_waits_for_processes_that_say_nothing() -> None:
    with Simulation(TWO, machine=deaf()) as server:
        server.workers[0].stops()
        server.send(signal.SIGINT)
        server.wait(1)
        server.send(signal.SIGTERM)
        assert server.supervisor.is_over()


def test_sigquit_ends_everything_at_once() -> None:
    with Simulation(TWO) as server:
        workers = server.workers
        server.send(signal.SIGQUIT)
        assert [each.signals[-1] for each in workers] == [signal.SIGKILL] * 2
        assert server.supervisor.ended_by == signal.SIGQUIT
        assert server.supervisor.is_over()
    assert server.log[1:] == ["SIGQUIT: all processes are killed"]


def test_sigusr2_has_no_meaning() -> None:
    with Simulation() as server:
        server.send(signal.SIGUSR2)
        assert server.log[-1] == ("SIGUSR2 has no meaning here; SIGHUP starts a new generation")
        assert server.workers[0].signals == []


# Processes that a signal has stopped


def test_a_process_that_stays_stopped_is_replaced() -> None:
    group = {"deadlock_timeout_s": 300.0, "shutdown_timeout_s": 5.0}
    with Simulation(group) as server:
        (worker,) = server.workers
        worker.stops()
        assert server.time_until(lambda: len(server.workers) == 2) == 300.0
        assert worker.signals == [signal.SIGTERM]
        assert server.time_until(lambda: not worker.is_alive) == 5.0
        server.wait()
        assert server.states() == ["serving"]
        assert server.deaths() == {"deadlock_timeout": 1}
    assert server.log[1:] == [
        "process 1 of group main (pid #1) is stopped by SIGSTOP",
        "process 1 of group main (pid #1) is replaced (deadlock_timeout: stopped for 300 s)",
        "process 1 of group main (pid #1) does not end, and is killed",
    ]


@pytest.mark.parametrize("deadlock_timeout_s", [0.0, 300.0])
def test_a_process_that_is_stopped_for_a_while_goes_on(deadlock_timeout_s: float) -> None:
    """Without a deadlock timeout that may be for ever."""
    with Simulation({"deadlock_timeout_s": deadlock_timeout_s}) as server:
        (worker,) = server.workers
        worker.stops(signal.SIGTSTP)
        server.wait(299.0 if deadlock_timeout_s else DAYS_S)
        worker.goes_on()
        server.wait(3600)
        assert server.workers == [worker]
        assert server.states() == ["serving"]
    assert server.log[1:] == [
        "process 1 of group main (pid #1) is stopped by SIGTSTP",
        "process 1 of group main (pid #1) goes on",
    ]


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_process_that_is_stopped_before_it_serves_is_killed(is_ready: bool) -> None:
    with Simulation(TWO, machine=slow_to_import()) as server:
        first, other = server.workers
        if is_ready:
            first.sends("ready")
            server.wait()
        first.stops()
        server.machine.imports = True
        assert server.time_until(lambda: not first.is_alive) == 300.0
        server.wait()
        other.sends("ready")
        server.wait()
        assert server.states() == ["serving", "serving"]
    assert server.log[:3] == [
        "process 1 of group main (pid #1) is stopped by SIGSTOP",
        "process 1 of group main (pid #1) is killed (deadlock_timeout: stopped for 300 s)",
        "process 1 of group main (pid #1) was ended by SIGKILL before it could serve; "
        f"starting another{BEFORE_ANY_SERVES}",
    ]


# Messages that make no sense: the application can write to the socket, too


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"event": "ready"},
        {"event": "started"},
        {"event": "started", "pid": 1},
        {"event": "limit"},
        {"event": "failed", "exit_code": "x", "message": None},
        {"event": "failed", "exit_code": 1e999, "message": "", "details": ""},
        {"event": "files", "states": 7},
        {"event": "gil"},
        {"event": "gil", "enabled": True, "undeclared": 7},
        {"event": "requests", "count": [], "interpreters": {}},
        {"event": "requests", "count": 7, "interpreters": []},
        {"event": "reporting", "started": "now"},
        {"event": ["stopped"]},
    ],
    ids=repr,
)
def test_nothing_that_a_process_sends_ends_the_supervisor(message: dict[str, Any]) -> None:
    with Simulation() as server:
        (worker,) = server.workers
        for _ in range(3):
            assert worker.control.send(message, wait=False)
        server.wait()
        assert server.states() == ["serving"]
        server.reload()
        assert server.states() == ["serving"]
        assert server.stop() == 0


def test_a_process_cannot_pass_for_another() -> None:
    with Simulation(TWO) as server:
        first, second = server.workers
        first.sends("started", pid=second.pid)
        server.wait()
        kill(server, second)
        assert server.workers[0] is first
        assert server.log[-1].startswith("process 2 of group main (pid #2) was ended by SIGKILL")


def test_the_last_message_of_a_process_counts() -> None:
    """Of a loop that reads a part of many messages at once."""
    machine = slow_to_import()
    with Simulation(machine=machine) as server:
        (worker,) = server.workers
        for _ in range(120):
            worker.sends("nothing")
        worker.fails(2, "importing app failed (see above)")
        server.wait()
        with pytest.raises(CommandError, match="importing app failed"):
            server.exit_status()


@pytest.mark.parametrize("is_read", [True, False])
def test_the_last_message_of_a_process_counts_whatever_it_has_read(is_read: bool) -> None:
    """`headway status` may ask it at the same time."""
    with Simulation() as server:
        (worker,) = server.workers
        worker.is_stopped = True
        server.send(signal.SIGUSR1)
        worker.sends("limit", reason="maximum_requests", detail="50")
        if not is_read:
            worker.control.close()
            worker.control = None
        worker.exits()
        server.wait()
        assert server.deaths() == {"maximum_requests": 1}


@pytest.mark.parametrize("data", [b"{", b"7", b"\xff" * 1000, b"[" * 60_000])
def test_a_datagram_that_is_no_message_is_ignored(data: bytes) -> None:
    with Simulation() as server:
        (worker,) = server.workers
        worker.control.socket.send(data)
        worker.sends("limit", reason="maximum_requests", detail="50")
        server.wait()
        assert server.deaths() == {"maximum_requests": 1}


def test_modules_that_declare_nothing_are_logged_once_for_a_group() -> None:
    with Simulation(TWO) as server:
        for worker in server.workers:
            worker.sends("gil", enabled=False, undeclared=["slow", "old"])
            worker.sends("gil", enabled=False, undeclared=["slow"])
        server.wait()
        assert [server.seen(each).undeclared for each in server.workers] == [["slow", "old"]] * 2
    assert [line.split("the module ")[1].split()[0] for line in server.log[1:]] == ["slow", "old"]
