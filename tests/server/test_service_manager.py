"""systemd's side of a server: sockets that it passes, and messages that it gets."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch import ADDRESS_IN_USE, run_main
from served import APPS, TIMEOUT_S
from simulated import Machine, Simulation
from supervised import Supervised

from headway.address import Address
from headway.errors import CommandError
from headway.server.settings import ProcessGroup
from headway.server.supervisor.listeners import Listeners

# As systemd does: descriptors from 3 on, and the pid of the process itself.
ACTIVATE = (
    "import os, sys\n"
    "os.environ['LISTEN_PID'] = str(os.getpid())\n"
    "os.execv(sys.executable, [sys.executable, '-m', 'headway', 'serve', *sys.argv[1:]])\n"
)


@pytest.mark.parametrize("bind", ["fd://3", "127.0.0.1:{port}", None])
def test_a_socket_that_was_passed_is_served_and_stays_open(bind: str | None) -> None:
    """Where nothing says where to listen, too."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        bind = bind and bind.format(port=port)
        for _ in range(2):
            process = activate(listener, bind)
            try:
                assert process.stderr.readline().endswith(f"listening on http://127.0.0.1:{port}\n")
                assert ask(port) == b"hello\n"
            finally:
                process.terminate()
                process.communicate(timeout=TIMEOUT_S)
            assert process.returncode == 0
            # Nobody serves, and yet the connection is taken: it waits for the next start.
            with socket.create_connection(("127.0.0.1", port)):
                pass


def activate(
    listener: socket.socket, bind: str | None, *options: str, **changes: str
) -> subprocess.Popen[str]:
    bound = [] if bind is None else ["--bind", bind]
    serve = ["pages:hello", "--app-dir", str(APPS), *bound, *options]
    return subprocess.Popen(
        [sys.executable, "-c", ACTIVATE, *serve],
        env={**os.environ, "LISTEN_FDS": "1", "LISTEN_FDNAMES": "web", **changes},
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=(3,),
        preexec_fn=lambda: os.dup2(listener.fileno(), 3),
    )


def ask(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        return hello(connection)


def hello(connection: socket.socket) -> bytes:
    connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    return connection.makefile("rb").read().partition(b"\r\n\r\n")[2]


def test_an_abstract_unix_socket_that_was_passed_is_served() -> None:
    name = f"headway-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        process = activate(listener, None)
        try:
            assert process.stderr.readline().endswith(f"listening on unix:@{name}\n")
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(TIMEOUT_S)
                connection.connect(f"\0{name}")
                assert hello(connection) == b"hello\n"
        finally:
            process.terminate()
            process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0


def test_a_socket_that_was_passed_and_nobody_serves_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        process = activate(listener, "127.0.0.1:0")
        try:
            assert "listening on" in process.stderr.readline()
            assert process.stderr.readline().endswith(
                f"warning: the socket 127.0.0.1:{port} was passed and nobody serves it, so "
                "whoever connects waits in vain; bind it by its address or as fd://3\n"
            )
        finally:
            process.terminate()
            process.communicate(timeout=TIMEOUT_S)


def test_a_socket_that_was_passed_is_named_if_it_may_be_in_the_way() -> None:
    """ListenStream=80 is [::]:80, which takes connections to 0.0.0.0:80 too."""
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6")
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        port = listener.getsockname()[1]
        process = activate(listener, f"0.0.0.0:{port}")
        _, told = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 2
    assert told == (
        f"headway serve: process group 'main': bind 0.0.0.0:{port}: {ADDRESS_IN_USE} "
        f"([::]:{port} was passed; bind that, or fd://3)\n"
    )


def test_a_unix_socket_that_was_passed_is_in_no_ports_way(tmp_path: Path) -> None:
    group = ProcessGroup(binds=(Address("192.0.2.1", 80),))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        with pytest.raises(CommandError) as raised:
            Listeners([listener]).open([group])
    assert "was passed" not in str(raised.value)


def test_a_socket_that_was_not_passed_is_one_line() -> None:
    done = run_main("serve", "pages:hello", "--bind", "fd://3", cwd=APPS)
    assert done.returncode == 2
    assert "process group 'main': bind fd://3: no such socket was passed" in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_systemd_is_told(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(TIMEOUT_S)
        told = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        with Supervised(tmp_path, environment=told) as server:
            assert b"NOTIFY_SOCKET" not in Path(f"/proc/{server.workers()[0]}/environ").read_bytes()
            # No ping before it.
            assert manager.recv(4096) == b"READY=1"
            assert manager.recv(4096) == b"WATCHDOG=1"
            assert manager.recv(4096) == b"WATCHDOG=1"
            server.process.send_signal(signal.SIGHUP)
            assert next_of(manager).startswith("RELOADING=1\nMONOTONIC_USEC=")
            assert next_of(manager) == "READY=1"
        assert next_of(manager) == "STOPPING=1"


def next_of(manager: socket.socket) -> str:
    """The next message that is no ping."""
    while (data := manager.recv(4096)) == b"WATCHDOG=1":
        pass
    return data.decode()


@pytest.mark.parametrize(
    ("kind", "said"), [("stream", "no stream socket that listens"), ("file", "non-socket")]
)
def test_what_is_no_listening_socket_is_one_line(kind: str, said: str) -> None:
    with socket.socket() as unbound, open(os.devnull) as file:
        process = activate(unbound if kind == "stream" else file, "127.0.0.1:0")
        _, told = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 2, told
    assert said in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("count", [2, 3, 99, 10**30])
def test_a_socket_that_is_not_there_is_one_line(tmp_path: Path, count: int) -> None:
    """The server's own, such as the status socket, are not taken for it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = activate(
            listener,
            "fd://3",
            "--status-socket",
            str(tmp_path / "status"),
            LISTEN_FDS=str(count),
        )
        _, told = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 2, told
    assert told == f"headway serve: LISTEN_FDS={count}: descriptor 4: bad file descriptor\n"
    assert not (tmp_path / "status").exists()


def test_a_socket_that_was_passed_sends_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = activate(listener, "fd://3")
        try:
            assert "listening" in process.stderr.readline()
            # The same socket as the server's.
            assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        finally:
            process.terminate()
            process.communicate(timeout=TIMEOUT_S)


# The rules, on a clock and with processes that the test controls


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The service manager's socket, which the environment names."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield manager


def received(manager: socket.socket) -> list[str]:
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(manager.recv(4096).decode().splitlines()[0])
    return found


def test_pings_begin_with_the_service_and_come_twice_as_often_as_they_must(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    machine = Machine()
    machine.imports = False
    with Simulation(machine=machine) as server:
        assert "NOTIFY_SOCKET" not in os.environ
        assert "WATCHDOG_USEC" not in os.environ
        (worker,) = server.workers
        assert "NOTIFY_SOCKET" not in worker.environment
        server.wait(3600)
        assert received(manager) == []
        worker.sends("ready")
        server.wait()
        assert received(manager) == ["READY=1", "WATCHDOG=1"]
        server.wait(29.9)
        assert received(manager) == []
        server.wait(0.2)
        assert received(manager) == ["WATCHDOG=1"]
        server.wait(299.9)
        assert received(manager) == ["WATCHDOG=1"] * 9
        machine.imports = True
        server.reload()
        assert received(manager) == ["RELOADING=1", "READY=1"]
        assert server.stop() == 0
    assert received(manager) == ["STOPPING=1"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"WATCHDOG_USEC": "often"},
        {"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "me"},
    ],
)
def test_a_process_that_is_not_watched_does_not_ping(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str]
) -> None:
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
    with Simulation() as server:
        server.wait(3600)
    assert received(manager) == ["READY=1"]


def test_the_watchdog_may_name_this_process(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    with Simulation():
        assert received(manager) == ["READY=1", "WATCHDOG=1"]


def test_without_a_service_manager_there_are_no_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    with Simulation() as server:
        assert server.supervisor._service_manager.ping_at is None


@pytest.mark.parametrize("how", ["cannot begin", "fails"])
def test_a_reload_that_fails_is_over_too(manager: socket.socket, how: str) -> None:
    with Simulation() as server:
        received(manager)
        server.machine.imports = False
        if how == "cannot begin":
            server.reload({"binds": (Address("192.0.2.1", 1),)})
        else:
            server.reload()
            assert received(manager) == ["RELOADING=1"]
            server.newest().exits(9)
            server.wait()
        assert received(manager)[-1] == "READY=1"


def test_a_reload_that_takes_the_place_of_another_is_over_once(manager: socket.socket) -> None:
    with Simulation() as server:
        received(manager)
        server.machine.imports = False
        server.reload()
        server.reload({"binds": (Address("192.0.2.1", 1),)})
        assert received(manager) == ["RELOADING=1", "RELOADING=1"], "the first goes on"
        server.machine.imports = True
        server.newest().sends("ready")
        server.wait()
        assert received(manager) == ["READY=1"]


def test_a_service_manager_may_have_an_abstract_address(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"headway-notify-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}")
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        with Simulation():
            assert received(manager) == ["READY=1"]


def test_the_path_of_a_service_manager_may_have_an_at_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "foo@1").mkdir()
    path = tmp_path / "foo@1" / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        with Simulation():
            assert received(manager) == ["READY=1"]


def test_a_service_manager_that_is_gone_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nowhere"))
    with Simulation() as server:
        assert server.stop() == 0
