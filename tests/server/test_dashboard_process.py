"""`headway serve --dashboard`: a recorder beside the workers, which never stands in their way."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import launch
import pytest
from launch import ADDRESS_IN_USE, run_main
from ports import free_port
from process_tree import open_files
from served import APPS, MODE, TIMEOUT_S, Served
from simulated import Machine, Simulation
from supervised import Held, is_alive, wait_until_refused

from headway.address import Address
from headway.server.signals import RECORDERS_END
from headway.server.supervisor.dashboard import Dashboard


def start(tmp_path: Path, *options: str) -> Served:
    store = str(tmp_path / "telemetry.sqlite")
    return Served(
        "processes:application",
        *("--dashboard", "--dashboard-http", "127.0.0.1:0", "--dashboard-store", store),
        *("--telemetry-interval", "0.5", *options),
    )


def site_of(server: Served) -> str:
    return server.wait_for(r"headway telemetry: showing at (http://[\d.:]+)")[1]


def recorder_of(server: Served) -> int:
    """The pid of the recorder."""
    for pid in server.workers():
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"headway serve: dashboard" in command:
            return pid
    raise AssertionError(f"no recorder among {server.workers()}")


def ask(site: str, question: str) -> Any:
    with urlopen(f"{site}/api/v1/{question}", timeout=TIMEOUT_S) as answer:
        return json.load(answer)


def wait_until(condition: Callable[[], bool], server: Served) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end, server.stderr
        time.sleep(0.05)


def test_it_shows_the_servers_processes_from_the_beginning(tmp_path: Path) -> None:
    with start(tmp_path, "--processes", "2") as server:
        site = site_of(server)
        for _ in range(7):
            assert server.get("/pid").status == 200
        summary = "summary?from=-60&group=main"
        wait_until(lambda: ask(site, summary)["summary"]["requests"] == 7, server)
        workers = {each["pid"] for each in ask(site, "now")["processes"]}
        assert workers <= set(server.workers())
        events = ask(site, "lifecycle?from=-60")["events"]
        assert {each["pid"] for each in events if each["event"] == "process_started"} == workers
        with urlopen(f"{site}/", timeout=TIMEOUT_S) as page:
            assert page.status == 200
        recorder = recorder_of(server)
    assert server.process.returncode == 0
    assert not Path(f"/proc/{recorder}").exists()
    assert server.stderr.count("showing at") == 1


def test_its_end_is_nobodys_and_it_comes_back(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        site_of(server)
        first = recorder_of(server)
        os.kill(first, signal.SIGKILL)
        server.wait_for("the dashboard was ended by SIGKILL; it starts again in 1 s")
        assert server.get("/pid").status == 200
        wait_until(lambda: server.stderr.count("showing at") == 2, server)
        site = re.findall(r"showing at (http://[\d.:]+)", server.stderr)[1]
        assert recorder_of(server) != first
        served = server.get("/pid").status
        assert served == 200
        # Both requests count, since a tick that was not received is sent again.
        wait_until(lambda: ask(site, "summary?from=-60")["summary"]["requests"] == 2, server)


def test_one_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        site_of(server)
        recorder = recorder_of(server)
        os.kill(recorder, signal.SIGSTOP)
        try:
            for _ in range(50):
                assert server.get("/pid").status == 200
        finally:
            os.kill(recorder, signal.SIGCONT)


def test_sigterm_to_all_processes_is_not_for_it(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        site_of(server)
        recorder = recorder_of(server)
        with Held(server, tmp_path) as held:
            for pid in [*server.workers(), server.process.pid]:
                os.kill(pid, signal.SIGTERM)
            wait_until_refused(server)
            assert is_alive(recorder)
            assert held.release().status == 200
        assert server.stop(None) == 0
    assert "the dashboard" not in server.stderr
    assert not Path(f"/proc/{recorder}").exists()


def test_it_does_not_come_back_while_the_server_stops(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        site_of(server)
        with Held(server, tmp_path) as held:
            server.process.send_signal(signal.SIGTERM)
            wait_until_refused(server)
            os.kill(recorder_of(server), signal.SIGKILL)
            server.wait_for("the dashboard was ended by SIGKILL; the last reports may be missing")
            assert held.release().status == 200
        assert server.stop(None) == 0
    assert server.stderr.count("the dashboard") == 1


def test_an_address_that_is_taken_is_told_and_the_server_goes_on(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with start(tmp_path, "--dashboard-http", f"127.0.0.1:{port}") as server:
            server.wait_for("the dashboard cannot run; the server goes on without it")
            assert f"--http 127.0.0.1:{port}: {ADDRESS_IN_USE}" in server.stderr
            assert server.get("/pid").status == 200


def test_a_new_generation_reports_to_it_too(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        site = site_of(server)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("generation 2 serves")
        assert server.get("/pid").status == 200
        wait_until(lambda: ask(site, "summary?from=-60")["summary"]["requests"] == 1, server)

        def told() -> set[str]:
            return {each["event"] for each in ask(site, "lifecycle?from=-60")["events"]}

        # The former generation may end after the request was reported.
        wait_until(lambda: {"process_started", "process_stopped"} <= told(), server)


# From start to stop: the recorder ends by itself, and nothing is left


def signal_server(server: Served) -> None:
    server.process.send_signal(signal.SIGTERM)


def press_ctrl_c(server: Served) -> None:
    """The terminal sends SIGINT to all processes of the group."""
    for pid in [*server.workers(), server.process.pid]:
        os.kill(pid, signal.SIGINT)


def assert_recorder_has_ended_by_itself(
    server: Served, recorder: int, telemetry: Path, port: int
) -> None:
    """A recorder that is killed leaves the file of its socket, and any exit status but 0 is in the
    log."""
    wait_until(lambda: not is_alive(recorder), server)
    assert not telemetry.exists()
    socket.create_server(("127.0.0.1", port)).close()
    assert "the dashboard" not in server.stderr


def assert_store_has(tmp_path: Path, requests: int) -> None:
    """The next server shows the history."""
    with start(tmp_path) as server:
        site = site_of(server)
        assert ask(site, "summary?from=-600")["summary"]["requests"] == requests
        events = ask(site, "lifecycle?from=-600")["events"]
        told = {"process_started", "process_stopping", "process_stopped"}
        assert told <= {each["event"] for each in events}


@pytest.mark.parametrize(
    "end",
    [signal_server, pytest.param(press_ctrl_c, marks=pytest.mark.slow("ends as by the signal"))],
)
def test_it_writes_everything_and_ends_by_itself(
    tmp_path: Path, end: Callable[[Served], None]
) -> None:
    telemetry, port = tmp_path / "socket", free_port()
    options = ("--telemetry", f"unix:{telemetry}", "--dashboard-http", f"127.0.0.1:{port}")
    # The reports come at the end alone.
    with start(tmp_path, *options, "--telemetry-interval", "60") as server:
        site_of(server)
        recorder = recorder_of(server)
        for _ in range(3):
            assert server.get("/pid").status == 200
        # Somebody looks at the site, and somebody else is slow.
        with urlopen(f"http://127.0.0.1:{port}/api/v1/now", timeout=TIMEOUT_S) as answer:
            json.load(answer)
        with socket.create_connection(("127.0.0.1", port)) as slow, Held(server, tmp_path) as held:
            slow.sendall(b"GET / HTTP/1.1\r\n")
            end(server)
            wait_until_refused(server)
            assert held.release().status == 200
            assert server.stop(None) == 0
        assert_recorder_has_ended_by_itself(server, recorder, telemetry, port)
    assert_store_has(tmp_path, 4)


def test_it_writes_everything_where_a_terminal_ends_all_at_once(tmp_path: Path) -> None:
    telemetry, port = tmp_path / "socket", free_port()
    options = ("--telemetry", f"unix:{telemetry}", "--dashboard-http", f"127.0.0.1:{port}")
    server = start(tmp_path, *options)
    try:
        site_of(server)
        recorder = recorder_of(server)
        # By Ctrl-\.
        for pid in [*server.workers(), server.process.pid]:
            os.kill(pid, signal.SIGQUIT)
    finally:
        assert server.stop(None, kills=True) == -signal.SIGQUIT
    assert_recorder_has_ended_by_itself(server, recorder, telemetry, port)
    # SQLite removes its log at the last close.
    assert not list(tmp_path.glob("*-wal"))


def test_a_server_that_is_killed_leaves_no_recorder(tmp_path: Path) -> None:
    telemetry, port = tmp_path / "socket", free_port()
    options = ("--telemetry", f"unix:{telemetry}", "--dashboard-http", f"127.0.0.1:{port}")
    server = start(tmp_path, *options)
    try:
        site = site_of(server)
        recorder, workers = recorder_of(server), server.workers()
        assert server.get("/pid").status == 200
        wait_until(lambda: ask(site, "summary?from=-60")["summary"]["requests"] == 1, server)
        server.process.kill()
        wait_until(lambda: not any(map(is_alive, workers)), server)
        assert server.stop(None) == -signal.SIGKILL
    finally:
        for pid in filter(is_alive, [recorder, *workers]):
            os.kill(pid, signal.SIGKILL)
        server.stop()
    assert_recorder_has_ended_by_itself(server, recorder, telemetry, port)
    with start(tmp_path, *options) as following:
        site = site_of(following)
        assert ask(site, "summary?from=-600")["summary"]["requests"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_by_itself_before_it_listens(tmp_path: Path, number: signal.Signals) -> None:
    telemetry = tmp_path / "socket"
    command = [
        *(sys.executable, "-m", "headway", "serve", "processes:application", "--app-dir", APPS),
        *("--bind", "127.0.0.1:0", "--dashboard", "--dashboard-http", "127.0.0.1:0", *MODE),
        *("--dashboard-store", tmp_path / "store", "--telemetry", f"unix:{telemetry}"),
    ]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    end = time.monotonic() + TIMEOUT_S
    while not (recorder := children.read_text()):
        assert time.monotonic() < end
    pid = int(recorder.split()[0])
    try:
        process.send_signal(number)
        # The end of stderr is that of the recorder too.
        _, stderr = process.communicate(timeout=TIMEOUT_S)
    finally:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)
    assert process.returncode == (0 if number == signal.SIGTERM else -number), stderr
    assert not telemetry.exists()
    assert "the dashboard" not in stderr


@pytest.mark.slow("a recorder that hangs")
def test_a_second_signal_does_not_wait_for_one_that_hangs(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        site_of(server)
        recorder = recorder_of(server)
        os.kill(recorder, signal.SIGSTOP)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: server.workers() == [recorder], server)
        # More than 0.1 s after the first.
        time.sleep(0.2)
        assert server.stop(signal.SIGTERM, kills=True) == -signal.SIGTERM
    assert not is_alive(recorder)
    assert "was ended by SIGKILL; the last reports may be missing" in server.stderr


# Only the server's processes report to it


def private_socket(server: Served) -> Path:
    """The socket as the recorder's command line and /proc/net/unix show it to everybody."""
    arguments = Path(f"/proc/{recorder_of(server)}/cmdline").read_text().split("\0")
    path = arguments[arguments.index("--listen") + 1].removeprefix("unix:")
    assert path in Path("/proc/net/unix").read_text()
    return Path(path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_its_folder_is_gone_at_the_end(tmp_path: Path, number: signal.Signals) -> None:
    server = start(tmp_path)
    try:
        site_of(server)
        recorder, folder = recorder_of(server), private_socket(server).parent.parent
        assert folder.is_dir()
    finally:
        server.stop(number)
    wait_until(lambda: not is_alive(recorder), server)
    assert "the dashboard" not in server.stderr
    assert not folder.exists()


def test_its_folder_is_gone_where_the_server_was_killed_before_it_ran(tmp_path: Path) -> None:
    app = ("pages:hello", "--app-dir", APPS, "--bind", "127.0.0.1:0", *MODE)
    dashboard = ("--dashboard", "--dashboard-http", "127.0.0.1:0", "--dashboard-store", "store")
    server = launch.start(
        "serve", *app, *dashboard, cwd=tmp_path, env=launch.environment(TMPDIR=str(tmp_path))
    )
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
    end = time.monotonic() + TIMEOUT_S
    while not children.read_text():
        assert time.monotonic() < end
    (folder,) = tmp_path.glob("headway-*")
    server.kill()
    # The end of stderr is that of the recorder, too.
    server.communicate(timeout=TIMEOUT_S)
    assert not folder.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(
    "preload",
    [(), pytest.param(("--preload",), marks=pytest.mark.slow("starts a dozen programs"))],
)
def test_only_the_servers_processes_can_report_to_it(
    tmp_path: Path, preload: tuple[str, ...]
) -> None:
    # Everything above the application must let the user pass.
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        shutil.copy(APPS / "processes.py", directory)
        options = ("--app-dir", directory, "--user", "nobody", *preload)
        with start(tmp_path, *options) as server:
            site = site_of(server)
            send = (
                "import socket, sys\n"
                "with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:\n"
                "    own.sendto(b'forged', sys.argv[1])\n"
            )
            # A Python that every user can run.
            command = ["/usr/bin/python3", "-c", send, str(private_socket(server))]
            for user in (12345, "nobody"):
                forger = subprocess.run(command, user=user, capture_output=True, text=True)
                assert "PermissionError: [Errno 13]" in forger.stderr
            assert server.get("/pid").status == 200

            def served() -> int:
                found: int = ask(site, "summary?from=-60&group=main")["summary"]["requests"]
                return found

            wait_until(lambda: served() == 1, server)
            server.process.send_signal(signal.SIGHUP)
            server.wait_for("generation 2 serves, 1 retires")
            assert server.get("/pid").status == 200
            wait_until(lambda: served() == 2, server)
            os.kill(recorder_of(server), signal.SIGKILL)
            wait_until(lambda: server.stderr.count("showing at") == 2, server)
            site = re.findall(r"showing at (http://[\d.:]+)", server.stderr)[1]
            # The former one may not have stored the last request.
            stored = served()
            worker = int(server.get("/pid").body)
            wait_until(lambda: served() == stored + 1, server)
            # And its crash is reported for it.
            os.kill(worker, signal.SIGKILL)
            wait_until(
                lambda: (
                    "killed by SIGKILL"
                    in [each.get("death") for each in ask(site, "lifecycle?from=-60")["events"]]
                ),
                server,
            )


def test_programs_of_the_application_do_not_inherit_the_way_to_it(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        site_of(server)
        folder = str(private_socket(server).parent)
        worker = int(server.get("/pid").body)
        (fd,) = [each for each, path in open_files(worker).items() if path == folder]
        flags = re.search(r"flags:\s*([0-7]+)", Path(f"/proc/{worker}/fdinfo/{fd}").read_text())
        assert flags is not None
        assert int(flags[1], 8) & os.O_CLOEXEC


@pytest.mark.parametrize("address", ["0.0.0.0:8888", "example.org:1", "127.0.0.1"])
def test_it_is_for_this_machine(address: str) -> None:
    done = run_main(
        *("serve", "processes:application", "--app-dir", APPS),
        *("--dashboard", "--dashboard-http", address),
    )
    assert done.returncode == 2
    assert (
        f"--dashboard-http: found {address!r}; allowed: HOST:PORT, the host localhost"
        in done.stderr
    )
    assert done.stderr.count("\n") == 1


# The rules for its process, on a clock and with processes that the test controls


def simulated(
    tmp_path: Path, machine: Machine | None = None, *groups: dict[str, Any]
) -> Simulation:
    path = str(tmp_path / "telemetry")
    return Simulation(
        *groups,
        machine=machine,
        dashboard=lambda machine: Dashboard(Address("127.0.0.1", 0), None, path, machine),
    )


@pytest.fixture
def recorders_socket(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "telemetry"))
        yield listener


@pytest.mark.usefixtures("recorders_socket")
def test_it_is_the_first_to_start_and_the_last_to_end(tmp_path: Path) -> None:
    with simulated(tmp_path) as server:
        recorder, worker = server.machine.started
        assert recorder.is_recorder
        assert "unix:" + str(tmp_path / "telemetry") in recorder.arguments
        assert worker.task["telemetry"]["path"] == str(tmp_path / "telemetry")
        server.reload()
        assert server.newest().task["telemetry"]["path"] == str(tmp_path / "telemetry")
        assert server.stop() == 0
        assert recorder.signals == []
    assert recorder.signals == [RECORDERS_END]
    assert not recorder.is_alive
    assert len(server.recorders) == 0


@pytest.mark.parametrize("seconds", [0.3, 4.9])
def test_processes_wait_until_it_listens(tmp_path: Path, seconds: float) -> None:
    machine = Machine()
    began = machine.now
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:

        def listen_in_time() -> None:
            if machine.now >= began + seconds and not listener.getsockname():
                listener.bind(str(tmp_path / "telemetry"))

        machine.while_it_sleeps = listen_in_time
        with simulated(tmp_path, machine) as server:
            (worker,) = server.workers
            assert worker.started_at - began == pytest.approx(seconds, abs=0.02)


def test_a_signal_ends_the_wait(tmp_path: Path) -> None:
    machine = Machine()
    began = machine.now
    server = simulated(tmp_path, machine)

    def stop_soon() -> None:
        if machine.now >= began + 0.3:
            server.signals.send(signal.SIGTERM)

    machine.while_it_sleeps = stop_soon
    with server:
        assert machine.now - began == pytest.approx(0.3, abs=0.02)
        assert server.exit_status() == 0


def test_processes_do_not_wait_for_long(tmp_path: Path) -> None:
    machine = Machine()
    with simulated(tmp_path, machine) as server:
        recorder, worker = machine.started
        assert worker.started_at - recorder.started_at == pytest.approx(5.0, abs=0.02)
        assert server.states() == ["serving"]


@pytest.mark.usefixtures("recorders_socket")
def test_it_starts_again_later_and_later(tmp_path: Path) -> None:
    with simulated(tmp_path) as server:
        delays = []
        for _ in range(8):
            count = len(server.machine.started)
            server.recorders[0].is_ended_by(signal.SIGKILL)
            delays.append(server.time_until(lambda c=count: len(server.machine.started) > c))
        assert delays == [1, 2, 4, 8, 16, 32, 60, 60]
        assert server.states() == ["serving"]
    assert server.log[1:3] == [
        "the dashboard was ended by SIGKILL; it starts again in 1 s",
        "the dashboard was ended by SIGKILL; it starts again in 2 s",
    ]


@pytest.mark.parametrize("is_at_once", [True, False])
def test_one_that_cannot_be_is_not_started_again(tmp_path: Path, is_at_once: bool) -> None:
    """An address that is taken, say: its own line in the log has the reason."""
    machine = Machine()

    def give_up() -> None:
        if is_at_once and machine.alive:
            machine.alive[0].exits(2)

    machine.while_it_sleeps = give_up
    with simulated(tmp_path, machine) as server:
        if is_at_once:
            assert machine.now < 1000.1, "nothing to wait for"
        else:
            server.recorders[0].exits(2)
        server.wait(3600)
        assert server.recorders == []
        assert server.states() == ["serving"]
        assert server.stop() == 0
    assert server.log.count("the dashboard cannot run; the server goes on without it") == 1


def test_one_that_the_system_refuses_is_tried_again(tmp_path: Path) -> None:
    machine = Machine()
    machine.spawn_error = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    dashboard = Dashboard(Address("127.0.0.1", 0), None, str(tmp_path / "telemetry"), machine)
    dashboard.start()
    assert dashboard.deadline == machine.now + 1.0
    machine.spawn_error = None
    machine.now += 0.99
    dashboard.tend()
    assert machine.started == []
    machine.now += 0.01
    dashboard.tend()
    assert len(machine.started) == 1
    dashboard.stop()


@pytest.mark.usefixtures("recorders_socket")
@pytest.mark.parametrize("is_gone_before", [True, False])
def test_it_does_not_start_again_while_the_server_stops(
    tmp_path: Path, is_gone_before: bool
) -> None:
    machine = Machine()
    machine.obeys = False
    with simulated(tmp_path, machine) as server:
        (recorder,) = server.recorders
        if is_gone_before:
            recorder.is_ended_by(signal.SIGKILL)
            server.wait()
        server.send(signal.SIGTERM)
        if not is_gone_before:
            recorder.is_ended_by(signal.SIGKILL)
        server.wait(5)
        assert server.recorders == []
        assert server.states() == ["stopping"]
    lost = "the dashboard was ended by SIGKILL; the last reports may be missing from its store"
    again = "the dashboard was ended by SIGKILL; it starts again in 1 s"
    assert server.log[1:] == [again if is_gone_before else lost]


@pytest.mark.usefixtures("recorders_socket")
def test_one_that_does_not_end_is_killed(tmp_path: Path) -> None:
    with simulated(tmp_path) as server:
        (recorder,) = server.recorders
        recorder.obeys = False
        assert server.stop() == 0
        ended_at = server.machine.now
    assert recorder.signals == [RECORDERS_END, signal.SIGKILL]
    assert server.machine.now - ended_at == pytest.approx(10.0, abs=0.02)
    assert server.log[-2:] == [
        "the dashboard has not ended after 10 s and is killed",
        "the dashboard was ended by SIGKILL; the last reports may be missing from its store",
    ]


@pytest.mark.usefixtures("recorders_socket")
def test_one_that_does_not_end_does_not_hold_up_an_end_at_once(tmp_path: Path) -> None:
    with simulated(tmp_path) as server:
        (recorder,) = server.recorders
        recorder.obeys = False
        began = server.machine.now
        server.send(signal.SIGQUIT)
    assert recorder.signals == [RECORDERS_END, signal.SIGKILL]
    assert server.machine.now - began == pytest.approx(1.0, abs=0.02)
    assert "the dashboard has not ended after 1 s and is killed" in server.log


@pytest.mark.usefixtures("recorders_socket")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_a_second_signal_kills_one_that_does_not_end(
    tmp_path: Path, number: signal.Signals
) -> None:
    with simulated(tmp_path) as server:
        (recorder,) = server.recorders
        recorder.obeys = False
        assert server.stop() == 0
        server.machine.now += 1.0
        ended_at = server.machine.now
        server.signals.send(number)
    assert recorder.signals == [RECORDERS_END, signal.SIGKILL]
    assert server.machine.now == ended_at
    assert server.supervisor.ended_by == number
