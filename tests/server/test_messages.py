"""Messages on the control socket of a process, where its application may write too. Each is parsed
whole before the supervisor acts on it, and a malformed one is dropped."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
from array import array
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from launch import run_main
from simulated import Machine, Simulation
from supervised import Supervised, open_fds

from headway.errors import CommandError
from headway.server.control import Control, Datagram, Gone, open_pair
from headway.server.supervisor import messages
from headway.server.supervisor.loop import MAX_MODULES
from headway.server.supervisor.messages import Malformed, parse
from headway.server.supervisor.status import TUNE_NAME, StatusSocket

HOSTILE = {"mounts": [{"path": "", "application": "hostile:application"}]}
ROW = {"name": "shop", "requests": 1, "made": 1}
RESPONSE = {"count": 1, "sum_ns": 7, "min_ns": 7, "max_ns": 7, "buckets": [[512, 1]]}


def parsed(message: object, pid: int = 0) -> messages.Event:
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return parse(Datagram(data, pid, []))


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ({"event": "ready"}, messages.Ready(None)),
        ({"event": "ready", "switch_interval_s": 1}, messages.Ready(1.0)),
        ({"event": "gil", "enabled": True, "undeclared": ["a.b"]}, messages.Gil(True, ["a.b"])),
        (
            {"event": "files", "states": {"/a": [-1, 2, 3], "/b": []}},
            messages.Files({"/a": (-1, 2, 3), "/b": ()}),
        ),
        (
            {"event": "failed", "exit_code": 2, "message": "a\nb", "details": ""},
            messages.Failed(2, "a\nb", ""),
        ),
        ({"event": "limit", "reason": "request_timeout"}, messages.Limit("request_timeout", "")),
        (
            {"event": "requests", "count": 1, "interpreters": [ROW | {"more": 7}]},
            messages.Requests(1, [ROW]),
        ),
        (
            {"event": "block", "errors": 0, "cpu_ns": 1, "response": RESPONSE},
            messages.Block(0, 1, RESPONSE | {"buckets": [(512, 1)]}),
        ),
        ({"event": "reporting", "started": 1.5}, messages.Reporting(1.5)),
        ({"event": "reported"}, messages.Reported()),
        ({"event": "closed"}, messages.Closed()),
        ({"event": "stopped"}, messages.Stopped()),
    ],
)
def test_a_message_becomes_a_typed_value(message: object, event: messages.Event) -> None:
    found = parsed(message)
    assert (type(found), found) == (type(event), event)


def test_a_pid_is_the_kernels() -> None:
    assert parsed({"event": "started", "pid": 1}, pid=7) == messages.Started(7)
    with pytest.raises(Malformed, match="without the sender's pid from the kernel"):
        parsed({"event": "started", "pid": 1})


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"", "it is b'', and must be JSON"),
        (b"\xff", r"it is b'\xff', and must be JSON"),
        (b"[" * 100_000, f"it is {b'[' * 40}..., and must be JSON"),
        ([], "it is a list of 0 items, and must be an object"),
        ({}, "event is missing"),
        ({"event": {}}, "event is an object of 0 items, and must be one of started, ready"),
        ({"event": "pid"}, "event is 'pid', and must be one of started, ready, gil, files"),
        (b'{"event": "ready", "switch_interval_s": NaN}', "switch_interval_s is nan, and must be"),
        (b'{"event": "ready", "switch_interval_s": 1e999}', "switch_interval_s is inf, and must"),
        ({"event": "ready", "switch_interval_s": True}, "switch_interval_s is True, and must be"),
        ({"event": "reporting", "started": -1}, "started is -1, and must be a number of seconds"),
        ({"event": "reporting", "started": 10**300}, "started is an integer of more than 64 bits"),
        ({"event": "gil", "enabled": 1, "undeclared": []}, "enabled is 1, and must be a boolean"),
        ({"event": "gil", "enabled": True, "undeclared": "a"}, "undeclared is 'a', and must be"),
        (
            {"event": "gil", "enabled": True, "undeclared": [""] * 5001},
            "undeclared is a list of 5001 items, and must be a list of at most 5000 items",
        ),
        (
            {"event": "gil", "enabled": True, "undeclared": ["\x1b[2J"]},
            r"undeclared is '\x1b[2J', and must be a printable string of at most 1000 characters",
        ),
        (
            {"event": "gil", "enabled": True, "undeclared": ["\ud800"]},
            r"undeclared is '\ud800', and must be a printable string",
        ),
        ({"event": "files", "states": []}, "states is a list of 0 items, and must be an object"),
        ({"event": "files", "states": {"a": []}}, "a path in states is 'a', and must be an abs"),
        ({"event": "files", "states": {"/a\0": []}}, r"a path in states is '/a\x00', and must"),
        ({"event": "files", "states": {"/a": [1.5]}}, "a state in states is 1.5, and must be"),
        (
            {"event": "failed", "exit_code": 0, "message": "", "details": ""},
            "exit_code is 0, and must be an integer from 1 to 255",
        ),
        ({"event": "failed", "exit_code": 1, "message": 7}, "message is 7, and must be a string"),
        ({"event": "limit", "reason": "boredom"}, "reason is 'boredom', and must be one of"),
        ({"event": "requests", "count": True, "interpreters": []}, "count is True, and must be"),
        ({"event": "requests", "count": -1, "interpreters": []}, "count is -1, and must be an"),
        ({"event": "requests", "count": 2**64, "interpreters": []}, "count is an integer of more"),
        ({"event": "requests", "count": 1, "interpreters": [{}]}, "interpreters.name is missing"),
        ({"event": "requests", "count": 1, "interpreters": [1]}, "interpreters is 1, and must be"),
        (
            {"event": "requests", "count": 1, "interpreters": [ROW | {"made": None}]},
            "interpreters.made is None, and must be an integer from 0 to 18446744073709551615",
        ),
        ({"event": "block", "errors": 0, "cpu_ns": 1, "response": 7}, "response is 7, and must"),
        (
            {"event": "block", "errors": 0, "cpu_ns": 1, "response": RESPONSE | {"buckets": [7]}},
            "response.buckets is 7, and must be pairs of counts",
        ),
        (
            {"event": "block", "errors": 0, "cpu_ns": 1, "response": RESPONSE | {"min_ns": "7"}},
            "response.min_ns is '7', and must be an integer",
        ),
    ],
)
def test_a_malformed_message_is_one_short_line(message: object, problem: str) -> None:
    with pytest.raises(Malformed) as raised:
        parsed(message)
    assert problem in str(raised.value)
    assert len(str(raised.value)) < 300
    assert str(raised.value).isprintable()


def test_long_texts_are_cut_off() -> None:
    found = parsed({"event": "limit", "reason": "request_timeout", "detail": "x" * 100_000})
    assert found == messages.Limit("request_timeout", "x" * messages.MAX_DETAIL)


# The supervisor


def test_a_malformed_message_is_dropped_and_the_first_is_logged() -> None:
    with Simulation({"processes": 2}) as server:
        first, second = server.workers
        for process in (first, first, second):
            process.sends("requests", count=1, interpreters=[{}])
            process.sends("requests", count=1, interpreters=[1])
        server.wait()
        assert [server.seen(each).malformed for each in (first, second)] == [4, 2]
        server.send(signal.SIGUSR1)
        server.wait(1)
        assert "SIGUSR1:" in server.log
        assert server.stop() == 0
    dropped = "a malformed message is dropped: interpreters.name is missing; others are not logged"
    assert [line for line in server.log if "dropped" in line] == [
        f"process {number} of group main (pid #{number}): {dropped}" for number in (1, 2)
    ]


def test_an_error_in_acting_on_a_message_is_logged_and_the_server_goes_on() -> None:
    with Simulation({"processes": 2}) as server:
        first, second = server.workers
        life_cycle = server.supervisor._life_cycle
        replace = life_cycle.replace

        def fails(*_: Any) -> None:
            raise KeyError("a defect")

        life_cycle.replace = fails
        first.sends("limit", reason="maximum_requests")
        server.wait()
        assert server.log[1:3] == [
            "process 1 of group main (pid #1): an error in acting on its Limit",
            "Traceback (most recent call last):",
        ]
        assert server.log[-1] == "KeyError: 'a defect'"
        life_cycle.replace = replace
        second.sends("limit", reason="maximum_requests")
        server.wait()
        assert server.states() == ["serving", "serving"]
        assert server.deaths() == {"maximum_requests": 1}
        assert server.stop() == 0


def test_an_error_of_the_command_is_not_caught() -> None:
    with Simulation() as server:

        def fails(*_: Any) -> None:
            raise CommandError("the end")

        server.supervisor._life_cycle.replace = fails
        server.workers[0].sends("limit", reason="maximum_requests")
        with pytest.raises(CommandError, match="the end"):
            server.wait()


def test_a_process_does_not_put_off_its_end_by_messages() -> None:
    machine = Machine()
    machine.obeys = False
    with Simulation({"shutdown_timeout_s": 5.0}, machine=machine) as server:
        (worker,) = server.workers

        def sends_stopped() -> None:
            if worker.is_alive:
                worker.sends("stopped")

        sends_stopped()
        server.wait()
        assert server.states() == ["stopping"]
        for _ in range(6):
            server.wait(0.9)
            sends_stopped()
        assert not worker.is_alive
        assert server.log[1] == "process 1 of group main (pid #1) does not end, and is killed"


def test_the_log_has_a_bounded_number_of_modules() -> None:
    with Simulation() as server:
        (worker,) = server.workers
        for start in range(0, 3 * MAX_MODULES, 100):
            names = [f"m{number}" for number in range(start, start + 100)]
            worker.sends("gil", enabled=False, undeclared=names)
            server.wait()
    assert sum("does not declare" in line for line in server.log) == MAX_MODULES


@pytest.mark.parametrize("with_credentials", [False, True])
def test_a_forked_process_claims_no_pid_but_its_own(with_credentials: bool) -> None:
    machine = Machine()
    machine.claims = False
    with Simulation({"preload": True, "processes": 2}, machine=machine) as server:
        first, second = (each for each in server.workers if each.is_fork)
        first.sends("started")
        server.wait()
        machine.sender_of(second, second.pid if with_credentials else 0)
        second.sends("started", pid=first.pid)
        server.wait()
        pids = [each.pid for each in server.supervisor._children if not each.is_template]
        assert pids == [first.pid, second.pid if with_credentials else 0]


def test_a_pid_of_another_process_is_not_claimed() -> None:
    machine = Machine()
    machine.claims = False
    with Simulation({"preload": True, "processes": 2}, machine=machine) as server:
        first, second = (each for each in server.workers if each.is_fork)
        first.sends("started")
        machine.sender_of(second, first.pid)
        second.sends("started")
        server.wait()
        pids = [each.pid for each in server.supervisor._children if not each.is_template]
        assert pids == [first.pid, 0]


# The client of `headway tune`


@pytest.fixture
def status(tmp_path: Path) -> Iterator[StatusSocket]:
    with closing(StatusSocket(str(tmp_path / "status"))) as status:
        yield status


class Tuner:
    """A client that tunes a simulated server."""

    def __init__(self, server: Simulation, path: Path) -> None:
        self._server = server
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(TUNE_NAME + str(path).encode()[-80:])
        self.socket.connect(str(path))
        self.socket.settimeout(0)
        server.wait()

    def asks(self, command: bytes | dict[str, Any]) -> Any:
        """The answer; `None` if there is none yet."""
        data = command if isinstance(command, bytes) else json.dumps(command).encode()
        self.socket.sendall(data + b"\n")
        self._server.wait()
        return self.answer()

    def answer(self) -> Any:
        with contextlib.suppress(BlockingIOError):
            return json.loads(self.socket.recv(65_536))
        return None


NOT_UNDERSTOOD = "the server does not understand "
NO_INTERVAL = {"command": "try", "policy": "deadline", "switch_interval_s": 10**400}


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (b"no JSON", f"{NOT_UNDERSTOOD}b'no JSON'"),
        (b"[" * 50_000, f"{NOT_UNDERSTOOD}b'{'[' * 200}'"),
        (b"[]", f"{NOT_UNDERSTOOD}b'[]'"),
        ({"command": ["open"]}, NOT_UNDERSTOOD),
        ({"command": "open"}, NOT_UNDERSTOOD),
        ({"command": "open", "group": {}}, NOT_UNDERSTOOD),
        ({"command": "open", "group": "docs"}, "--group: found 'docs'; allowed: one of main"),
        ({"command": "block", "action": "erase"}, NOT_UNDERSTOOD),
        ({"command": "block", "action": "read", "path": 7}, NOT_UNDERSTOOD),
        (NO_INTERVAL, NOT_UNDERSTOOD),
        (NO_INTERVAL | {"switch_interval_s": True}, NOT_UNDERSTOOD),
        (NO_INTERVAL | {"switch_interval_s": 0.01, "policy": []}, NOT_UNDERSTOOD),
        ({"command": "renew!"}, "there is no command 'renew!'"),
        ({"command": "renew"}, "no group is open"),
    ],
)
def test_a_command_that_is_not_one_is_an_answer(
    status: StatusSocket, tmp_path: Path, command: Any, error: str
) -> None:
    with Simulation(status_socket=status) as server:
        tuner = Tuner(server, tmp_path / "status")
        with tuner.socket:
            assert tuner.asks(command)["error"].startswith(error)
            assert tuner.asks({"command": "open", "group": None})["group"] == "main"
            assert server.workers[0].command_names() == ["serve"]


def test_counts_come_from_the_processes_that_were_asked(
    status: StatusSocket, tmp_path: Path
) -> None:
    with Simulation({"name": "shop"}, {"name": "docs"}, status_socket=status) as server:
        shop, docs = (
            next(each for each in server.workers if server.seen(each).group.name == name)
            for name in ("shop", "docs")
        )
        tuner = Tuner(server, tmp_path / "status")
        with tuner.socket:
            assert tuner.asks({"command": "open", "group": "shop"})["processes"] == 1
            assert tuner.asks({"command": "block", "action": "begin"}) == {}
            assert tuner.asks({"command": "block", "action": "read", "path": "/"}) is None
            docs.sends("block", errors=99, cpu_ns=99, response=RESPONSE)
            shop.sends("block", errors={}, cpu_ns=-1, response=RESPONSE)
            server.wait()
            assert tuner.answer() is None
            shop.sends("block", errors=1, cpu_ns=2, response=RESPONSE)
            server.wait()
            answer = tuner.answer()
    assert answer == {"errors": 1, "cpu_ns": 2, "response": RESPONSE, "is_whole": True}


# Descriptors


@pytest.fixture
def pair() -> Iterator[tuple[Control, Control]]:
    ours, theirs = open_pair()
    yield ours, theirs
    ours.close()
    theirs.close()


def send(end: Control, data: bytes, count: int) -> None:
    with open(os.devnull) as file:
        rights = array("i", [file.fileno()] * count)
        end.socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


@pytest.mark.parametrize("credentials", [False, True])
@pytest.mark.parametrize("data", [b"{}", b"no message", b""])
@pytest.mark.parametrize("wanted", [0, 1])
def test_descriptors_that_nobody_wants_are_closed(
    pair: tuple[Control, Control], credentials: bool, data: bytes, wanted: int
) -> None:
    ours, theirs = pair
    if credentials:
        ours.ask_for_pids()
    before = open_fds(os.getpid())
    kept = 0
    for count in (1, 2, 8, 9, 200):
        send(theirs, data, count)
        # No data is as the end of the other side.
        with contextlib.suppress(Gone):
            _, fds = ours.receive_with_fds(wanted)
            assert len(fds) == (wanted if data else 0)
            kept += len(fds)
            for fd in fds:
                assert not os.get_inheritable(fd)
        assert open_fds(os.getpid()) == before + kept
        for fd in fds if kept else ():
            os.close(fd)
        kept = 0


def test_a_datagram_has_the_pid_of_its_sender(pair: tuple[Control, Control]) -> None:
    ours, theirs = pair
    theirs.send({"event": "started"})
    assert ours.receive_datagram() == (b'{"event": "started"}', 0, [])
    ours.ask_for_pids()
    theirs.send({"event": "started"})
    assert ours.receive_datagram() == (b'{"event": "started"}', os.getpid(), [])


# Real processes


@pytest.mark.parametrize("preload", [False, True])
def test_an_application_that_writes_to_the_control_socket_ends_no_server(
    tmp_path: Path, preload: bool
) -> None:
    status = tmp_path / "status"
    group = HOSTILE | {"processes": 2, "preload": preload}
    with Supervised(tmp_path, group, status_socket=str(status)) as server:
        before = set(server.workers())
        server.get("/floods")
        server.wait_for("a malformed message is dropped: ")
        for _ in range(3):
            server.process.send_signal(signal.SIGUSR1)
            assert run_main("status", f"unix:{status}").returncode == 0
        server.wait_for(r"SIGUSR1:\npid \d+, serving")
        assert set(server.workers()) == before
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("generation 2 serves")
    assert "Traceback" not in server.stderr
    assert server.stderr.count("a malformed message is dropped: ") == 1


@pytest.mark.parametrize("preload", [False, True])
def test_descriptors_of_an_application_stay_open_nowhere(tmp_path: Path, preload: bool) -> None:
    with Supervised(tmp_path, HOSTILE | {"preload": preload}) as server:
        server.get("/pid")
        before = open_fds(server.process.pid)
        server.get("/sends_descriptors?20")
        server.process.send_signal(signal.SIGUSR1)
        server.wait_for("SIGUSR1:\n")
        server.wait_until(lambda: open_fds(server.process.pid) == before)
    assert re.search(
        "a malformed message is dropped: it is b'no message', and must be JSON", server.stderr
    )
