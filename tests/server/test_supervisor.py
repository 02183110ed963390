"""Real processes that come and go: deaths, SIGHUP, restarts under a checked load, and groups. The
rules of their life cycle are in test_life_cycle.py and test_generations.py."""

from __future__ import annotations

import grp
import os
import pwd
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from launch import ADDRESS_NOT_AVAILABLE
from served import APPS, TIMEOUT_S
from supervised import HERE, Held, Load, Supervised, is_alive, open_fds

TWO = {"processes": 2}


def fails_to_start(directory: Path, *groups: dict[str, object], **changes: str) -> tuple[int, str]:
    """Exit status and stderr of a server that cannot begin."""
    server = Supervised.__new__(Supervised)
    with pytest.raises(AssertionError, match="is not in stderr"):
        server.__init__(directory, *groups, environment=changes)
    status = server.stop(None)
    return status, server.stderr.rstrip("\0")


@pytest.mark.free_threading
def test_all_processes_serve_and_know_that_they_are_several(tmp_path: Path) -> None:
    with Supervised(tmp_path, TWO, final_table=True) as server:
        workers = set(server.workers())
        assert len(workers) == 2
        server.wait_until(lambda: server.pids() <= workers)
        with Load(server, clients=8, keep_alive=False) as load:
            load.wait_for_answers(300)
        assert set(load.pids) <= workers
        assert not load.failed()
        assert server.get("/multiprocess").body == b"1"
    assert len(re.findall(r"Process [12] of group main \(pid \d+\):\npath ", server.stderr)) == 2


def test_one_process_is_not_several(tmp_path: Path) -> None:
    with Supervised(tmp_path) as server:
        assert server.get("/multiprocess").body == b"0"


@pytest.mark.free_threading
@pytest.mark.parametrize("keep_alive", [True, False])
def test_a_killed_worker_takes_only_its_own_connections_with_it(
    tmp_path: Path, keep_alive: bool
) -> None:
    clients = 4
    with Supervised(tmp_path, TWO) as server:
        with Load(server, clients=clients, keep_alive=keep_alive) as load:
            before = set(server.workers())
            victim = min(before)
            os.kill(victim, signal.SIGKILL)
            server.wait_until(lambda: set(server.workers()) - before)
            new = (set(server.workers()) - before).pop()
            # With keep-alive all clients may be on the worker that is left, and stay there.
            server.wait_until(lambda: new in server.pids())
            load.wait_for_answers(100)
        assert sum(load.failed().values()) <= clients, load.failed()
        assert not any("refused" in kind for kind in load.failed())
    assert f"(pid {victim}) was ended by SIGKILL while it served; starting another" in server.stderr


@pytest.mark.free_threading
@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("processes", [1, 2])
def test_nothing_fails_while_generations_change(
    tmp_path: Path, keep_alive: bool, processes: int
) -> None:
    with Supervised(tmp_path, {"processes": processes}) as server:
        first = set(server.workers())
        with Load(server, keep_alive=keep_alive) as load:
            for generation in (2, 3, 4):
                server.reload(generation)
                load.wait_for_answers(50)
        assert not load.failed()
        server.wait_until(lambda: not first & set(server.workers()))
        assert server.pids().isdisjoint(first)


def test_a_request_under_way_ends_in_the_generation_that_began_it(tmp_path: Path) -> None:
    with Supervised(tmp_path) as server, Held(server, tmp_path) as held:
        (first,) = server.workers()
        server.reload(2)
        server.wait_until(lambda: first not in server.pids())
        response = held.release()
        assert int(response.body) == first
        assert response.headers["connection"] == "close"


def test_a_generation_that_cannot_start_changes_nothing(tmp_path: Path) -> None:
    flag = tmp_path / "fail"
    with Supervised(tmp_path, TWO, environment={"FAIL_WHILE_EXISTS": str(flag)}) as server:
        first = set(server.workers())
        flag.touch()
        with Load(server) as load:
            server.process.send_signal(signal.SIGHUP)
            server.wait_for("importing processes failed .*; generation 1 goes on serving")
            load.wait_for_answers(50)
        assert not load.failed()
        assert "RuntimeError: told not to start" in server.stderr
        server.wait_until(lambda: set(server.workers()) == first)
        server.write({"threads": 2, "binds": ["192.0.2.1:1"]})
        server.process.send_signal(signal.SIGHUP)
        server.wait_for(
            f"SIGHUP: process group 'main': bind 192.0.2.1:1: {ADDRESS_NOT_AVAILABLE}; "
            "generation 1 goes on"
        )
        flag.unlink()
        server.write(TWO)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("generation 3 serves, 1 retires")
        server.wait_until(lambda: server.pids().isdisjoint(first))


def test_a_configuration_that_keeps_the_server_waiting_does_not_stop_it(tmp_path: Path) -> None:
    """As a file system that hangs: here the file is a FIFO that nobody writes to."""
    with Supervised(tmp_path) as server:
        (first,) = server.workers()
        settings = server.file.read_text()
        server.file.unlink()
        os.mkfifo(server.file)
        server.process.send_signal(signal.SIGHUP)
        server.process.send_signal(signal.SIGUSR1)
        server.wait_for("SIGUSR1:")
        os.kill(first, signal.SIGKILL)
        server.wait_for("was ended by SIGKILL while it served; starting another")
        assert server.get("/pid").status == 200
        server.file.write_text(settings)
        server.wait_for("generation 2 serves")
        server.process.send_signal(signal.SIGHUP)
        assert server.stop() == 0


def test_addresses_and_numbers_change_with_the_configuration(tmp_path: Path) -> None:
    old, new = tmp_path / "old.sock", tmp_path / "new.sock"
    with Supervised(tmp_path, {"binds": [f"unix:{old}"]}) as server:
        assert server.get("/pid").status == 200
        server.write({"binds": [f"unix:{new}"], "processes": 3})
        server.reload(2)
        assert not old.exists()
        server.path = str(new)
        server.wait_until(lambda: len(server.pids()) >= 1 and len(server.workers()) == 3)
    assert not new.exists()


@pytest.mark.free_threading
@pytest.mark.parametrize(
    ("target", "how"),
    [("/exits?3", "ended with exit status 3"), ("/crashes", "was ended by SIGSEGV")],
)
def test_an_application_that_ends_its_process(tmp_path: Path, target: str, how: str) -> None:
    with Supervised(tmp_path, TWO) as server:
        with server.connect() as connection:
            connection.sendall(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            assert connection.recv(1) == b""
        server.wait_for(f"{how}.* while it served; starting another")
        server.wait_until(lambda: len(server.workers()) == 2)
        assert server.get("/pid").status == 200


def test_one_bad_group_ends_everything_before_it_begins(tmp_path: Path) -> None:
    groups = (
        {"name": "good", "binds": [f"unix:{tmp_path}/good"]},
        {"name": "bad", "mounts": [{"path": "", "application": "nowhere:app"}]},
    )
    status, said = fails_to_start(tmp_path, *groups)
    assert status == 2
    assert said == (
        "headway serve: APP is 'nowhere:app': there is no module 'nowhere' "
        "in the current directory, in --app-dir, or installed\n"
    )
    assert not (tmp_path / "good").exists()


def test_signals_while_the_application_is_imported(tmp_path: Path) -> None:
    flag = tmp_path / "sleep"
    flag.touch()
    file = tmp_path / "settings.json"
    Supervised.write(object.__new__(_Unstarted).at(file))
    process = subprocess.Popen(
        [sys.executable, str(HERE / "supervise_file.py"), str(file)],
        env={**os.environ, "SLEEP_WHILE_EXISTS": str(flag)},
        stderr=subprocess.PIPE,
        text=True,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not children.read_text():
        time.sleep(0.02)
    process.send_signal(signal.SIGHUP)
    process.terminate()
    _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, said


class _Unstarted(Supervised):
    def at(self, file: Path) -> Supervised:
        self.file = file
        return self


@pytest.mark.free_threading
def test_many_generations_leave_no_descriptor_open(tmp_path: Path) -> None:
    with Supervised(tmp_path) as server:
        server.reload(2)
        server.wait_until(lambda: len(server.workers()) == 1)

        def descriptors() -> list[int]:
            return [open_fds(pid) for pid in (server.process.pid, *server.workers())]

        before = descriptors()
        for generation in range(3, 11):
            server.reload(generation)
        server.wait_until(lambda: len(server.workers()) == 1)
        # Those of a worker that has just ended are closed soon.
        server.wait_until(
            lambda: all(now <= then for now, then in zip(descriptors(), before, strict=True))
        )


def test_a_limit_may_be_months_away(tmp_path: Path) -> None:
    days = 60 * 86_400.0
    group = {"restart_interval_s": days, "graceful_timeout_s": days}
    with Supervised(tmp_path, group) as server, Held(server, tmp_path) as held:
        server.reload(2)
        assert held.release().status == 200, "by a worker that has 60 days to end"


@pytest.mark.slow("uses a second of CPU time")
def test_cpu_time_has_a_limit(tmp_path: Path) -> None:
    mounts = [
        {"path": "", "application": "processes:application"},
        {"path": "/stuck", "application": "stuck:application"},
    ]
    group = {"cpu_time_limit_s": 1.0, "graceful_timeout_s": 0.1, "mounts": mounts}
    with Supervised(tmp_path, group) as server:
        (first,) = server.workers()
        with server.connect() as busy:
            # For as long as it takes; the process is replaced meanwhile.
            busy.sendall(b"GET /stuck/compute?60 HTTP/1.1\r\nHost: a\r\n\r\n")
            server.wait_for(rf"\(pid {first}\) is replaced \(cpu_time_limit: 1 s\)")
            server.wait_until(lambda: first not in server.pids())
        # Only then is its end none of the server's own.
        server.wait_for(rf"\(pid {first}\) ended with exit status 1 while it stopped")


def test_an_open_pipe_is_not_needed_for_the_log(tmp_path: Path) -> None:
    """A log whose reader has gone away is no reason to stop serving."""
    server = Supervised(tmp_path, TWO)
    first = set(server.workers())
    os.kill(min(first), signal.SIGKILL)
    server.wait_until(lambda: len(server.workers()) == 2 and set(server.workers()) != first)
    assert server.stop() == 0


@pytest.mark.parametrize("deed", ["sys.stderr.close()", "sys.stderr = None"])
def test_an_application_may_close_stderr(tmp_path: Path, deed: str) -> None:
    (tmp_path / "silent.py").write_text(
        f"import sys\nfrom processes import application\n{deed}\nsys.stdout.close()\n"
    )
    mounts = [{"path": "", "application": "silent:application"}]
    group = {"mounts": mounts, "python_path": [str(tmp_path), str(APPS)]}
    with Supervised(tmp_path, group) as server:
        (pid,) = server.pids()
        assert server.get("/raises_key_error").status == 500
        assert server.pids() == {pid}


def test_groups_have_addresses_and_applications_of_their_own(tmp_path: Path) -> None:
    shop = {
        "name": "shop",
        "binds": [f"unix:{tmp_path}/shop"],
        "mounts": [
            {"path": "", "application": "pages:unchecked"},
            {"path": "/who", "application": "processes:application"},
        ],
    }
    with Supervised(tmp_path, {}, shop, final_table=True) as server:
        assert server.get("/pid").status == 200
        server.path = f"{tmp_path}/shop"
        assert server.get("/hello").body == b"hello\n"
        assert int(server.get("/who/pid").body) in server.workers()
        said = server.get("/environ").body.decode()
        assert "SCRIPT_NAME=''" in said
    assert re.search(r"Process 1 of group shop \(pid \d+\):\npath .*\n/", server.stderr)


def test_port_0_is_another_port_for_each_group(tmp_path: Path) -> None:
    groups = ({"name": "shop"}, {"name": "docs"})
    with Supervised(tmp_path, *groups) as server:
        server.wait_for("group docs is listening on")
        found = re.findall(r"group (\w+) is listening on http://127.0.0.1:(\d+)\n", server.stderr)
        ports = {name: int(port) for name, port in found}
        assert len(set(ports.values())) == 2

        def pids() -> set[int]:
            answers = set()
            for port in ports.values():
                server.address = ("127.0.0.1", port)
                answers |= server.pids()
            return answers

        first = pids()
        assert first == set(server.workers())
        server.reload(2)
        server.wait_until(lambda: pids().isdisjoint(first))


def test_a_script_file_has_its_application_in_it(tmp_path: Path) -> None:
    script = tmp_path / "site.wsgi"
    script.write_text(
        "def application(environ, start_response):\n"
        "    start_response('200 OK', [])\n"
        "    return [(environ['SCRIPT_NAME'] + '|' + environ['PATH_INFO']).encode()]\n"
    )
    mounts = [{"path": "/site", "application": str(script)}]
    with Supervised(tmp_path, {"mounts": mounts}) as server:
        assert server.get("/site/a/b").body == b"/site|/a/b"
        assert server.get("/site").body == b"/site|"
        assert server.get("/sites").status == 404


def test_a_process_is_what_its_group_says(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    # Where another user can pass, unlike pytest's own folder.
    group = {
        "name": "shop",
        "umask": 0o027,
        "home": str(home),
        "environment": {"GREETING": "hello"},
        "lang": "C.UTF-8",
        "cpu_priority": 5,
        "display_name": "%{GROUP}",
        "stack_size_bytes": 1_048_576,
        "memory_limit_bytes": 1 << 33,
        "virtual_memory_limit_bytes": 1 << 36,
    }
    with Supervised(tmp_path, group) as server:
        found = eval(server.get("/identity").body)
    assert found["umask"] == 0o027
    assert found["cwd"] == found["home"] == str(home)
    assert (found["environment"], found["lang"]) == ("hello", "C.UTF-8")
    assert (found["nice"], found["name"]) == (5, "(wsgi:shop)")
    assert found["argv"] == ["headway"]
    assert found["stack"] == 1_048_576
    assert (found["data"], found["address_space"]) == (1 << 33, 1 << 36)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_process_becomes_its_user(tmp_path: Path) -> None:
    # Everything above the application must let that user pass.
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        app = Path(directory) / "processes.py"
        app.write_text((APPS / "processes.py").read_text())
        group = {"user": "nobody", "group": "daemon", "supplementary_groups": ["mail", "daemon"]}
        with Supervised(tmp_path, group | {"python_path": [directory]}) as server:
            found = eval(server.get("/identity").body)
    user, group_id = pwd.getpwnam("nobody"), grp.getgrnam("daemon").gr_gid
    assert (found["uid"], found["gid"]) == (user.pw_uid, group_id)
    assert found["groups"] == sorted({grp.getgrnam("mail").gr_gid, group_id})
    assert found["home"] == user.pw_dir


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_group_alone_leaves_roots_own_groups(tmp_path: Path) -> None:
    with Supervised(tmp_path, {"group": "daemon"}) as server:
        found = eval(server.get("/identity").body)
    assert found["groups"] == [found["gid"]] == [grp.getgrnam("daemon").gr_gid]


@pytest.mark.parametrize("preload", [False, True])
def test_a_command_line_tells_the_group(tmp_path: Path, preload: bool) -> None:
    with Supervised(tmp_path, {"name": "it's", "preload": preload}) as server:
        told = [
            Path(f"/proc/{pid}/cmdline").read_text().split("\0")[1:] for pid in server.workers()
        ]
    # With a template one command line is that of all.
    number = "" if preload else ", process 1"
    expected = f"headway serve: group it's{number}"
    assert all(any(expected in each for each in arguments) for arguments in told), told


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ({"user": "no-such-user"}, "user 'no-such-user': there is none of that name"),
        ({"group": "no-such-group"}, "group 'no-such-group': there is none of that name"),
        ({"home": "/no/such"}, "home '/no/such': no such file or directory"),
        ({"python_home": "/no/such"}, "python-home '/no/such': /no/such/bin/python does not run"),
    ],
)
def test_an_identity_that_cannot_be_had_is_one_line(
    tmp_path: Path, group: dict[str, object], said: str
) -> None:
    status, stderr = fails_to_start(tmp_path, group)
    assert status == 2
    assert re.fullmatch(r"headway serve: process group 'main': .+\n", stderr), stderr
    assert said in stderr


def test_too_little_memory_to_serve_is_said(tmp_path: Path) -> None:
    # More than the arena that a free-threaded CPython reserves as it starts (mimalloc, 1 GB).
    group = {"memory_limit_bytes": 1 << 32, "stack_size_bytes": 1 << 33}
    server = Supervised(tmp_path, group)
    try:
        server.wait_for("cannot serve: can't start new thread, within memory-limit 4294967296\n")
        server.wait_for("ended with exit status 1 while it served; starting another")
    finally:
        # 1 if another has just ended that way.
        assert server.stop() in (0, 1)
    assert "Traceback" not in server.stderr


def test_a_python_without_headway_is_one_line(tmp_path: Path) -> None:
    python = tmp_path / "home" / "bin" / "python"
    python.parent.mkdir(parents=True)
    # -S: without site-packages.
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    status, said = fails_to_start(tmp_path, {"python_home": str(tmp_path / "home")})
    assert status == 2
    assert f"{python} has no headway, and the same version must be there" in said
    assert said.count("\n") == 1


def test_a_listener_that_another_process_keeps_does_not_outlive_the_server(tmp_path: Path) -> None:
    """An application forks and its child stays: the port must be free all the same."""
    with Supervised(tmp_path) as server:
        child = int(server.get("/leaves_a_child").body)
    try:
        assert is_alive(child)
        with pytest.raises(ConnectionRefusedError):
            server.connect()
        with socket.create_server(server.address):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


def test_more_applications_than_a_process_can_be_told_of_is_one_line(tmp_path: Path) -> None:
    mounts = [{"path": f"/{i}", "application": "processes:application"} for i in range(4000)]
    status, said = fails_to_start(tmp_path, {"mounts": mounts})
    assert status == 1
    assert re.search(r"process 1 of group main .*its task does not fit into a message\n$", said)
    assert said.count("\n") == 1
