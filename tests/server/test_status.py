"""Living processes and the last death: the status socket, `headway status`, SIGUSR1."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from launch import ADDRESS_IN_USE, Result, headway, run_main
from served import APPS, TIMEOUT_S
from simulated import Machine, Simulation
from supervised import Supervised

from headway.server.supervisor.status import StatusSocket


def ask(path: Path, *options: str) -> Result:
    return run_main("status", f"unix:{path}", *options)


def test_the_document_names_processes_and_deaths(tmp_path: Path) -> None:
    path = tmp_path / "status"
    with Supervised(tmp_path, {"processes": 2}, status_socket=str(path)) as server:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        before = json.loads(ask(path, "--json").stdout)
        assert (before["pid"], before["state"], before["generation"]) == (
            server.process.pid,
            "serving",
            1,
        )
        (group,) = before["groups"]
        assert group["name"] == "main"
        assert group["addresses"] == ["{}:{}".format(*server.address)]
        assert [each["number"] for each in group["processes"]] == [1, 2]
        assert [each["pid"] for each in group["processes"]] == server.workers()
        assert {each["state"] for each in group["processes"]} == {"serving"}
        assert group["deaths"] == {"count": 0, "by_reason": {}, "last": None}
        assert [each["requests"] for each in group["processes"]] == [0, 0]
        for _ in range(20):
            server.get("/pid")
        (group,) = json.loads(ask(path, "--json").stdout)["groups"]
        assert sum(each["requests"] for each in group["processes"]) == 20

        os.kill(server.workers()[0], signal.SIGKILL)
        server.wait_for("was ended by SIGKILL")
        server.reload(2)
        server.wait_until(lambda: len(server.workers()) == 2)
        (group,) = json.loads(ask(path, "--json").stdout)["groups"]
        assert {each["generation"] for each in group["processes"]} == {2}
        assert group["deaths"]["by_reason"] == {"SIGKILL": 1, "graceful_signal": 2}
        assert group["deaths"]["last"]["reason"] == "graceful_signal"

        table = headway("status", f"unix:{path}")
        assert table.returncode == 0
        assert f"pid {server.process.pid}, serving for " in table.stdout
        assert "ended: graceful_signal 2, SIGKILL 1; the last was pid" in table.stdout
        server.process.send_signal(signal.SIGUSR1)
        server.wait_for(r"SIGUSR1:\npid \d+, serving for ")
    assert not path.exists()


def test_a_process_that_cannot_say_is_shown_without_a_number(tmp_path: Path) -> None:
    path = tmp_path / "status"
    with Supervised(tmp_path, {"processes": 2}, status_socket=str(path)) as server:
        stopped, other = server.workers()
        os.kill(stopped, signal.SIGSTOP)
        try:
            table = ask(path).stdout
        finally:
            os.kill(stopped, signal.SIGCONT)
    assert re.search(rf"pid {stopped} .*, generation 1, GIL (on|off)\n", table), table
    assert re.search(rf"pid {other} .*, generation 1, GIL (on|off), 0 requests\n", table), table


def test_a_status_socket_that_cannot_be_had_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "status"
    path.write_text("not a socket")
    done = run_main("serve", "pages:hello", "--status-socket", path, cwd=APPS)
    assert done.returncode == 2
    said = f"--status-socket unix:{path}: {ADDRESS_IN_USE}"
    assert done.stderr == f"headway serve: {said}\n"


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    for address, exit_code, said in (
        (f"unix:{tmp_path}/none", 1, "no such file or directory; is the server running?"),
        ("127.0.0.1:80", 2, "found '127.0.0.1:80'; allowed: unix:PATH"),
    ):
        done = run_main("status", address)
        assert done.returncode == exit_code
        assert done.stderr.count("\n") == 1
        assert said in done.stderr


PROCESS = {
    "number": 1,
    "pid": 7,
    "state": "serving",
    "since": 1.0,
    "generation": 1,
    "gil": "on",
    "undeclared": [],
    "requests": 0,
    "interpreters": [],
}
GROUP = {
    "name": "main",
    "addresses": ["127.0.0.1:80"],
    "processes": [PROCESS],
    "deaths": {"count": 0, "by_reason": {}, "last": None},
}
DOCUMENT = {"pid": 7, "state": "serving", "since": 1.0, "generation": 1, "groups": [GROUP]}


def with_group(**changes: Any) -> bytes:
    return json.dumps(DOCUMENT | {"groups": [GROUP | changes]}).encode()


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", "no JSON"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"7", "the document is 7, and must be an object"),
        (b"{}", "pid is missing"),
        (json.dumps(DOCUMENT | {"pid": "7"}).encode(), "pid is '7', and must be an integer"),
        (json.dumps(DOCUMENT | {"since": 1e999}).encode(), "since is inf, and must be a number"),
        (json.dumps(DOCUMENT | {"groups": [7]}).encode(), "groups[0] is 7, and must be an object"),
        (
            json.dumps(DOCUMENT | {"since": 10**400}).encode(),
            f"since is 1{'0' * 39}, and must be a number",
        ),
        (with_group(addresses=[7]), "groups[0].addresses[0] is 7, and must be a string"),
        (with_group(processes=[{}]), "groups[0].processes[0].number is missing"),
        (
            with_group(processes=[PROCESS | {"gil": True}]),
            "groups[0].processes[0].gil is True, and must be a string or null",
        ),
        (
            with_group(processes=[PROCESS | {"undeclared": [7]}]),
            "groups[0].processes[0].undeclared[0] is 7, and must be a string",
        ),
        (
            with_group(processes=[PROCESS | {"interpreters": [{"name": "shop"}]}]),
            "groups[0].processes[0].interpreters[0].requests is missing",
        ),
        (with_group(deaths={}), "groups[0].deaths.count is missing"),
        (
            with_group(deaths={"count": 1, "by_reason": {"SIGKILL": "1"}, "last": None}),
            "groups[0].deaths.by_reason.SIGKILL is '1', and must be an integer",
        ),
        (
            with_group(deaths={"count": 1, "by_reason": {"SIGKILL": 1}, "last": {}}),
            "groups[0].deaths.last.reason is missing",
        ),
    ],
)
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_what_is_no_server_is_one_line(
    tmp_path: Path, answer: bytes, problem: str, options: tuple[str, ...]
) -> None:
    done = ask_for(tmp_path, answer, *options)
    said = f"unix:{tmp_path}/status: the answer is not that of a headway server: {problem}"
    assert done.stderr == f"headway status: {said}\n"
    assert (done.returncode, done.stdout) == (2, "")


def test_names_move_no_cursor(tmp_path: Path) -> None:
    done = ask_for(tmp_path, with_group(name="\x1b[2J", addresses=["unix:/\udcff"]))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n")[2] == r"\x1b[2J on unix:/\udcff"


def ask_for(tmp_path: Path, answer: bytes, *options: str) -> Result:
    """`headway status` of a server that answers so."""
    path = tmp_path / "status"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def give() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(answer)

        thread = threading.Thread(target=give)
        thread.start()
        done = ask(path, *options)
        thread.join()
    return done


def test_a_status_socket_that_another_has_bound_since_is_left(tmp_path: Path) -> None:
    path = tmp_path / "status"
    with Supervised(tmp_path, status_socket=str(path)), socket.socket(socket.AF_UNIX) as other:
        path.unlink()
        other.bind(str(path))
    assert path.exists()


def test_the_pid_file_is_there_while_the_server_is(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with Supervised(tmp_path, pid_file=str(path)) as server:
        assert path.read_text() == f"{server.process.pid}\n"
    assert not path.exists()


def test_a_pid_file_is_one_server_s(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    # An earlier server was killed, and its number may be anybody's by now.
    path.write_text(f"{os.getpid()}\n of an earlier server\n")
    os.utime(path, (1, 1))
    with Supervised(tmp_path, pid_file=str(path)) as server:
        mine = f"{server.process.pid}\n"
        assert path.read_text() == mine
        second = serve_with_pid_file(path, "127.0.0.1:0")
        assert second.returncode == 2
        assert second.stderr == (
            f"headway serve: --pid-file {path}: another server has it (process {mine.strip()}); "
            "each needs a file of its own\n"
        )
        assert path.read_text() == mine
    assert not path.exists()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{os.getpid()}\n", f"process {os.getpid()}, which runs and is another program's; each"),
        ("root:x:0:0\n", "'root:x:0:0'; allowed: a new file, or one with the process id of"),
    ],
    ids=["another's", "no pid file"],
)
def test_a_pid_file_of_another_program_is_refused(tmp_path: Path, text: str, found: str) -> None:
    path = tmp_path / "pid"
    path.write_text(text)
    done = serve_with_pid_file(path, "127.0.0.1:0")
    assert done.stderr.startswith(f"headway serve: --pid-file {path}: found {found}")
    assert (done.returncode, path.read_text()) == (2, text)


def test_a_start_that_fails_leaves_the_pid_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    # Of a program that runs elsewhere, for all that can be known.
    path.write_text("1\n")
    os.utime(path, (1, 1))
    with socket.create_server(("127.0.0.1", 0)) as other:
        done = serve_with_pid_file(path, f"127.0.0.1:{other.getsockname()[1]}")
    assert ADDRESS_IN_USE in done.stderr
    assert (done.returncode, path.read_text()) == (2, "1\n")


def test_a_pid_file_that_cannot_be_written_is_not_left(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    # As on a full disk.
    done = serve_with_pid_file(
        path, "127.0.0.1:0", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    )
    assert done.stderr == f"headway serve: --pid-file {path}: file too large\n"
    assert done.returncode == 2
    assert not path.exists()


def serve_with_pid_file(path: Path, bind: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A server that does not come to serve."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "headway", "serve", "processes:application"),
            *("--app-dir", str(APPS), "--bind", bind, "--pid-file", str(path)),
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        **options,
    )


def test_a_pid_file_that_another_has_written_since_is_left(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with Supervised(tmp_path, pid_file=str(path)):
        path.unlink()
        path.write_text("another\n")
    assert path.read_text() == "another\n"


# A status request, on a clock and with processes that the test controls


class Inquirer:
    """A client of a simulation's status socket."""

    def __init__(self, path: Path) -> None:
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.connect(str(path))
        self.connection.setblocking(False)

    def answer(self) -> Any:
        """The document, or `None` if it has not come yet."""
        with contextlib.suppress(BlockingIOError):
            return json.loads(self.connection.recv(65_536))
        return None


@pytest.fixture
def status(tmp_path: Path) -> Iterator[StatusSocket]:
    with closing(StatusSocket(str(tmp_path / "status"))) as status:
        yield status


@pytest.fixture
def inquire(tmp_path: Path) -> Iterator[Callable[[], Inquirer]]:
    with ExitStack() as stack:

        def begin() -> Inquirer:
            inquirer = Inquirer(tmp_path / "status")
            stack.enter_context(inquirer.connection)
            return inquirer

        yield begin


def requests_in(document: Any) -> list[int | None]:
    return [each["requests"] for group in document["groups"] for each in group["processes"]]


def test_an_inquiry_is_over_when_all_have_answered(
    status: StatusSocket, inquire: Callable[[], Inquirer]
) -> None:
    with Simulation({"name": "shop"}, {"name": "docs"}, status_socket=status) as server:
        for number, worker in enumerate(server.workers):
            worker.requests = 7 + number
        inquirer = inquire()
        began = server.machine.now
        server.wait()
        document = inquirer.answer()
        assert server.machine.now == began
    assert [each["name"] for each in document["groups"]] == ["shop", "docs"]
    assert sorted(requests_in(document)) == [7, 8]
    assert (document["state"], document["generation"]) == ("serving", 1)


def test_an_inquiry_does_not_wait_for_long(
    status: StatusSocket, inquire: Callable[[], Inquirer]
) -> None:
    """The later ones come to a status request that is under way."""
    with Simulation({"processes": 2}, status_socket=status) as server:
        hung, other = server.workers
        before = inquire()
        server.wait()
        assert requests_in(before.answer()) == [0, 0]
        hung.obeys = False
        first = inquire()
        server.wait(0.3)
        second = inquire()
        answers: list[Any] = []
        assert server.time_until(lambda: answers.append(first.answer()) or answers[-1]) == 0.2
        assert answers[-1] == second.answer()
        assert requests_in(answers[-1]) == [None, 0]
        assert other.command_names() == ["serve", "count", "count"]
        # The next one asks anew.
        hung.obeys = True
        third = inquire()
        server.wait()
        assert requests_in(third.answer()) == [0, 0]


def test_an_inquiry_does_not_wait_for_a_process_that_has_gone(
    status: StatusSocket, inquire: Callable[[], Inquirer]
) -> None:
    with Simulation({"processes": 2}, status_socket=status) as server:
        hung, _ = server.workers
        hung.obeys = False
        server.machine.imports = False
        inquirer = inquire()
        server.wait()
        hung.is_ended_by(signal.SIGKILL)
        server.wait()
        document = inquirer.answer()
    states = {each["pid"]: each["state"] for each in document["groups"][0]["processes"]}
    assert sorted(states.values()) == ["serving", "starting"]
    assert document["groups"][0]["deaths"]["by_reason"] == {"SIGKILL": 1}


def test_only_processes_that_serve_or_did_are_asked(
    status: StatusSocket, inquire: Callable[[], Inquirer]
) -> None:
    machine = Machine()
    machine.obeys = False
    with Simulation({"preload": True}, machine=machine, status_socket=status) as server:
        server.reload()
        server.machine.imports = False
        server.reload()
        inquire()
        server.wait(1)
        asked = {
            (each.is_template, server.seen(each).state.value): "count" in each.command_names()
            for each in server.machine.alive
        }
    assert asked == {
        (True, "stopping"): False,
        (True, "ready"): False,
        (True, "starting"): False,
        (False, "retiring"): True,
        (False, "serving"): True,
    }


def test_the_document_of_a_server_that_starts_or_stops(
    status: StatusSocket, inquire: Callable[[], Inquirer]
) -> None:
    machine = Machine()
    machine.imports = machine.obeys = False
    with Simulation(machine=machine, status_socket=status) as server:
        inquirer = inquire()
        server.wait()
        document = inquirer.answer()
        assert (document["state"], document["generation"]) == ("starting", 1)
        assert document["groups"][0]["processes"][0]["state"] == "starting"
        server.workers[0].sends("ready")
        server.wait()
        server.workers[0].stops()
        server.send(signal.SIGTERM)
        inquirer = inquire()
        server.wait(1)
        document = inquirer.answer()
        assert document["state"] == "stopping"
        assert document["groups"][0]["processes"][0]["state"] == "stopped"


def test_sigusr1_draws_the_document_in_the_log() -> None:
    with Simulation() as server:
        server.workers[0].requests = 3
        server.send(signal.SIGUSR1)
        assert server.log[1] == "SIGUSR1:"
        assert re.fullmatch(r"pid \d+, serving for 0 s, generation 1", server.log[2])
        assert re.search(r"process 1 +pid #1 +serving +for 0 s, generation 1, 3 req", server.log[4])
