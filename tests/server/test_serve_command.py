"""The command: its options, bad input, signals, the access log and the table at the end."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from launch import ADDRESS_IN_USE, ADDRESS_NOT_AVAILABLE, Result, headway, run_main
from served import APPS, STAMP, TIMEOUT_S, Served, read_response, read_to_end, status_of

from headway.server.signals import ONE_SIGNAL_S

GIL_ENABLED = getattr(sys, "_is_gil_enabled", lambda: True)()


def refuse(*arguments: str, run: Callable[..., Result] = run_main) -> str:
    """The one line that `headway serve` says of bad input before it starts a process."""
    done = run("serve", "--app-dir", APPS, *arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert re.fullmatch(r"headway serve: .+\n", done.stderr), done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("arguments", "found", "named"),
    [
        (["pages"], "allowed: module:callable", "'pages'"),
        ([".pages:hello"], "allowed: module:callable", "'.pages:hello'"),
        (["pages:"], "allowed: module:callable", "'pages:'"),
        (["pages:hello", "--threads", "0"], "from 1 to 1000", "--threads"),
        (["pages:hello", "--processes", "0"], "from 1 to 1000", "--processes"),
        (["pages:hello", "--threads", "four"], "from 1 to 1000", "'four'"),
        (["pages:hello", "--switch-interval", "nan"], "number of seconds", "--switch-interval"),
        (["pages:hello", "--switch-interval", "1001"], "0.000001 to 1000", "'1001'"),
        (["pages:hello", "--bind", "[::1"], "allowed: HOST:PORT", "'[::1'"),
        (["pages:hello", "--bind", "127.0.0.1"], "HOST:PORT", "--bind"),
        (["pages:hello", "--bind", "127.0.0.1:65536"], "0 to 65535", "--bind"),
        (["pages:hello", "--bind", "a..b:80"], "allowed: HOST:PORT", "'a..b:80'"),
        (
            ["pages:hello", "--bind", "127.0.0.1:0", "--bind", "127.0.0.1:0"],
            "an address is given once",
            "127.0.0.1:0",
        ),
        (["pages:hello", "--bind", "unix:/no/such/place"], "no such file", "/no/such/place"),
        (["pages:hello", "--bind", "192.0.2.1:0"], ADDRESS_NOT_AVAILABLE, "192.0.2.1:0"),
        (["pages:hello", "--access-log", "xml"], "common, combined", "'xml'"),
        (["pages:hello", "--access-log", "json:/no/such"], "no such file", "--access-log"),
        (["pages:hello", "--user", "#99999"], "must be a user of this machine", "#99999"),
        (["pages:hello", "--socket-group", "#4294967295"], "up to #4294967294", "#4294967295"),
        (["pages:hello", "--policy", "fair"], "interval", "fair"),
        (["pages:hello", "--app-dir", "/no/such"], "must be a directory", "/no/such"),
        (["pages:hello", "--interpreters", "61"], "from 1 to 60", "--interpreters"),
        (["pages:hello", "--interpreters", "5"], "one for each thread", "--interpreters"),
        (["pages:hello", "--application-group", "%{X}"], "or %{GLOBAL} for", "'%{X}'"),
        (
            ["pages:hello", "--per-interpreter-gil", "--application-group", "%{GLOBAL}"],
            "the main interpreter, whose GIL is that of the process",
            "--per-interpreter-gil: found true",
        ),
        (["pages:hello", "--environ", "SCRIPT_NAME=/a"], "which --mount sets", "'SCRIPT_NAME=/a'"),
        (["pages:hello", "--environ", "REMOTE_ADDR=a"], "does not set for each", "'REMOTE_ADDR=a'"),
        (["pages:hello", "--environ", "wsgi.x=a"], "does not set for each request", "'wsgi.x=a'"),
        ([], "APP", "required"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], found: str, named: str) -> None:
    line = refuse(*arguments)
    assert found in line
    assert named in line


@pytest.mark.parametrize(
    ("app", "found", "named"),
    [
        ("nowhere:app", "no module 'nowhere'", "nowhere:app"),
        ("pages.nowhere:app", "no module", "pages.nowhere:app"),
        ("pages:nothing_here", "no attribute 'nothing_here'", "pages"),
        ("pages:not_callable", "a str, which is not callable", "pages.not_callable"),
    ],
)
def test_an_application_that_is_not_there_is_one_line(app: str, found: str, named: str) -> None:
    # A process of the group looks for it.
    line = refuse(app, "--bind", "127.0.0.1:0", run=headway)
    assert found in line
    assert named in line


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = refuse("pages:hello", "--bind", f"127.0.0.1:{port}")
    assert f"process group 'main': bind 127.0.0.1:{port}: {ADDRESS_IN_USE}" in line


def test_a_port_in_use_of_a_file_is_not_blamed_on_a_flag(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        file.write_text(
            '[process-group.shop]\napp = "pages:hello"\n'
            f'app-dir = "{APPS}"\nbind = "127.0.0.1:{port}"\n'
        )
        done = headway("serve", "--config", file)
    assert (done.returncode, done.stderr) == (
        2,
        f"headway serve: process group 'shop': bind 127.0.0.1:{port}: {ADDRESS_IN_USE}\n",
    )


def fail_to_import(directory: Path, source: str) -> str:
    """Serves a module `broken` with this source; returns what is said about it."""
    (directory / "broken.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "headway", "serve", "broken:app", "--bind", "127.0.0.1:0"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 1
    return done.stderr


@pytest.mark.parametrize(
    ("source", "frames", "error"),
    [
        ("import no_such_dependency", ["broken.py"], "No module named 'no_such_dependency'"),
        ("import inner\ninner.fail()", ["broken.py", "inner.py"], "ValueError: of the application"),
        ("def app(:", ["broken.py"], "SyntaxError"),
    ],
)
def test_an_application_that_fails_to_import_shows_its_own_frames(
    tmp_path: Path, source: str, frames: list[str], error: str
) -> None:
    (tmp_path / "inner.py").write_text("def fail():\n    raise ValueError('of the application')\n")
    said = fail_to_import(tmp_path, source)
    assert re.match(f"{STAMP}headway serve: importing broken raised:\n", said)
    assert re.findall(r'^  File ".*?([^/"]+)", line', said, re.MULTILINE) == frames
    assert error in said
    assert said.endswith("importing broken failed (see above)\n")


@pytest.mark.parametrize("call", ["sys.exit(4)", "sys.exit()", "sys.exit('two\\nlines')"])
def test_an_application_that_exits_at_import_is_one_line(tmp_path: Path, call: str) -> None:
    said = fail_to_import(tmp_path, f"import sys\n{call}\n")
    assert said == f"headway serve: APP is 'broken:app': the application called {call} at import\n"


def test_a_dotted_attribute_and_the_current_directory(tmp_path: Path) -> None:
    (tmp_path / "site_here.py").write_text(
        "class Site:\n"
        "    def __call__(self, environ, start_response):\n"
        "        start_response('200 OK', [])\n"
        "        return [b'here']\n"
        "class Sites:\n"
        "    main = Site()\n"
    )
    command = [sys.executable, "-m", "headway", "serve", "site_here:Sites.main"]
    with subprocess.Popen(
        [*command, "--bind", "127.0.0.1:0"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        port = int(process.stderr.readline().rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert read_response(connection).body == b"here"
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0


def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    with Served("pages:application", "--bind", f"unix:{path}") as server:
        assert server.get("/hello").body == b"hello\n"
        assert "in use" in refuse("pages:hello", "--bind", f"unix:{path}")
    assert not path.exists()


def test_a_unix_socket_whose_server_is_busy_is_in_use(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as waiting:
        listener.bind(path)
        listener.listen(0)
        # Now the queue is full, and whoever connects would have to wait.
        waiting.connect(path)
        assert ADDRESS_IN_USE in refuse("pages:hello", "--bind", f"unix:{path}")
        assert Path(path).exists()


def hold(connection: socket.socket, directory: Path) -> Path:
    """Sends a request and waits until it is in the application, where it stays until this file is
    removed."""
    gate = directory / "gate"
    connection.sendall(f"GET /held?{gate} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    end = time.monotonic() + TIMEOUT_S
    while not gate.exists():
        assert time.monotonic() < end
        time.sleep(0.005)
    return gate


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.free_threading
def test_a_signal_lets_requests_in_flight_end(tmp_path: Path, number: signal.Signals) -> None:
    with Served("pages:application", "--threads", "2") as server:
        with server.connect() as busy, server.connect() as idle:
            gate = hold(busy, tmp_path)
            server.process.send_signal(number)
            assert idle.recv(1) == b"", "idle connections are closed"
            gate.unlink()
            assert read_response(busy).body == b"held\n"
        assert server.stop(None) == 0
        assert re.search(r"^/held +1 ", server.stderr, re.MULTILINE)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.free_threading
def test_every_request_sent_before_a_signal_is_answered(tmp_path: Path, threads: int) -> None:
    """Most of them wait in the listen queue: all threads are in the application."""
    with Served("pages:application", "--threads", str(threads)) as server, ExitStack() as stack:
        connections = [stack.enter_context(server.connect()) for _ in range(12)]
        gates = []
        for number, connection in enumerate(connections[:threads]):
            directory = tmp_path / str(number)
            directory.mkdir()
            gates.append(hold(connection, directory))
        for connection in connections[threads:]:
            connection.sendall(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        server.process.terminate()
        wait_until_refused(server)
        for gate in gates:
            gate.unlink()
        for number, connection in enumerate(connections):
            response = read_response(connection)
            assert response.body == (b"held\n" if number < threads else b"hello\n")
            assert response.headers["connection"] == "close"
            assert connection.recv(1) == b""
        assert server.stop(None) == 0
        assert re.search(rf"^/held +{threads} ", server.stderr, re.MULTILINE)
        assert re.search(rf"^/hello +{12 - threads} ", server.stderr, re.MULTILINE)


def test_a_response_is_delivered_to_a_slow_reader_before_the_end() -> None:
    with Served("pages:application") as server:
        with server.connect() as connection:
            connection.sendall(b"GET /large?10000000 HTTP/1.1\r\nHost: a\r\n\r\n")
            connection.recv(1, socket.MSG_PEEK)
            server.process.terminate()
            assert len(read_response(connection).body) == 10_000_000
        assert server.stop(None) == 0


def test_nothing_is_accepted_after_a_signal(tmp_path: Path) -> None:
    with Served("pages:application") as server:
        with server.connect() as busy:
            gate = hold(busy, tmp_path)
            server.process.terminate()
            wait_until_refused(server)
            gate.unlink()
            assert read_response(busy).body == b"held\n"
        assert server.stop(None) == 0


def wait_until_refused(server: Served) -> None:
    """Until connecting fails."""
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        try:
            server.connect().close()
        except ConnectionError:
            return
        time.sleep(0.005)
    raise AssertionError(f"it accepts connections {TIMEOUT_S} s after the signal")


@pytest.mark.free_threading
def test_a_request_beyond_the_graceful_timeout_is_cut_off(tmp_path: Path) -> None:
    server = Served("pages:application", "--graceful-timeout", "0.3")
    with server.connect() as busy:
        hold(busy, tmp_path)
        assert server.stop() == 1
    assert "1 thread was still in the application after 0.3 s" in server.stderr


@pytest.mark.free_threading
def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    server = Served("pages:application")
    with server.connect() as busy:
        hold(busy, tmp_path)
        server.process.terminate()
        wait_until_refused(server)
        # A signal that comes sooner belongs to the first.
        time.sleep(2 * ONE_SIGNAL_S)
        assert server.stop(signal.SIGINT, kills=True) == -signal.SIGINT


@pytest.mark.free_threading
def test_the_access_log_tells_the_wait_for_the_gil(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Served("pages:application", "--access-log", f"json:{path}", "--threads", "2") as server:
        spin = threading.Thread(target=server.get, args=("/spin?0.3",))
        spin.start()
        server.wait_for("spinning\n")
        # More than one: the page drops the GIL to say so.
        while spin.is_alive():
            assert server.get("/hello").body == b"hello\n"
        spin.join()
        assert server.request("POST", "/echo", b"abc").status == 200
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    (echo,) = (line for line in lines if line["target"] == "/echo")
    waits = [line["gil_wait_time"] for line in lines if line["target"] == "/hello"]
    assert (echo["method"], echo["status"], echo["input_bytes"], echo["output_bytes"]) == (
        "POST",
        200,
        3,
        3,
    )
    for line in lines:
        assert line["protocol"] == "HTTP/1.1"
        assert line["address"] == "127.0.0.1"
        assert 0 <= line["application_time"] <= line["response_time"]
        assert 0 <= line["queue_time"] + line["server_time"] <= line["response_time"]
        assert (line["gil_wait_time"] or 0) <= line["response_time"]
    if "GIL waits are not measured" in server.stderr:
        assert set(waits) == {None}
    elif GIL_ENABLED:
        # The page beside them holds the GIL: it must be waited for, and the wait is in the total.
        assert max(waits) > 0
    else:
        assert not any(waits)


def test_the_common_form_on_stdout() -> None:
    with Served("pages:application", "--access-log", "common") as server:
        server.get('/hello?"quoted"')
        server.stop()
    line = (
        r"127\.0\.0\.1 - - \[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d \+0000\] "
        r'"GET /hello\?\\x22quoted\\x22 HTTP/1\.1" 200 6 '
        r"response_time=\d\.\d{9} gil_wait_time=(\d\.\d{9}|-)\n"
    )
    assert re.fullmatch(line, server.stdout), server.stdout


def test_refused_requests_are_in_the_access_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    post = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n"
    chunk = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"
    options = ("--max-body-size", "900", "--head-timeout", "0.2", "--keep-alive-timeout", "0.2")
    log = ("--access-log", f"common:{path}", "--threads", "1")
    with Served("pages:application", *log, *options) as server:
        for request, status in ((b"\0\0\0", 400), (post, 413), (chunk, 400)):
            with server.connect() as connection:
                connection.sendall(request)
                assert status_of(read_to_end(connection)) == status
        # At once, for the server looks at its timeouts once a second.
        with server.connect() as partial, server.connect() as silent, server.connect() as used:
            used.sendall(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
            assert read_response(used).body == b"hello\n"
            partial.sendall(b"GET / HT")
            assert status_of(read_to_end(partial)) == 408
            assert read_to_end(silent) == read_to_end(used) == b""
    lines = re.findall(r'"(.*?)" (\d+) ', path.read_text())
    assert lines == [
        ("-", "400"),
        ("POST /echo HTTP/1.1", "413"),
        ("POST /echo HTTP/1.1", "400"),
        ("GET /hello HTTP/1.1", "200"),
        ("-", "408"),
    ]


@pytest.mark.free_threading
def test_the_table_at_the_end() -> None:
    with Served("pages:unchecked") as server:
        for _ in range(3):
            server.get("/hello?x=1")
        server.get("/raises")
        for number in range(5):
            server.get(f"/missing/{number}")
        server.stop()
    table = server.stderr[server.stderr.index("path  ") :]
    rows = [line.split()[:3] for line in table.splitlines()[1:4]]
    assert rows == [["(404)", "5", "0"], ["/hello", "3", "0"], ["/raises", "1", "1"]]
    if "GIL waits are not measured" not in server.stderr:
        assert re.search(r"GIL 0 \(main\): held .* handoff .* idle |The GIL is disabled", table)


@pytest.fixture(scope="module")
def forking() -> Iterator[Served]:
    with Served("pages:unchecked") as server:
        yield server


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("forks", b""),
        ("forks_and_writes", b""),
        ("forks_and_yields", b""),
        ("forks_in_midstream", b"forking, "),
        ("forks_and_raises", b"forking, "),
    ],
)
@pytest.mark.free_threading
def test_a_forked_child_that_comes_back_does_not_answer(
    forking: Served, page: str, said: bytes
) -> None:
    returned = "a forked child returned from the application"
    count = forking.stderr.count(returned)
    with forking.connect() as connection:
        for target in (page, "hello"):
            connection.sendall(f"GET /{target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            body = read_response(connection).body
            expected = said + b"child ended with 70\n" if target == page else b"hello\n"
            assert body == expected
    # For this request as for each before it.
    forking.wait_for(rf"(?s)(?:{returned}.*?){{{count + 1}}}")
    if page == "forks_and_raises":
        forking.wait_for("ValueError: raised in the child")


FAILURES = ("raises_midway", "raises_midway_sized", "raises_in_close", "too_short", "too_long")


@pytest.fixture(scope="module")
def table_of_failures() -> str:
    """The output of a server that has served each of these pages once."""
    with Served("pages:unchecked") as server:
        for page in FAILURES:
            with server.connect() as connection:
                connection.sendall(f"GET /{page} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
                assert connection.recv(12) == b"HTTP/1.1 200"
        server.stop()
    return server.stderr


@pytest.mark.parametrize("page", FAILURES)
@pytest.mark.free_threading
def test_a_failure_after_the_status_counts_as_an_error(table_of_failures: str, page: str) -> None:
    assert re.search(rf"^/{page} +1 +1 ", table_of_failures, re.MULTILINE), table_of_failures


def test_the_help_names_defaults() -> None:
    told = " ".join(run_main("serve", "--help").stdout.split())
    assert "takes nothing of the response for S seconds (60)" in told
    assert "%{GLOBAL} is the main interpreter (%{GLOBAL})" in told


def test_the_switch_interval_is_set(tmp_path: Path) -> None:
    (tmp_path / "tells.py").write_text(
        "import sys\n"
        "def app(environ, start_response):\n"
        "    start_response('200 OK', [])\n"
        "    return [str(sys.getswitchinterval()).encode()]\n"
    )
    options = ("--switch-interval", "0.002", "--app-dir", str(tmp_path))
    with Served("tells:app", *options) as server:
        assert server.get("/").body == b"0.002"


@pytest.mark.parametrize("policy", ["priority", "deadline"])
@pytest.mark.free_threading
def test_a_policy_is_in_force_and_in_the_table(policy: str) -> None:
    with Served("pages:application", "--policy", policy) as server:
        spin = threading.Thread(target=server.get, args=("/spin?0.3",))
        spin.start()
        server.wait_for("spinning\n")
        for _ in range(20):
            assert server.get("/hello").body == b"hello\n"
        spin.join()
        server.stop()
    told = re.search(rf"\n  policy {policy}: ([\d,]+) preemptions?; longest wait: ", server.stderr)
    if GIL_ENABLED:
        assert told, server.stderr
        assert told[1] != "0"
    else:
        assert not told


def test_a_policy_that_cannot_be_had_is_refused(tmp_path: Path) -> None:
    """Here because the process has no pthread key left."""
    (tmp_path / "takes_all.py").write_text(
        "import ctypes\n"
        "key = ctypes.c_uint()\n"
        "create_key = ctypes.CDLL(None).pthread_key_create\n"
        "while key.value < 200 and create_key(ctypes.byref(key), None) == 0: pass\n"
        "def app(environ, start_response): pass\n"
    )
    command = [sys.executable, "-m", "headway", "serve", "takes_all:app", "--bind", "127.0.0.1:0"]
    done = subprocess.run(
        [*command, "--policy", "priority", "--app-dir", tmp_path],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("headway serve: --policy priority: the GIL meter cannot be inst")
    assert "pthread keys" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.free_threading
@pytest.mark.slow("counts what an idle server does in 1.5 s")
def test_idle_workers_use_no_cpu() -> None:
    """Bounds work, not time: a monitor that polled would switch 2,000 times a second."""
    with Served("pages:application") as server, server.connect():
        assert status_of(server.converse(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")) == 200
        # The rest of the request's work has no event that a test could see.
        time.sleep(0.3)
        processes = [server.process.pid, *server.workers()]
        before = context_switches(processes)
        time.sleep(1.5)
        assert len(processes) == 2
        assert context_switches(processes) - before < 100


def context_switches(pids: list[int]) -> int:
    total = 0
    for task in (task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()):
        status = (task / "status").read_text()
        total += sum(int(count) for count in re.findall(r"ctxt_switches:\s+(\d+)", status))
    return total
