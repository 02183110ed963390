"""Generations and templates, on a clock and with processes that the test controls: SIGHUP, starts
that are abandoned, and processes that are forked."""

from __future__ import annotations

import errno
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from launch import ADDRESS_NOT_AVAILABLE
from simulated import DAYS_S, Machine, Simulation

from headway.address import Address
from headway.errors import CommandError

TWO = {"processes": 2}
PRELOADED = TWO | {"preload": True}
BEFORE_ANY_SERVES = "; no request is answered before all processes have started"


def unix(*paths: Path) -> tuple[Address, ...]:
    return tuple(Address("localhost", 80, str(path)) for path in paths)


# SIGHUP


def test_a_generation_serves_when_all_of_it_is_ready() -> None:
    with Simulation(TWO) as server:
        first = server.workers
        server.machine.imports = False
        server.reload(TWO | {"threads": 2})
        *_, third, fourth = server.machine.started
        assert third.task["group"] != first[0].task["group"]
        third.sends("ready")
        server.wait(DAYS_S)
        assert server.states() == ["serving", "serving", "ready", "starting"]
        assert [each.command_names() for each in (*first, third)] == [["serve"], ["serve"], []]
        fourth.sends("ready")
        server.wait()
        assert server.states() == ["serving", "serving"]
        assert third.command_names() == fourth.command_names() == ["serve"]
        for each in first:
            assert each.commands[1:] == [
                {"command": "retire", "reason": "graceful_signal", "detail": ""}
            ]
        assert server.deaths() == {"graceful_signal": 2}
    assert server.log[1:] == [
        "SIGHUP: starting generation 2",
        "generation 2 serves, 1 retires",
    ]


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 2)])
def test_the_number_of_processes_may_change(before: int, after: int) -> None:
    with Simulation({"processes": before}) as server:
        server.reload({"processes": after})
        assert [each.number for each in server.workers] == list(range(1, after + 1))
        assert server.states() == ["serving"] * after


def test_groups_may_come_and_go(tmp_path: Path) -> None:
    shop, docs, blog = tmp_path / "shop", tmp_path / "docs", tmp_path / "blog"
    groups = [{"name": each.name, "binds": unix(each)} for each in (shop, docs, blog)]
    with Simulation(*groups[:2]) as server:
        server.reload(*groups[1:])
        assert (shop.exists(), docs.exists(), blog.exists()) == (False, True, True)
        assert len(server.workers) == 2
        assert (server.deaths("shop"), server.deaths("docs")) == (
            {"graceful_signal": 1},
            {"graceful_signal": 1},
        )
    assert not docs.exists()


def test_a_server_that_reads_its_configuration_goes_on() -> None:
    """Files and names may keep it waiting."""
    with Simulation(TWO) as server:
        first, second = server.workers
        server.machine.reads = False
        server.reload({"processes": 1})
        first.is_ended_by(signal.SIGSEGV)
        second.sends("limit", reason="maximum_requests")
        server.wait(DAYS_S)
        assert server.states() == ["serving", "serving"]
        assert len(server.machine.started) == 4
        server.machine.read()
        server.wait()
        assert server.states() == ["serving"]
    assert server.log[-2:] == ["SIGHUP: starting generation 2", "generation 2 serves, 1 retires"]


@pytest.mark.parametrize("is_read_then", [False, True])
def test_a_server_that_reads_its_configuration_stops_at_once(is_read_then: bool) -> None:
    machine = Machine()
    machine.obeys = False
    with Simulation({"shutdown_timeout_s": 9.0}, machine=machine) as server:
        machine.reads = False
        server.reload()
        server.send(signal.SIGTERM)
        if is_read_then:
            machine.read()
        server.wait(5)
        assert server.workers[0].signals == [signal.SIGTERM]
        server.workers[0].ends()
        server.wait()
        assert server.exit_status() == 0
        if not is_read_then:
            # The thread ends with the process; here it has to end before.
            machine.read()
    assert not any("generation" in line for line in server.log)


def test_a_sighup_while_the_configuration_is_read_has_it_read_again() -> None:
    with Simulation({"processes": 1}) as server:
        server.machine.reads = False
        server.reload({"processes": 2})
        server.reload({"processes": 3})
        assert len(server.machine.to_read) == 1, "one reading at a time"
        server.machine.read()
        server.wait()
        assert server.states() == ["serving"]
        server.machine.read()
        server.wait()
        assert server.states() == ["serving"] * 3
    assert server.log[-2:] == ["SIGHUP: starting generation 2", "generation 2 serves, 1 retires"]


REASONS = {
    "fails": "exit_status_1",
    "exits": "exit_status_9",
    "is killed": "SIGKILL",
    "is late": "startup_timeout",
}


@pytest.mark.parametrize("how", [*REASONS, "is refused"])
def test_a_generation_that_cannot_start_changes_nothing(tmp_path: Path, how: str) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    group = TWO | {"startup_timeout_s": 10.0}
    with Simulation(group | {"binds": unix(old)}) as server:
        first = server.workers
        server.machine.imports = False
        if how == "is refused":
            server.machine.spawn_error = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        server.reload(group | {"binds": unix(new)})
        if how != "is refused":
            *_, third, fourth = server.machine.started
            third.sends("ready")
            server.wait(9)
            assert new.exists()
        if how == "fails":
            fourth.fails(1, "importing app failed (see above)", "Traceback")
        elif how == "exits":
            fourth.exits(9)
        elif how == "is killed":
            fourth.is_ended_by(signal.SIGKILL)
        server.wait(1.01)
        assert server.workers == first
        assert server.states() == ["serving", "serving"]
        assert [each.command_names() for each in first] == [["serve"], ["serve"]]
        assert (old.exists(), new.exists()) == (True, False)
        if how != "is refused":
            assert third.signals == [signal.SIGTERM]
            assert server.deaths() == {REASONS[how]: 1, "generation_abandoned": 1}
    what = {
        "fails": "importing app failed (see above)",
        "exits": "process 2 of group main (pid #4) ended with exit status 9 before it could serve",
        "is killed": "process 2 of group main (pid #4) was ended by SIGKILL before it could serve",
        "is late": "process 2 of group main (pid #4) did not import its application in 10 s "
        "(startup-timeout)",
        "is refused": "process 1 of group main cannot be started: resource temporarily unavailable",
    }
    assert f"{what[how]}; generation 1 goes on serving" in server.log


def test_a_configuration_that_cannot_be_read_changes_nothing() -> None:
    errors: list[Exception] = [CommandError("line 7: mistake"), ValueError("odd"), KeyError("x")]
    with Simulation() as server:
        server._reread = lambda: raise_next(errors)
        server.supervisor._reread = server._reread
        for _ in range(3):
            server.send(signal.SIGHUP)
        assert server.states() == ["serving"]
    assert server.log[1:] == [
        "SIGHUP: line 7: mistake; generation 1 goes on serving",
        "SIGHUP: ValueError: odd; generation 1 goes on serving",
        "SIGHUP: KeyError: 'x'; generation 1 goes on serving",
    ]


def raise_next(errors: list[Exception]) -> Any:
    raise errors.pop(0)


def test_an_address_that_cannot_be_had_leaves_the_pending_generation(tmp_path: Path) -> None:
    """A second SIGHUP while the first is under way."""
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    nowhere = (Address("192.0.2.1", 1),)
    with Simulation({"binds": unix(first)}) as server:
        (serving,) = server.workers
        server.machine.imports = False
        server.reload({"binds": unix(first, second)})
        pending = server.newest()
        server.reload({"binds": unix(first) + nowhere})
        assert server.log[-1].startswith(
            f"SIGHUP: process group 'main': bind 192.0.2.1:1: {ADDRESS_NOT_AVAILABLE}"
        )
        assert server.log[-1].endswith("; generation 1 goes on serving, and 2 starting")
        assert second.exists()
        # One that can begin takes its place, and its sockets go at once.
        server.reload({"binds": unix(first, third)})
        assert server.log[-1] == "SIGHUP: starting generation 3"
        assert not pending.is_alive
        assert pending.signals == [signal.SIGTERM]
        assert server.states() == ["serving", "starting"]
        assert (first.exists(), second.exists(), third.exists()) == (True, False, True)
        # That one fails with what it has opened, and the first goes on.
        server.newest().fails(2, "there is no module 'nowhere'")
        server.wait()
        assert server.log[-1] == "there is no module 'nowhere'; generation 1 goes on serving"
        assert (first.exists(), second.exists(), third.exists()) == (True, False, False)
        assert server.workers == [serving]
        # The next one gets a number of its own.
        server.machine.imports = True
        server.reload({"binds": unix(first)})
        assert server.log[-1] == "generation 4 serves, 1 retires"
        assert server.workers != [serving]


def test_sighup_is_not_for_a_server_that_does_not_serve_yet() -> None:
    machine = Machine()
    machine.imports = False
    with Simulation(machine=machine) as server:
        server.reload(TWO)
        assert len(server.machine.started) == 1
    assert server.log == ["SIGHUP: not before the first start is done"]


def test_sighup_does_nothing_after_sigterm() -> None:
    machine = Machine()
    machine.obeys = False
    with Simulation(machine=machine) as server:
        server.send(signal.SIGTERM)
        server.reload(TWO)
        assert len(server.machine.started) == 1
    assert len(server.log) == 1


class Watcher:
    """As `watching.Watcher`, for files that the test names."""

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe()
        self._changed: str | None = None
        self.states: dict[str, Any] = {}

    def fileno(self) -> int:
        return self._read_fd

    def changed(self) -> str | None:
        if self._changed is not None:
            os.read(self._read_fd, 1)
        changed, self._changed = self._changed, None
        return changed

    def add_imported(self, states: dict[str, Any]) -> None:
        self.states |= states

    def notice(self, path: str) -> None:
        self._changed = path
        os.write(self._write_fd, b"!")

    def close(self) -> None:
        os.close(self._read_fd)
        os.close(self._write_fd)


def test_a_file_that_changed_brings_a_generation() -> None:
    with closing(Watcher()) as watcher, Simulation(watcher=watcher, reload=True) as server:
        (first,) = server.workers
        assert first.task["watched"]
        first.sends("files", states={"/app.py": [1, 2, 3]})
        server.wait()
        assert watcher.states == {"/app.py": (1, 2, 3)}
        watcher.notice("/app.py")
        server.wait()
        assert server.workers != [first]
        assert first.commands[-1]["reason"] == "script_reload"
    assert server.log[1:] == [
        "/app.py has changed: starting generation 2",
        "generation 2 serves, 1 retires",
    ]


def test_a_file_that_changed_after_sigterm_brings_none() -> None:
    machine = Machine()
    machine.obeys = False
    with closing(Watcher()) as watcher:
        with Simulation(machine=machine, watcher=watcher, reload=True) as server:
            server.send(signal.SIGTERM)
            watcher.notice("/app.py")
            server.wait()
            assert watcher.changed() is None
            assert len(machine.started) == 1
        assert len(server.log) == 1


def test_sigterm_ends_the_pending_generation_too() -> None:
    with Simulation() as server:
        server.machine.imports = False
        server.reload()
        assert server.states() == ["serving", "starting"]
        assert server.stop() == 0
        assert server.deaths() == {"shutdown_signal": 2}


def test_a_death_while_a_generation_starts_is_made_good_in_the_one_that_serves() -> None:
    with Simulation() as server:
        (first,) = server.workers
        server.machine.imports = False
        server.reload()
        pending = server.newest()
        server.machine.imports = True
        first.is_ended_by(signal.SIGKILL)
        server.wait()
        assert server.states() == ["starting", "serving"]
        pending.sends("ready")
        server.wait()
        assert server.workers == [pending]


def test_a_process_that_waits_to_start_again_is_not_started_in_a_former_generation() -> None:
    with Simulation(TWO) as server:
        for _ in range(3):
            server.workers[0].is_ended_by(signal.SIGKILL)
            server.time_until(lambda: len(server.workers) == 2)
            server.wait()
        server.workers[0].is_ended_by(signal.SIGKILL)
        server.wait()
        assert len(server.workers) == 1
        server.reload()
        count = len(server.machine.started)
        server.wait(60)
        assert len(server.machine.started) == count
        assert server.states() == ["serving", "serving"]


def test_deaths_of_a_former_generation_do_not_count() -> None:
    with Simulation() as server:
        for _ in range(4):
            server.workers[0].is_ended_by(signal.SIGKILL)
            server.wait()
            server.time_until(lambda: server.workers)
            server.wait()
        server.reload()
        server.workers[0].is_ended_by(signal.SIGKILL)
        server.wait()
        assert server.log[-1].endswith("while it served; starting another")


def test_a_generation_that_retires_may_still_do_so_when_the_next_one_comes() -> None:
    machine = Machine()
    machine.obeys = False
    with Simulation({"graceful_timeout_s": 60.0}, machine=machine) as server:
        server.reload()
        server.wait(10)
        server.reload()
        assert server.states() == ["retiring", "retiring", "serving"]
        first, second, _ = server.workers
        assert server.time_until(lambda: not first.is_alive) == 57.0
        assert server.time_until(lambda: not second.is_alive) == 10.0
        # Each was asked once.
        assert first.command_names() == second.command_names() == ["serve", "retire"]


def test_root_is_warned_of_once_for_each_set_of_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    groups = ({"name": "shop"}, {"name": "docs"}, {"name": "safe", "user": "root"})
    with Simulation(*groups) as server:
        server.reload()
        server.reload(*groups[2:])
        warnings = [line for line in server.lines() if line.startswith("warning: ")]
    assert warnings == [
        "warning: process groups shop, docs run as root, for want of a user (--user NAME)"
    ]


# Templates


def slow_template(**group: Any) -> Simulation:
    machine = Machine()
    machine.imports = False
    return Simulation(PRELOADED | group, machine=machine)


def test_workers_are_forked_by_a_template_that_has_imported() -> None:
    with slow_template() as server:
        assert server.machine.has_adopted_orphans
        (template,) = server.machine.started
        assert template.task["is_template"]
        server.wait(DAYS_S)
        assert len(server.machine.started) == 1
        template.sends("ready")
        server.wait()
        assert template.command_names() == ["fork", "fork"]
        assert [each.number for each in server.workers] == [1, 2]
        assert server.states() == ["ready", "starting", "starting"]
        for each in server.workers:
            each.sends("ready")
        server.wait()
        assert server.states() == ["ready", "serving", "serving"]
        assert server.stop() == 0
        assert template.signals == [signal.SIGTERM]


def test_a_worker_that_dies_is_forked_anew() -> None:
    with Simulation(PRELOADED) as server:
        (template,) = server.templates
        server.workers[0].is_ended_by(signal.SIGKILL)
        server.wait()
        assert template.command_names() == ["fork", "fork", "fork"]
        assert server.states() == ["ready", "serving", "serving"]
        assert server.workers[0].is_fork
    assert server.log[-1] == (
        "process 1 of group main (pid #2) was ended by SIGKILL while it served; starting another"
    )


def test_a_template_that_dies_is_replaced_when_one_is_needed() -> None:
    with Simulation(PRELOADED) as server:
        (template,) = server.templates
        template.is_ended_by(signal.SIGKILL)
        server.wait(3600)
        assert server.templates == []
        assert server.log[-1] == (
            "template of group main (pid #1) was ended by SIGKILL; the next fork needs a new one"
        )
        server.machine.imports = False
        for worker in server.workers:
            worker.is_ended_by(signal.SIGKILL)
        server.wait()
        (template,) = server.templates
        # Both wait for the same one.
        assert server.workers == []
        server.machine.imports = True
        template.sends("ready")
        server.wait()
        assert server.states() == ["ready", "serving", "serving"]


def test_sighup_makes_a_new_template() -> None:
    with Simulation(PRELOADED) as server:
        (first,) = server.templates
        server.reload()
        (second,) = server.templates
        assert first is not second
        assert first.signals == [signal.SIGTERM]
        assert server.states() == ["ready", "serving", "serving"]
        assert server.deaths() == {"graceful_signal": 3}


def test_a_template_that_is_killed_at_the_first_start_starts_again() -> None:
    with slow_template() as server:
        delays = []
        for _ in range(3):
            server.newest().is_ended_by(signal.SIGKILL)
            count = len(server.machine.started)
            delays.append(server.time_until(lambda c=count: len(server.machine.started) > c))
        assert delays == [0.0, 0.1, 0.2]
        server.wait()
        assert len(server.templates) == 1
        server.machine.imports = True
        server.newest().sends("ready")
        server.wait()
        assert server.states() == ["ready", "serving", "serving"]
    assert server.log[0] == (
        "template of group main (pid #1) was ended by SIGKILL before it could fork; "
        f"starting another{BEFORE_ANY_SERVES}"
    )


def test_a_template_that_cannot_start_ends_the_server() -> None:
    with slow_template() as server:
        server.newest().fails(1, "--preload: the application starts threads")
        server.wait()
        with pytest.raises(CommandError, match="the application starts threads"):
            server.exit_status()


class WithoutSubreapers(Machine):
    """qemu's user emulation and some filters of system calls refuse the request."""

    def adopt_orphans(self) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def test_preload_is_refused_where_forked_processes_would_be_lost() -> None:
    message = (
        "process group 'main': --preload: the kernel does not make the supervisor the parent of "
        "forked processes (PR_SET_CHILD_SUBREAPER: invalid argument)"
    )
    machine = WithoutSubreapers()
    with pytest.raises(CommandError) as refused, Simulation(PRELOADED, machine=machine):
        pass
    assert (str(refused.value), refused.value.exit_code) == (message, 2)
    assert not machine.started
    with Simulation(TWO, machine=WithoutSubreapers()) as server:
        server.reload(PRELOADED)
        assert server.states() == ["serving", "serving"]
    assert server.log[1:] == [f"SIGHUP: {message}; generation 1 goes on serving"]


def test_a_template_that_cannot_start_while_others_serve_is_retried() -> None:
    with Simulation(PRELOADED) as server:
        server.templates[0].is_ended_by(signal.SIGKILL)
        server.wait()
        server.machine.imports = False
        server.workers[0].is_ended_by(signal.SIGKILL)
        server.wait()
        delays = []
        for _ in range(3):
            server.newest().exits(9)
            count = len(server.machine.started)
            delays.append(server.time_until(lambda c=count: len(server.machine.started) > c))
        assert delays == [0.1, 0.2, 0.4]
        server.wait()
        assert (len(server.templates), len(server.workers)) == (1, 1)


def test_a_template_that_stays_stopped_makes_room_for_one_that_forks() -> None:
    with Simulation({"preload": True}) as server:
        (template,) = server.templates
        (worker,) = server.workers
        template.stops()
        worker.is_ended_by(signal.SIGKILL)
        server.wait()
        # Forked, for all that the supervisor knows.
        assert server.states() == ["ready", "starting"]
        assert server.time_until(lambda: not template.is_alive) == 300.0
        server.time_until(lambda: server.states() == ["ready", "serving"])
    assert server.log[2] == (
        "process 1 of group main (pid #2) was ended by SIGKILL while it served; starting another"
    )
    assert server.log[3:5] == [
        "template of group main (pid #1) is killed (deadlock_timeout: stopped for 300 s)",
        "template of group main (pid #1) was ended by SIGKILL; the next fork needs a new one",
    ]


# Forks that have not sent their pid yet


def test_a_fork_that_ends_before_its_pid_is_known() -> None:
    with Simulation({"preload": True}) as server:
        server.machine.claims = False
        server.workers[0].is_ended_by(signal.SIGKILL)
        server.wait()
        (nameless,) = server.workers
        server.machine.claims = True
        nameless.exits(1)
        server.time_until(lambda: server.states() == ["ready", "serving"])
    assert "process 1 of group main (pid unknown) ended before it could serve" in server.log[-1]


def test_a_fork_that_ended_before_its_pid_was_heard() -> None:
    """Its end may come first: a message and a signal have no order."""
    with Simulation({"preload": True}) as server:
        server.machine.claims = False
        server.workers[0].is_ended_by(signal.SIGKILL)
        server.wait()
        (fork,) = server.workers
        server.machine.claims = True
        control, fork.control = fork.control, None
        fork.exits(9)
        server.wait()
        assert server.states() == ["ready", "starting"]
        assert control.send({"event": "started"}, wait=False)
        server.time_until(lambda: server.states() == ["ready", "serving"])
        control.close()
    assert "(pid #3) ended with exit status 9 before it could serve" in server.log[-1]


def test_a_fork_whose_pid_comes_after_sigterm_is_terminated() -> None:
    with Simulation({"preload": True}) as server:
        server.machine.claims = False
        server.workers[0].is_ended_by(signal.SIGKILL)
        server.wait()
        (fork,) = server.workers
        server.send(signal.SIGTERM)
        assert fork.signals == []
        assert not server.supervisor.is_over()
        fork.sends("started")
        server.wait()
        assert fork.signals == [signal.SIGTERM]
        assert server.exit_status() == 0


def test_a_fork_that_never_sends_its_pid_loses_its_supervisor() -> None:
    """In place of SIGKILL, for which a pid is needed."""
    with Simulation({"preload": True, "shutdown_timeout_s": 5.0}) as server:
        server.machine.claims = False
        server.workers[0].is_ended_by(signal.SIGKILL)
        server.wait()
        (fork,) = server.workers
        server.send(signal.SIGTERM)
        assert server.time_until(server.supervisor.is_over) == 5.0
        assert not fork.signals


def test_a_pid_that_is_no_childs_is_not_believed() -> None:
    """The kernel supplies the sender's pid, which may be that of a process of the application."""
    with Simulation({"preload": True}) as server:
        server.machine.claims = False
        server.workers[0].is_ended_by(signal.SIGKILL)
        server.wait()
        (fork,) = server.workers
        server.machine.sender_of(fork, os.getpid())
        fork.sends("started")
        server.wait()
        assert [each.pid for each in server.supervisor._children] == [server.templates[0].pid, 0]
        server.machine.sender_of(fork, fork.pid)
        fork.sends("started")
        fork.sends("ready")
        server.wait()
        assert server.states() == ["ready", "serving"]


def test_orphans_of_applications_are_waited_for_and_forgotten() -> None:
    with Simulation(PRELOADED) as server:
        server.machine.note_end(4_999_999, 0)
        server.wait()
        assert server.states() == ["ready", "serving", "serving"]
        assert len(server.log) == 1
