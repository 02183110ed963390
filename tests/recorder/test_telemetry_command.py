"""`headway telemetry` as a program: its defaults, its complaints, its end, and what it exports."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from launch import (
    ADDRESS_IN_USE,
    HEADWAY,
    TOO_MANY_OPEN_FILES,
    environment,
    execute,
    headway,
    run_main,
    start,
)
from test_recorder import wait_until
from ticks import START, Bench, Clock, requests, send, tick

import headway as headway_package
from headway.errors import CommandError
from headway.recorder.query.history import History
from headway.recorder.service import Service
from headway.recorder.settings import Settings, default_socket, default_store
from headway.recorder.store.recording import open_recording, take_away
from headway.recorder.store.selection import EVERYTHING, Selection

TIMEOUT_S = 60


@contextmanager
def recorder(*options: str | Path) -> Iterator[subprocess.Popen[str]]:
    """One without a site that receives by now."""
    process = start("telemetry", "--no-http", *options)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("headway telemetry: receiving at unix:"), line
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        with process:
            pass


def end(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> str:
    process.send_signal(number)
    _, messages = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, messages
    return messages


def recorded(store: Path, since: float = START - 100) -> int:
    reader = open_recording("it", str(store))
    history = History(recordings={"it": reader})
    count = requests(history.record(since, time.time() + 10, Selection(recording="it")))
    history.close()
    return count


def test_a_package_without_the_dashboard_says_so(tmp_path: Path) -> None:
    installed = Path(headway_package.__file__).parent
    without = shutil.ignore_patterns("static", "__pycache__")
    shutil.copytree(installed, tmp_path / "lib/headway", ignore=without)
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", "telemetry", "--no-store", "--http", "127.0.0.1:0",
         "--listen", f"unix:{tmp_path}/t.sock"],
        env=environment(PYTHONPATH=str(tmp_path / "lib")),
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        assert process.stderr.readline().startswith("headway telemetry: receiving at unix:")
        assert process.stderr.readline() == (
            "headway telemetry: this package of Headway was built without the dashboard: install "
            "Node.js 20.19 or newer with npm, and in Headway's source tree run `make build`, or "
            "`pip install .` in an environment of your own\n"
        )
        where = process.stderr.readline().removeprefix("headway telemetry: showing at ")
        with urllib.request.urlopen(where.strip(), timeout=TIMEOUT_S) as answer:
            page = answer.read().decode()
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
    assert "This package of Headway was built without the dashboard." in page
    assert "<code>pip install .</code>" in page
    assert "without Node.js" not in page


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_everything_committed(tmp_path: Path, number: int) -> None:
    path, store = tmp_path / "in.sock", tmp_path / "store.sqlite"
    with recorder("--listen", f"unix:{path}", "--store", store) as process:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        now = time.time()
        send(path, *(tick(7, n, now) for n in range(1, 101)))
        assert end(process, number) == ""
    assert not path.exists()
    assert recorded(store) == 1000


def test_a_signal_that_is_ignored_from_the_start_stays_ignored(tmp_path: Path) -> None:
    """As under `nohup`."""
    path, store = tmp_path / "in.sock", tmp_path / "store.sqlite"
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with recorder("--listen", f"unix:{path}", "--store", store) as process:
            process.send_signal(signal.SIGHUP)
            send(path, tick(7, 1, time.time()))
            wait_until(lambda: recorded(store) == 10)
            assert end(process) == ""
    finally:
        signal.signal(signal.SIGHUP, former)


def test_a_kill_leaves_what_was_committed_and_a_socket_that_is_replaced(tmp_path: Path) -> None:
    path, store = tmp_path / "in.sock", tmp_path / "store.sqlite"
    options = ("--listen", f"unix:{path}", "--store", store)
    with recorder(*options) as process:
        send(path, tick(7, 1, time.time()))
        wait_until(lambda: store.exists() and recorded(store) == 10)
        process.kill()
    assert path.exists()
    with recorder(*options) as process:
        send(path, tick(7, 2, time.time()))
        end(process)
    assert recorded(store) == 20


def test_defaults_of_a_user_and_of_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    monkeypatch.setenv("XDG_STATE_HOME", "/home/u/.state")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert default_socket() == "/run/user/1000/headway-telemetry.sock"
    assert default_store() == "/home/u/.state/headway/telemetry.sqlite"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert default_socket() == "/tmp/headway-1000/headway-telemetry.sock"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_socket() == "/run/headway/headway-telemetry.sock"
    assert default_store() == "/var/lib/headway/telemetry.sqlite"


@pytest.mark.skipif(os.geteuid() != 0, reason="the folder of another user needs root")
@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("of another user", "it belongs to user 65534"),
        ("open to others", "its mode is 0777"),
        ("open to a group", "its mode is 0770"),
        ("a link", "it is no folder"),
        ("private", ""),
    ],
)
def test_the_default_socket_is_in_no_folder_that_others_have_a_say_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, found: str
) -> None:
    user = 1_000_000 + os.getpid()
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    folder = Path(f"/tmp/headway-{user}")
    try:
        if what == "a link":
            folder.symlink_to(tmp_path)
        else:
            folder.mkdir()
            os.chown(folder, 65534 if what == "of another user" else user, -1)
            folder.chmod({"open to others": 0o777, "open to a group": 0o770}.get(what, 0o755))
        settings = Settings(default_socket(), None, None)
        with contextlib.ExitStack() as stack:
            if not found:
                service = Service(settings, stack)
                stack.callback(service.recorder.stop)
                assert os.listdir(folder) == ["headway-telemetry.sock"]
                return
            with pytest.raises(CommandError) as caught:
                Service(settings, stack)
        assert str(caught.value) == (
            f"--listen: {folder}: {found}; allowed: a folder of user {user} that nobody else may "
            "write to"
        )
        assert caught.value.exit_code == 2
        assert list(tmp_path.iterdir()) == []
    finally:
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)


def test_an_export_leaves_files_of_others_alone(tmp_path: Path) -> None:
    store, target = tmp_path / "store.sqlite", tmp_path / "part.sqlite"
    bench = Bench(store)
    bench.run(10)
    bench.stop()
    other = tmp_path / "part.sqlite.part"
    other.write_text("dear diary")
    (tmp_path / "no store").write_text("")
    take_away(str(store), str(target), START, START + 20)
    assert recorded(target) == 100
    with pytest.raises(CommandError, match="is empty"):
        take_away(str(tmp_path / "no store"), str(tmp_path / "another"), START, START + 20)
    assert other.read_text() == "dear diary"
    assert list(tmp_path.glob("*.part*")) == [other]


def test_the_default_store_is_made(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root's is the machine's own")
    process = start(
        "telemetry", "--no-http",
        env=environment(XDG_RUNTIME_DIR=str(tmp_path), XDG_STATE_HOME=str(tmp_path)),
    )  # fmt: skip
    assert process.stderr is not None
    process.stderr.readline()
    end(process)
    assert (tmp_path / "headway" / "telemetry.sqlite").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--listen", "udp:1"], "found 'udp:1'; allowed: unix:PATH"),
        (["--listen", "unix:"], "allowed: unix:PATH"),
        (["--listen", "unix:/" + "x" * 120], "a path of up to 107 bytes"),
        (["--listen", "unix:/no/such/folder/in.sock", "--no-store"], "no such file or directory"),
        (["--socket-mode", "rw"], "found 'rw'; allowed: permission bits in octal"),
        (["--store", ""], "--store: found ''"),
        (["--export", "", "--from", "-60"], "--export: found ''"),
        (["--store-limit", "5"], "found '5'; allowed: a number of bytes from 1048576"),
        (["--store-limit", "lots"], "found 'lots'; allowed: a number of bytes from"),
        (["--http", "8888"], "found '8888'; allowed: HOST:PORT"),
        (["--http", "0.0.0.0:8888"], "so --token-file FILE is required"),
        (["--http", "[::]:8888"], "so --token-file FILE is required"),
        (["--tls-key", "k"], "TLS needs both"),
        (["--no-store", "--store", "x"], "only one of them is allowed"),
        (["--no-http", "--http", "127.0.0.1:0"], "only one of them is allowed"),
        (["--recording", "monday"], "it must be NAME=FILE"),
        (["--recording", "a=b", "--recording", "a=c"], "there are two of the name 'a'"),
        (["--recording", "a=/no/such/file"], "there is no such file"),
        (["--export", "x"], "--export needs --from TIME"),
        (["--export", "x", "--from", "noon"], "--from 'noon': it must be seconds since 1970"),
        (["--export", "x", "--from", "nan"], "there is no such time"),
        (["--export", "x", "--from", "20", "--to", "10"], "--from must be before --to"),
        (["--from", "20"], "--from: allowed with --export only"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(options: list[str], message: str) -> None:
    result = run_main("telemetry", *options)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("headway telemetry: ")


def test_too_few_descriptors_are_told_in_one_line(tmp_path: Path) -> None:
    words = [*HEADWAY, "telemetry", "--no-http", "--listen", f"unix:{tmp_path}/in.sock"]
    words += ["--store", f"{tmp_path}/store.sqlite"]
    done = execute(["sh", "-c", 'ulimit -n 11; exec "$@"', "sh", *words])
    assert done.returncode == 1
    assert done.stderr == (
        f"headway telemetry: {TOO_MANY_OPEN_FILES}: ulimit -n, or the machine, allows no more\n"
    )
    assert not (tmp_path / "in.sock").exists()


def test_a_store_of_a_later_version(tmp_path: Path) -> None:
    import sqlite3

    store = tmp_path / "store.sqlite"
    Bench(store).stop()
    database = sqlite3.connect(store)
    database.execute("PRAGMA user_version = 9")
    database.close()
    path = tmp_path / "in.sock"
    result = run_main("telemetry", "--no-http", "--listen", f"unix:{path}", "--store", store)
    assert result.returncode == 2
    assert "has schema 9, and this version of Headway knows schemas up to 1" in result.stderr
    assert not path.exists()


def test_a_socket_that_somebody_listens_on(tmp_path: Path) -> None:
    path = tmp_path / "in.sock"
    with recorder("--listen", f"unix:{path}", "--no-store") as process:
        result = headway("telemetry", "--no-http", "--no-store", "--listen", f"unix:{path}")
        assert result.returncode == 2
        assert "is another recorder running?" in result.stderr
        end(process)


def test_help_teaches() -> None:
    text = run_main("telemetry", "--help").stdout
    for word in ("--listen", "--store-limit", "--token-file", "--recording", "examples:"):
        assert word in text


def test_a_port_in_use_is_that_of_http(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        done = headway(
            "telemetry", "--no-store", "--listen", "unix:s", "--http", address, cwd=tmp_path
        )
    assert done.returncode == 2
    assert done.stderr.endswith(f"headway telemetry: --http {address}: {ADDRESS_IN_USE}\n")


def test_a_recording_is_taken_away(tmp_path: Path) -> None:
    store, target = tmp_path / "store.sqlite", tmp_path / "taken.sqlite"
    bench = Bench(store)
    bench.run(700, (1, 2))
    # While it is in use, and with ticks that are not rolled up yet.
    options = ["--export", str(target), "--from", str(START + 100), "--to", str(START + 690)]
    result = run_main("telemetry", "--store", store, *options)
    assert (result.returncode, result.stderr) == (0, "")
    assert not list(tmp_path.glob("taken.sqlite-*"))
    assert run_main("telemetry", "--store", store, *options).returncode == 2
    bench.stop()
    target.chmod(0o400)
    reader = open_recording("taken", str(target))
    history = History(recordings={"taken": reader})
    taken = Selection(recording="taken")
    for first, last in ((100, 690), (150, 250), (300, 601), (640, 650)):
        found = history.record(START + first, START + last, taken)
        assert requests(found) == (last - first) * 20
    one = taken._replace(pids=frozenset({1}))
    assert requests(history.record(START + 100, START + 690, one)) == 5900
    # Whole rows reach beyond the range, and no further than these.
    everything = requests(history.record(START - 5000, START + 5000, taken))
    assert 590 * 20 <= everything <= 700 * 20
    assert history.processes(at=START + 300, recording="taken")
    history.close()


def test_a_recording_beside_the_store(tmp_path: Path) -> None:
    clock = Clock()
    monday = Bench(tmp_path / "monday.sqlite", clock)
    monday.run(100)
    monday.stop()
    reader = open_recording("monday", str(tmp_path / "monday.sqlite"))
    bench = Bench(tmp_path / "store.sqlite", clock)
    bench.run(50, (1,))
    history = History(
        bench.recorder.live, bench.recorder.known, None, {"monday": reader}, clock=clock
    )
    assert history.recordings() == ["monday"]
    assert requests(history.record(START, clock.now + 1, Selection(recording="monday"))) == 1000
    assert requests(history.record(START, clock.now + 1, EVERYTHING)) == 500
    history.close()
    bench.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells of open files in /proc")
def test_it_leaves_no_file_open(tmp_path: Path) -> None:
    path, store = tmp_path / "in.sock", tmp_path / "store.sqlite"
    with recorder("--listen", f"unix:{path}", "--store", store) as process:
        before = len(os.listdir(f"/proc/{process.pid}/fd"))
        now = time.time()
        for n in range(1, 31):
            send(path, tick(n, 1, now), b"nonsense")
        wait_until(lambda: recorded(store) == 300)
        # Descriptors that were opened for a moment are closed soon; a leaked one stays.
        wait_until(lambda: len(os.listdir(f"/proc/{process.pid}/fd")) <= before)
        end(process)


def test_a_store_may_be_named_without_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with recorder("--listen", f"unix:{tmp_path}/socket", "--store", "here.sqlite") as process:
        end(process)
    assert (tmp_path / "here.sqlite").exists()
