"""`headway tune SERVER`: a lease on the settings of a running server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from configured import with_own_gil
from launch import GIL_ENABLED, run_main
from supervised import Held, Load, Supervised

from headway.errors import CommandError
from headway.json_shape import find_problem
from headway.tune.connection import Connection, _listening, find_address
from headway.tune.document import TuneDocument
from headway.tune.setting import Setting

pytestmark = pytest.mark.skipif(not GIL_ENABLED, reason="without a GIL there are no policies")

SCHEDULED = {"mounts": [{"path": "", "application": "scheduled:application"}]}
TRIAL = Setting("deadline", 0.001)


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix:{tmp_path / 'status'}"


@contextmanager
def serving(folder: Path, *groups: dict[str, object], **server: object) -> Iterator[Supervised]:
    groups = groups or ({"processes": 2},)
    every = [SCHEDULED | each for each in groups]
    with Supervised(folder, *every, status_socket=str(folder / "status"), **server) as server_:
        yield server_


def settings(server: Supervised) -> set[str]:
    """Those of the processes that answer."""
    return {server.get("/").body.decode() for _ in range(20)}


def wait_for(server: Supervised, setting: str) -> None:
    server.wait_until(lambda: settings(server) == {setting})


def test_a_trial_ends_with_its_connection(tmp_path: Path, address: str) -> None:
    with serving(tmp_path) as server:
        with closing(Connection(address, None)) as connection:
            assert connection.opened["processes"] == 2
            assert connection.present == Setting("priority", 0.005)
            connection.try_setting(TRIAL)
            wait_for(server, "deadline 0.001")
        wait_for(server, "priority 0.005")


def test_a_process_that_starts_within_a_trial_joins_it(tmp_path: Path, address: str) -> None:
    with serving(tmp_path) as server, closing(Connection(address, None)) as connection:
        connection.try_setting(TRIAL)
        wait_for(server, "deadline 0.001")
        former = server.workers()
        subprocess.run(["kill", "-9", str(former[0])], check=True)
        server.wait_until(lambda: len(server.workers()) == 2 and server.workers() != former)
        connection.wait(0.1)
        wait_for(server, "deadline 0.001")


@pytest.mark.slow("waits until a lease is over")
def test_a_client_that_stands_still_loses_its_trial(tmp_path: Path, address: str) -> None:
    code = (
        "import sys, time; from headway.tune.connection import Connection; "
        "from headway.tune.setting import Setting; connection = Connection(sys.argv[1], None); "
        "connection.try_setting(Setting('deadline', 0.001)); print('tried', flush=True); "
        "time.sleep(60)"
    )
    with serving(tmp_path) as server:
        client = subprocess.Popen([sys.executable, "-c", code, address], stdout=subprocess.PIPE)
        with client:
            assert client.stdout is not None
            assert client.stdout.readline() == b"tried\n"
            wait_for(server, "deadline 0.001")
            wait_for(server, "priority 0.005")
            client.kill()
        assert "is silent, and its trial is over" in server.stderr


@pytest.mark.slow("runs experiments")
def test_killing_the_command_takes_the_trial_back(tmp_path: Path, address: str) -> None:
    with serving(tmp_path) as server:
        command = [sys.executable, "-m", "headway", "tune", address, "--policy", "deadline"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tune:
            server.wait_until(lambda: any("deadline" in each for each in settings(server)))
            tune.kill()
            tune.communicate()
        wait_for(server, "priority 0.005")


def test_the_second_is_refused(tmp_path: Path, address: str) -> None:
    with serving(tmp_path), closing(Connection(address, None)):
        done = run_main("tune", address)
        assert done.returncode == 1
        assert "another headway tune (pid " in done.stderr
        assert len(done.stderr.splitlines()) == 1
        # Status is for everybody.
        assert run_main("status", address).returncode == 0


def test_an_applied_setting_survives_sighup_until_the_configuration_changes(
    tmp_path: Path, address: str
) -> None:
    with serving(tmp_path, {}) as server:
        # The second one is applied to processes that a reload has given the first one.
        for generation, setting in ((2, TRIAL), (3, Setting("interval", 0.02))):
            with closing(Connection(address, None)) as connection:
                connection.apply(setting)
            wait_for(server, f"{setting.policy} {setting.switch_interval_s}")
            server.reload(generation)
            wait_for(server, f"{setting.policy} {setting.switch_interval_s}")
        status = str(tmp_path / "status")
        server.write(SCHEDULED | {"policy": "interval"}, status_socket=status)
        server.reload(4)
        # The former generation still answers what it has accepted.
        wait_for(server, "interval 0.005")
        assert settings(server) == {"interval 0.005"}


def test_reading_the_configuration_again_ends_the_experiment(tmp_path: Path, address: str) -> None:
    with serving(tmp_path, {}) as server, closing(Connection(address, None)) as connection:
        connection.try_setting(TRIAL)
        server.reload(2)
        with pytest.raises(CommandError, match="the configuration is read again"):
            connection.try_setting(TRIAL)
        wait_for(server, "priority 0.005")
        assert settings(server) == {"priority 0.005"}


def test_a_block_counts_the_requests_that_came_in_it(tmp_path: Path, address: str) -> None:
    mounts = [{"path": "", "application": "processes:application"}]
    with (
        serving(tmp_path, {"mounts": mounts, "threads": 2}) as server,
        closing(Connection(address, None)) as connection,
    ):

        def count(path: str | None = None) -> int:
            return connection.read_block(path)["response"]["count"]

        server.get("/pid")
        connection.begin_block()
        # The answer shows that the worker has read what was sent before.
        assert count() == 0
        server.get("/pid")
        with Held(server, tmp_path) as held:
            connection.end_block()
            count()
            server.get("/pid")
            held.release()
        # A request counts a moment after its response is sent.
        server.wait_until(lambda: count() >= 2)
        counts = connection.read_block(None)
        assert counts["is_whole"]
        assert (counts["response"]["count"], counts["errors"]) == (2, 0)
        assert [count(path) for path in ("/held", "/pid", "/other")] == [1, 1, 0]


def test_a_client_may_follow_at_once_on_another(tmp_path: Path, address: str) -> None:
    with serving(tmp_path, {}):
        for _ in range(50):
            Connection(address, None).close()


def test_groups_are_chosen_by_name(tmp_path: Path, address: str) -> None:
    with serving(tmp_path, {"name": "one"}, {"name": "two"}):
        for words, expected in (
            ([], "choose one with --group: one, two"),
            (["--group", "three"], "found 'three'; allowed: one of one, two"),
        ):
            done = run_main("tune", address, *words)
            assert expected in done.stderr
        with closing(Connection(address, "two")) as connection:
            assert connection.opened["group"] == "two"


@with_own_gil
def test_interpreters_with_own_gils_keep_their_setting(tmp_path: Path, address: str) -> None:
    own = {"name": "own", "interpreters": 2, "own_gil": True, "python_path": []}
    mounts = [{"path": "", "application": "scheduled:application", "application_group": "own"}]
    with serving(tmp_path, {"mounts": mounts, "application_groups": [own], "threads": 3}):
        with closing(Connection(address, None)) as connection:
            opened = connection.opened
            assert (opened["threads"], opened["interpreters"], opened["own_gil"]) == (3, 2, True)
            connection.try_setting(connection.present)
            with pytest.raises(CommandError, match="have GILs of their own"):
                connection.try_setting(TRIAL)
        done = run_main("tune", address)
        assert done.returncode == 2
        assert "process group main has interpreters with GILs of their own" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_server_that_opens_and_closes_files_is_found(tmp_path: Path) -> None:
    path = str(tmp_path / "listens")
    is_over = threading.Event()

    def open_and_close() -> None:
        while not is_over.is_set():
            with ExitStack() as files:
                for _ in range(50):
                    files.enter_context(open(os.devnull))

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        busy = threading.Thread(target=open_and_close)
        busy.start()
        try:
            for _ in range(50):
                assert path in _listening(os.getpid())
        finally:
            is_over.set()
            busy.join()


def test_the_pid_file_names_the_server(tmp_path: Path, address: str) -> None:
    pid_file = tmp_path / "pid"
    http = {"binds": [f"unix:{tmp_path / 'http'}"]}
    with serving(tmp_path, http, pid_file=str(pid_file)):
        assert find_address(str(pid_file)) == address


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["nowhere"], "SERVER 'nowhere': no such file"),
        (["unix:/nowhere/status"], "is the server running?"),
        (["unix:/nowhere", "--goal", "time"], "allowed: one of p99, p50, throughput, cpu"),
        (["unix:/nowhere", "--limit", "0.5"], "allowed: a number from 1 to 1000"),
        (["serve", "a:b"], "--load"),
        (["serve", "a:b", "--load", "nowhere"], "--load 'nowhere': no such file"),
        (["serve", "a:b", "--load", "/ x"], "found '/ x'; allowed: a path"),
        (["serve", "a:b", "--load", "/", "--path", "/b"], "--path: '/b' is not in --load"),
    ],
)
def test_bad_words_are_refused(words: list[str], expected: str) -> None:
    done = run_main("tune", *words)
    assert done.returncode in (1, 2)
    assert expected in done.stderr


@pytest.mark.slow("tunes a server for some seconds")
def test_a_server_is_tuned_without_a_failed_request(tmp_path: Path, address: str) -> None:
    file = tmp_path / "result.json"
    words = ["--for", "15", "--block", "0.5", "--washout", "0.2", "--policy", "deadline"]
    command = [sys.executable, "-m", "headway", "tune", address, *words, "--json", str(file)]
    with serving(tmp_path) as server:
        with Load(server) as load:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert set(load.counts) == {"answered"}
        assert done.returncode == 0, done.stderr
        wait_for(server, "priority 0.005")
    document = json.loads(file.read_text())
    assert find_problem(document, TuneDocument) == ""
    figures = document["blocks"][0]["figures"]
    assert figures["errors"] == 0
    assert figures["p50_s"] <= figures["p99_s"]
    assert {each["policy"] for each in (b["setting"] for b in document["blocks"])} >= {"deadline"}


@pytest.mark.slow("tunes a server for some seconds")
def test_an_application_is_tuned_with_a_load(tmp_path: Path) -> None:
    file, log = tmp_path / "result.json", tmp_path / "access.log"
    log.write_text(
        '127.0.0.1 - - [01/Jan/2026:00:00:00 +0000] "GET /a HTTP/1.1" 200 5\n'
        '127.0.0.1 - - [01/Jan/2026:00:00:00 +0000] "GET /c HTTP/1.1" 200 5\n'
        '127.0.0.1 - - [01/Jan/2026:00:00:00 +0000] "POST /b HTTP/1.1" 200 5\n'
    )
    words = ["--load", str(log), "--path", "/a", "--for", "10", "--policy", "deadline"]
    apps = str(Path(__file__).resolve().parent.parent / "apps")
    command = [sys.executable, "-m", "headway", "tune", "serve", "scheduled:application", *words]
    done = subprocess.run(
        [*command, "--json", str(file), "--", "--app-dir", apps],
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    figures = document["blocks"][0]["figures"]
    assert figures["failures"] == 0
    # Half of a hundred requests a second; the other path is not counted.
    assert 25 < figures["requests_per_s"] < 75


@pytest.mark.slow("runs experiments")
def test_targets_that_are_errors_are_named(tmp_path: Path) -> None:
    (tmp_path / "one_page.py").write_text(
        "def application(environ, start_response):\n"
        "    found = environ['PATH_INFO'] == '/'\n"
        "    start_response('200 OK' if found else '404 Not Found', [('Content-Length', '0')])\n"
        "    return []\n"
    )
    command = ["tune", "serve", "one_page:application", "--policy", "deadline", "--for", "1"]
    serve = ["--", "--app-dir", str(tmp_path)]
    done = run_main(*command, "--load", "/", "/gone", *serve)
    assert done.returncode == 0, done.stderr
    assert "warning: --load: /gone: 404 Not Found\n" in done.stderr
    done = run_main(*command, "--load", "/a", "/b", *serve)
    assert done.returncode == 2
    assert "--load: every target is an error: /a: 404 Not Found, /b: 404 Not Found" in done.stderr


def test_ctrl_c_leaves_the_server_as_it_was(tmp_path: Path, address: str) -> None:
    with serving(tmp_path) as server:
        command = [sys.executable, "-m", "headway", "tune", address, "--policy", "deadline"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as tune:
            server.wait_until(lambda: any("deadline" in each for each in settings(server)))
            tune.send_signal(signal.SIGINT)
            stdout, _ = tune.communicate(timeout=30)
        assert tune.returncode == 130
        assert "Undecided" in stdout
        wait_for(server, "priority 0.005")
