"""The reports of a served application and of a program, from a real socket: counts are those of the
client, no request is lost without a recorder, no thread is blocked, and every end is reported."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection, RemoteDisconnected
from pathlib import Path

import pytest
from heard import SLOW, STARTED, STOPPED, STOPPING, TICK, TIMEOUT_S, Datagram, Ear
from launch import environment, execute, run_main
from served import APPS, Served
from ticking import HEADWAY, INTERVAL, Ticking

import headway

pytestmark = pytest.mark.free_threading

MOD_WSGI_BUCKETS = 65


@pytest.fixture
def ear(tmp_path: Path) -> Iterator[Ear]:
    with Ear(tmp_path) as ear:
        yield ear


def serve(target: str, *options: str, app: str = "telemetry_pages:app") -> Served:
    return Ticking(app, target, "--threads", "2", *options)


def total(ticks: list[Datagram], field: str) -> int:
    return sum(tick.fields.get(field, 0) for tick in ticks)


def stop(server: Served, ear: Ear) -> None:
    assert server.stop() == 0
    ear.catch_up()


def ask(server: Served, paths: list[str]) -> Counter[int]:
    """Requests on one connection; statuses and how often they came."""
    host, port = server.address
    connection = HTTPConnection(host, port, timeout=TIMEOUT_S)
    statuses = Counter[int]()
    for path in paths:
        body = b"0123456789" if path == "/echo" else None
        connection.request("POST" if body else "GET", path, body)
        answer = connection.getresponse()
        answer.read()
        statuses[answer.status] += 1
    connection.close()
    return statuses


def test_what_is_counted_is_what_the_client_sent(ear: Ear) -> None:
    paths = ["/"] * 30 + ["/echo"] * 20 + ["/raises"] * 7 + [f"/nothing/{n}" for n in range(9)]
    # As often as the option allows.
    server = Served(
        *("telemetry_pages:app", "--telemetry", ear.target, "--telemetry-interval", "0.5"),
        *("--threads", "2"),
    )
    try:
        statuses = ask(server, paths)
    finally:
        stop(server, ear)
    ticks = ear.heard(TICK)
    assert total(ticks, "request_count") == len(paths)
    classes = {f"{number}xx": total(ticks, f"status_{number}xx_total") for number in range(1, 6)}
    assert classes == {"1xx": 0, "2xx": 50, "3xx": 0, "4xx": 9, "5xx": 7}
    assert statuses == {200: 50, 500: 7, 404: 9}
    assert total(ticks, "requests_failed") == 7
    assert total(ticks, "input_bytes_total") == 200
    assert total(ticks, "input_reads_total") >= 20
    bodies = 30 * 1024 + 9 * 1024 + 200 + 7 * len(b"Internal Server Error\n")
    assert total(ticks, "output_bytes_total") == bodies
    assert total(ticks, "output_writes_total") == len(paths)
    assert total(ticks, "connections_accepted") == 1
    for phase in ("server", "queue", "application", "request", "input_read", "output_write"):
        counted = sum(tick.fields[f"{phase}_time_histogram"]["count"] for tick in ticks)
        assert counted == len(paths), phase
        assert sum(sum(tick.fields[f"{phase}_time_buckets"]) for tick in ticks) == len(paths)
    assert all(len(tick.fields["request_time_buckets"]) == MOD_WSGI_BUCKETS for tick in ticks)
    assert sum(sum(tick.fields["request_threads_completed"]) for tick in ticks) == len(paths)
    endpoints = Counter[str]()
    for row in ear.rows("endpoints"):
        endpoints[row["endpoint_name"]] += row["endpoint_requests"]
    assert endpoints == {"/": 30, "/echo": 20, "/raises": 7, "(404)": 9}
    assert sum(row["endpoint_errors"] for row in ear.rows("endpoints")) == 7
    assert sum(row["interpreter_requests"] for row in ear.rows("interpreters")) == len(paths)
    (stopped,) = ear.heard(STOPPED)
    assert stopped.fields["lifetime_request_count"] == len(paths)


def test_mod_wsgis_own_decoder_reads_every_datagram(tmp_path: Path) -> None:
    """That of mod-wsgi-telemetry, which knows nothing of our fields."""
    wire = pytest.importorskip("mod_wsgi.telemetry.wire")
    path = tmp_path / "telemetry.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(path))
        ear.settimeout(TIMEOUT_S)
        server = serve(f"unix:{path}")
        try:
            assert wire.decode(ear.recv(65_536)).kind_name == "process_started"
            ask(server, ["/"] * 10)
            requests = 0
            while requests < 10:
                sample = wire.decode(ear.recv(65_536))
                if sample.kind_name == "request_metrics":
                    requests += sample.fields["request_count"]
                    tick = sample.fields
        finally:
            server.stop()
    assert requests == 10
    assert tick["process_group"] == b"main"
    assert tick["mod_wsgi_version"].startswith(b"headway ")
    assert len(tick["application_time_buckets"]) == MOD_WSGI_BUCKETS
    assert len(tick["request_threads_busy_time"]) == 2


def test_extremes_and_means_are_exact(ear: Ear) -> None:
    server = serve(ear.target)
    try:
        assert server.get("/slow").status == 200
        tick = ear.wait_for(TICK, lambda fields: fields["request_count"] == 1)
    finally:
        stop(server, ear)
    fields = tick.fields
    histogram = fields["application_time_histogram"]
    assert fields["application_time"] == pytest.approx(histogram["sum"])
    assert fields["application_time_min"] == fields["application_time_max"] == histogram["max"]
    assert histogram["max"] >= 0.7
    assert fields["request_time_max"] >= histogram["max"]
    # 0.7 s lies in the second step from 512 ms on, as mod_wsgi counts them; a slow machine takes
    # longer.
    place = fields["application_time_buckets"].index(1)
    assert place >= 37


def test_a_request_under_way_is_busy_time_before_it_ends(ear: Ear) -> None:
    server = serve(ear.target, app="stuck:application")
    try:
        slow = threading.Thread(target=server.get, args=("/sleep?1",))
        slow.start()
        ear.wait_for(TICK, lambda fields: max(fields["request_threads_current_elapsed"]) > 0.2)
        slow.join()
        ear.wait_for(TICK, lambda fields: fields["request_count"] == 1)
    finally:
        stop(server, ear)
    ticks = ear.heard(TICK)
    busy = sum(sum(tick.fields["request_threads_busy_time"]) for tick in ticks)
    longest = max(max(tick.fields["request_threads_max_duration"]) for tick in ticks)
    assert longest >= 1
    assert busy == pytest.approx(longest, rel=0.02)
    threads = 2
    by_share = sum(
        tick.fields["capacity_utilization"] * tick.fields["sample_period"] * threads
        for tick in ticks
    )
    assert by_share == pytest.approx(busy, rel=0.02)
    assert {len(tick.fields["request_threads_busy_time"]) for tick in ticks} == {threads}


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="there is no GIL")
def test_the_gils_books_balance_over_all_ticks(ear: Ear) -> None:
    server = serve(ear.target, "--policy", "interval", "--switch-interval", "0.002")
    try:
        clients = [
            threading.Thread(target=ask, args=(server, ["/deadline"] * 40)) for _ in range(2)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    finally:
        stop(server, ear)
    gils = [row for row in ear.rows("gils") if row["gil_name"] == "main"]
    sums = {
        name: sum(row[f"gil_{name}"] for row in gils)
        for name in ("wall", "held", "handoff", "idle")
    }
    assert sums["held"] + sums["handoff"] + sums["idle"] == pytest.approx(sums["wall"], rel=1e-3)
    # The meter counts before the reporter does.
    period = sum(tick.fields["sample_period"] for tick in ear.heard(TICK))
    (stopped,) = ear.heard(STOPPED)
    assert 0.95 * period < sums["wall"] < stopped.fields["process_uptime"]
    assert sums["held"] > 80 * 0.003
    by_thread = sum(
        row["thread_held"] for row in ear.rows("threads") if row["thread_gil"] == "main"
    )
    assert by_thread == pytest.approx(sums["held"], rel=0.02)
    waits = sum(row["gil_wait"]["count"] for row in gils)
    assert waits == sum(row["gil_contended_takes"] for row in gils) > 0
    last = ear.heard(TICK)[-1].fields
    assert last["switch_interval"] == pytest.approx(0.002)
    assert (last["policy"], last["gil_mode"]) == ("interval", "enabled")


def test_no_request_is_lost_while_nobody_listens(tmp_path: Path) -> None:
    server = serve(f"unix:{tmp_path}/telemetry.sock")
    try:
        ask(server, ["/"] * 25)
        # Some ticks without a recorder; no event marks them.
        time.sleep(0.5)
        with Ear(tmp_path) as ear:
            first = ear.wait_for(TICK, lambda fields: True)
            assert first.fields["request_count"] == 25
            assert first.fields["ticks_unsent"] >= 1
            assert first.fields["sample_period"] > 0.5
            assert first.fields["records_lost"] >= 1, "that the process began"
        ear.path.unlink()
        ask(server, ["/"] * 12)
        time.sleep(0.3)
        with Ear(tmp_path) as again:
            ask(server, ["/"] * 3)
            again.wait_for(TICK, lambda fields: fields["lifetime_requests"] == 40)
            assert total(again.heard(TICK), "request_count") == 15
    finally:
        assert server.stop() == 0


def test_a_recorder_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    """Stopped by SIGSTOP, its queue fills up; nothing is lost when it goes on."""
    path = tmp_path / "telemetry.sock"
    program = textwrap.dedent("""
        import socket, sys
        from headway import _native
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ear.bind(sys.argv[1])
        print("listens", flush=True)
        while True:
            kind, pid, sequence, stamp, fields = _native.telemetry_parse(ear.recv(65536))
            if kind == 2:
                print(sequence, fields["request_count"], fields["ticks_unsent"], flush=True)
            if kind == 7:
                print("over", flush=True)
                break
    """)
    command = [sys.executable, "-c", program, str(path)]
    said: list[list[str]] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as recorder:
        try:
            assert recorder.stdout.readline() == "listens\n"
            server = serve(f"unix:{path}")
            try:
                ask(server, ["/"] * 5)
                recorder.send_signal(signal.SIGSTOP)
                fill(path)
                ask(server, ["/"] * 20)
                # Some ticks that find no room; no event marks them yet.
                time.sleep(0.5)
                assert ask(server, ["/"] * 10) == {200: 10}
                assert server.process.poll() is None
                recorder.send_signal(signal.SIGCONT)
                # The last ticks find room by then.
                while sum(int(line[1]) for line in said) < 35:
                    said.append(recorder.stdout.readline().split())
            finally:
                assert server.stop() == 0
            said += [line.split() for line in recorder.stdout.read().splitlines()]
        finally:
            recorder.kill()
    assert said[-1] == ["over"]
    assert sum(int(line[1]) for line in said[:-1]) == 35
    assert int(said[-2][2]) > 0, "some ticks found no room"


def fill(path: Path) -> None:
    """Leaves no room in the socket's queue, with datagrams that say nothing."""
    from headway import _native

    datagram = _native.telemetry_encode(SLOW, os.getpid(), 1, 1.0, {})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as post:
        for _ in range(100_000):
            try:
                post.sendto(datagram, socket.MSG_DONTWAIT, str(path))
            except BlockingIOError:
                return
    raise AssertionError("the queue of a socket has an end")


def test_beginning_and_end_are_told_with_the_reason(ear: Ear) -> None:
    server = serve(ear.target)
    pid = server.workers()[0]
    try:
        ask(server, ["/"] * 4)
    finally:
        stop(server, ear)
    (started,), (stopping,), (stopped,) = (ear.heard(kind) for kind in (STARTED, STOPPING, STOPPED))
    assert {started.pid, stopping.pid, stopped.pid} == {pid}
    for each in (started, stopping, stopped):
        assert each.fields["process_group"] == "main"
        assert each.fields["process_kind"] == "serve"
        assert each.fields["process_started_stamp"] == started.fields["process_started_stamp"]
    assert started.stamp == pytest.approx(started.fields["process_started_stamp"])
    assert started.fields["mod_wsgi_version"] == f"headway {headway.__version__}"
    assert started.fields["process_parent_pid"] == server.process.pid
    assert stopping.fields["shutdown_reason"] == "shutdown_signal"
    assert stopped.fields["shutdown_reason"] == "shutdown_signal"
    assert stopped.fields["graceful_drain"] == 1
    assert stopped.fields["process_uptime"] > 0
    assert "death" not in stopped.fields
    sequences = sorted(
        each.sequence
        for kind in (STARTED, STOPPING, STOPPED, TICK, 8, 9)
        for each in ear.heard(kind)
    )
    assert sequences == list(range(1, len(sequences) + 1))


def test_a_limit_is_told_under_mod_wsgis_name(ear: Ear) -> None:
    server = serve(ear.target, "--maximum-requests", "5")
    try:
        first = server.workers()[0]
        ask(server, ["/"] * 6)
        ear.wait_for(STOPPED, lambda fields: fields["shutdown_reason"] == "maximum_requests")
        (stopped,) = (each for each in ear.heard(STOPPED) if each.pid == first)
        assert "5 requests" in stopped.fields["shutdown_detail"]
        assert stopped.fields["lifetime_request_count"] == 6
    finally:
        stop(server, ear)
    assert len(ear.heard(STARTED)) == len(ear.heard(STOPPED)) == 2


def wait_for_another(ear: Ear, pid: int) -> None:
    """Until a process reports that came after that one."""
    ear.wait_for(TICK, lambda fields: any(each.pid != pid for each in ear.heard(STARTED)))


@pytest.mark.parametrize(
    ("number", "death"),
    [(signal.SIGKILL, "killed by SIGKILL"), (signal.SIGSEGV, "killed by SIGSEGV")],
)
def test_the_supervisor_tells_of_one_that_was_killed(
    ear: Ear, number: signal.Signals, death: str
) -> None:
    server = serve(ear.target, "--telemetry-group", "the shop")
    try:
        pid = server.workers()[0]
        ask(server, ["/"])
        os.kill(pid, number)
        told = ear.wait_for(STOPPED, lambda fields: "death" in fields)
        wait_for_another(ear, pid)
    finally:
        stop(server, ear)
    (started,) = (each for each in ear.heard(STARTED) if each.pid == pid)
    assert told.pid == pid
    assert told.fields["death"] == death
    assert told.fields["shutdown_reason"] == "crash"
    assert told.fields["reported_by_supervisor"] == 1
    assert told.fields["process_group"] == started.fields["process_group"] == "the shop"
    stamp = started.fields["process_started_stamp"]
    assert told.fields["process_started_stamp"] == stamp
    # The one that came after it tells its own end.
    (own,) = (each for each in ear.heard(STOPPED) if each.pid != pid)
    assert "reported_by_supervisor" not in own.fields


def test_a_process_that_exits_by_itself_is_told_of(ear: Ear) -> None:
    server = serve(ear.target, app="processes:application")
    try:
        pid = server.workers()[0]
        with pytest.raises(RemoteDisconnected):
            server.get("/exits?3")
        told = ear.wait_for(STOPPED, lambda fields: "death" in fields)
    finally:
        stop(server, ear)
    assert (told.pid, told.fields["shutdown_reason"]) == (pid, "crash")
    assert told.fields["death"] == "exit status 3"


def test_each_process_reports_for_itself(ear: Ear) -> None:
    """Forked from a template, too."""
    server = serve(ear.target, "--processes", "2", "--preload")
    try:
        pids = server.workers()
        for _ in range(20):
            ask(server, ["/"])
        ear.wait_for(TICK, lambda fields: True)
    finally:
        stop(server, ear)
    started = {each.pid for each in ear.heard(STARTED)}
    assert len(started) == 2
    assert started < set(pids)
    assert {each.pid for each in ear.heard(STOPPED)} == started
    assert total(ear.heard(TICK), "request_count") == 20


def test_without_telemetry_nothing_is_reported(tmp_path: Path) -> None:
    with Ear(tmp_path) as ear:
        server = Served("telemetry_pages:app")
        try:
            threads = Path(f"/proc/{server.workers()[0]}/task")
            names = [(task / "comm").read_text().strip() for task in threads.iterdir()]
            assert "headway-report" not in names
        finally:
            server.stop()
        assert not ear.heard(STARTED)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--telemetry", "/run/x.sock"], "found '/run/x.sock'; allowed: unix:PATH"),
        (["--telemetry", "udp:localhost:1"], "allowed: unix:PATH"),
        (["--telemetry", "unix:"], "allowed: unix:PATH"),
        (["--telemetry", "unix:/nowhere/x.sock"], "--telemetry: found /nowhere/x.sock; its dir"),
        (["--telemetry", f"unix:/tmp/{'x' * 120}"], "a path of up to 107 bytes"),
        (["--telemetry-interval", "0.4"], "found '0.4'; allowed: a number of seconds from 0.5"),
        (["--slow-requests", "-1"], "found '-1'; allowed: a number of seconds from 0"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], said: str) -> None:
    refused = run_main("serve", "telemetry_pages:app", "--app-dir", APPS, *arguments)
    assert refused.returncode == 2
    assert said in refused.stderr, refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_program_of_ones_own_reports(ear: Ear) -> None:
    program = textwrap.dedent(f"""
        import threading, urllib.request
        import headway, telemetry_pages
        stop = threading.Event()
        def client(url):
            for _ in range(8):
                urllib.request.urlopen(url).read()
            stop.set()
        headway.serve(
            telemetry_pages.app,
            bind="127.0.0.1:0",
            telemetry={ear.target!r},
            announce=lambda url: threading.Thread(target=client, args=(url,)).start(),
            stop=stop,
        )
    """)
    done = execute([sys.executable, "-c", program], env=environment(PYTHONPATH=str(APPS)))
    assert done.returncode == 0, done.stderr
    ear.catch_up()
    assert total(ear.heard(TICK), "request_count") == 8
    (stopped,) = ear.heard(STOPPED)
    assert stopped.fields["process_kind"] == "embedded"
    assert stopped.fields["process_group"] == ""
    assert (stopped.fields["graceful_drain"], stopped.fields["lifetime_request_count"]) == (1, 8)


def run(ear: Ear, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*HEADWAY, "run", "--telemetry", ear.target, *INTERVAL, *options]
    done = execute([*command, "-c", textwrap.dedent(program)])
    ear.catch_up()
    return done


def test_a_program_under_run_reports_and_so_do_its_forks(ear: Ear) -> None:
    """And CPython sees no second thread when it forks."""
    done = run(
        ear,
        """
        import os, sys, time, warnings
        warnings.simplefilter("error")
        def compute(seconds):
            end = time.process_time() + seconds
            while time.process_time() < end:
                pass
        print(os.getpid())
        for _ in range(2):
            child = os.fork()
            if child == 0:
                compute(0.4)
                sys.exit()
            print(child, flush=True)
            os.waitpid(child, 0)
        compute(0.4)
        """,
    )
    assert done.returncode == 0, done.stderr
    pids = [int(line) for line in dict.fromkeys(done.stdout.split())]
    assert [each.pid for each in ear.heard(STARTED)] == pids
    assert sorted(each.pid for each in ear.heard(STOPPED)) == sorted(pids)
    for each in ear.heard(STARTED):
        assert (each.fields["process_kind"], each.fields["process_name"]) == ("run", "-c")
    cpu = Counter[int]()
    for tick in ear.heard(TICK):
        cpu[tick.pid] += tick.fields["cpu_utilization"] * tick.fields["sample_period"]
    assert all(cpu[pid] > 0.3 for pid in pids), cpu
    begun = [each.fields["process_parent_pid"] for each in ear.heard(STARTED)]
    assert begun[1:] == [pids[0], pids[0]]


def test_a_program_that_a_signal_ends_tells_so(ear: Ear) -> None:
    command = [sys.executable, "-m", "headway", "run", "--telemetry", ear.target, "-c"]
    program = "import time; print('up', flush=True); time.sleep(600)"
    with subprocess.Popen(
        [*command, program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "up\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT_S) == -signal.SIGTERM
        finally:
            process.kill()
    ear.catch_up()
    (stopped,) = ear.heard(STOPPED)
    assert (stopped.pid, stopped.fields["shutdown_reason"]) == (process.pid, "shutdown_signal")
    assert ear.heard(TICK), "what it did until then"


def test_a_program_that_forks_all_the_time_reports_all_the_same(ear: Ear) -> None:
    done = run(
        ear,
        """
        import os, time
        end = time.monotonic() + 0.7
        while time.monotonic() < end:
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
        """,
    )
    assert done.returncode == 0, done.stderr
    parent = ear.heard(STARTED)[0].pid
    ticks = [tick for tick in ear.heard(TICK) if tick.pid == parent]
    assert len(ticks) >= 2, "one at the end, and others before it"


def test_the_descriptors_of_the_program_are_its_own(ear: Ear) -> None:
    """A daemon closes whatever is open, and its own eventfds get the numbers. The reporter looks
    ten times a second, and its thread ends and begins at a fork: it reads and writes none of
    them."""
    done = run(
        ear,
        """
        import os, time

        def counts():
            for fd in mine:
                try:
                    yield os.eventfd_read(fd)
                except BlockingIOError:
                    yield 0

        os.closerange(3, 100)
        mine = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(60)]
        time.sleep(0.3)
        for fd in mine:
            os.eventfd_write(fd, 5)
        time.sleep(0.3)
        print(set(counts()))
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        print(set(counts()))
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "{5}\n{0}\n"


def test_children_by_exec_report_where_they_are_followed(ear: Ear) -> None:
    program = """
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "pass"], check=True)
    """
    assert run(ear, program).returncode == 0
    assert len(ear.heard(STARTED)) == 1
    assert run(ear, program, "--follow").returncode == 0
    pids = {each.pid for each in ear.heard(STARTED)}
    assert len(pids) == 3
    assert {each.pid for each in ear.heard(STOPPED)} == pids


def test_children_and_the_next_image_report_for_the_same_group(ear: Ear) -> None:
    program = """
        import os, subprocess, sys
        if not os.fork():
            os._exit(0)
        os.wait()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        os.execv(sys.executable, [sys.executable, "-c", "pass"])
    """
    assert run(ear, program, "--follow", "--telemetry-group", "nightly jobs").returncode == 0
    groups = [each.fields["process_group"] for each in ear.heard(STARTED)]
    assert groups == ["nightly jobs"] * 4


def test_run_refuses_what_is_no_socket() -> None:
    for arguments, said in (
        (["--telemetry", "x.sock"], "found 'x.sock'; allowed: unix:PATH"),
        (["--telemetry", "unix:/" + "x" * 120], "a path of up to 107 bytes"),
        (["--telemetry-interval", "0.1"], "found '0.1'; allowed: a number of seconds from 0.5"),
        (["--telemetry-group", "a,b"], "found 'a,b'; allowed: 1 to 64 printable characters"),
    ):
        done = run_main("run", *arguments, "-c", "pass")
        assert done.returncode == 2
        assert said in re.sub(r"\s+", " ", done.stderr), done.stderr
