"""The meter's counters: what is counted, what it is called, and that it balances at any moment."""

from __future__ import annotations

import sysconfig
import textwrap

import pytest
from launch import GIL_ENABLED, python
from metered import assert_balanced, run_metered

pytestmark = pytest.mark.free_threading

needs_gil = pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL")


@needs_gil
@pytest.mark.serial
@pytest.mark.parametrize(
    ("calls", "longest_hold", "least_wait", "least_long"),
    [
        pytest.param(100, 1.02, 0.98, 100, marks=pytest.mark.slow("needs a quiet machine")),
        # A thread that loses its core holds for longer than it measures; one that the kernel wakes
        # late waits for less than it could have.
        (20, 1.5, 0.7, 14),
    ],
)
def test_known_waits_and_holds_come_out_right(
    calls: int, longest_hold: float, least_wait: float, least_long: int
) -> None:
    """Over and over, one thread keeps the GIL for a C call of 50 ms, and another comes back for it
    at a moment it knows: the end of a sleep until an absolute time."""
    code = (
        f"        CALLS = {calls}"
        + """
        CALL_US, SLEEP_NS = 50_000, 10_000_000
        CLOCK_MONOTONIC, TIMER_ABSTIME = 1, 1

        class Timespec(ctypes.Structure):
            _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long)]

        keeping, dropping = ctypes.PyDLL(None), ctypes.CDLL(None)
        turn, done = threading.Semaphore(0), threading.Semaphore(0)
        held_ns, waited_ns = [], []

        def hold():
            for _ in range(CALLS):
                turn.acquire()
                began = time.monotonic_ns()
                keeping.usleep(CALL_US)
                held_ns.append(time.monotonic_ns() - began)
                done.acquire()

        def want():
            for _ in range(CALLS):
                wake_ns = time.monotonic_ns() + SLEEP_NS
                until = Timespec(*divmod(wake_ns, 10**9))
                turn.release()
                dropping.clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, ctypes.byref(until), None)
                waited_ns.append(time.monotonic_ns() - wake_ns)
                done.release()

        gil.install()
        threads = [threading.Thread(target=target, name=target.__name__) for target in (hold, want)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        show([gil.snapshot().to_dict(), sum(held_ns) / 1e9, sum(waited_ns) / 1e9])
    """
    )
    ((report, held, waited),) = run_metered(code)
    assert_balanced(report)
    rows = {row["name"]: row for row in report["threads"]}
    # The thread may measure a drop after the C call too, and its way back to the GIL.
    assert 0.05 * calls <= rows["hold"]["held_s"] <= longest_hold * held
    assert least_wait * waited <= rows["want"]["waited_s"] <= 1.02 * waited
    long_waits = [count for bound, count in rows["want"]["wait"]["buckets"] if bound > 0.02]
    assert least_long <= sum(long_waits) <= calls


@needs_gil
def test_a_convoy_shows_in_the_buckets_at_the_switch_interval() -> None:
    """Seed 002's echo server: each message has to wait for the hog's switch interval to end."""
    client = """if True:
        import socket, sys
        with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
            try:
                while True:
                    connection.sendall(b"x")
                    if not connection.recv(1):
                        break
            except OSError:
                pass
    """
    code = f"""
        import socket, subprocess
        stop = False
        def serve(listener):
            connection, _ = listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while not stop:
                    connection.sendall(connection.recv(1))
        def compute():
            while not stop: sum(range(1000))
        def echo_row():
            rows = gil.snapshot().to_dict()["threads"]
            return next((row for row in rows if row["name"] == "echo"), None)
        def at_the_interval():
            buckets = (echo_row() or {{"wait": {{"buckets": []}}}})["wait"]["buckets"]
            return sum(count for bound, count in buckets if 0.005 <= bound < 0.0066)

        gil.install()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            echo = threading.Thread(target=serve, args=(listener,), name="echo")
            hog = threading.Thread(target=compute, name="hog")
            echo.start()
            hog.start()
            port = str(listener.getsockname()[1])
            with subprocess.Popen([sys.executable, "-c", {client!r}, port]):
                deadline = time.monotonic() + 60
                while at_the_interval() < 50 and time.monotonic() < deadline:
                    time.sleep(0.2)
                stop = True
                echo.join()
            hog.join()
        show([at_the_interval(), echo_row()["wait"]["count"]])
    """
    ((at_interval, waits),) = run_metered(code)
    assert 50 <= at_interval <= waits


@needs_gil
def test_the_books_balance_in_snapshots_taken_at_any_moment() -> None:
    code = """
        stop = False
        def compute():
            while not stop: sum(range(100))
        def drop_and_take():
            while not stop: time.sleep(0)
        gil.install()
        sys.setswitchinterval(1e-4)
        targets = [compute, drop_and_take, drop_and_take]
        threads = [threading.Thread(target=target) for target in targets]
        [thread.start() for thread in threads]
        reports = [gil.snapshot().to_dict() for _ in range(200)]
        stop = True
        [thread.join() for thread in threads]
        show(reports)
    """
    (reports,) = run_metered(code)
    for report in reports:
        assert_balanced(report)
    takes = [report["gils"][0]["takes"] for report in reports]
    assert takes == sorted(takes)


@needs_gil
def test_forced_and_voluntary_drops_are_told_apart() -> None:
    code = """
        def compute():
            while not enough: pass
        gil.install()
        enough, end = False, time.monotonic() + 30
        threads = [threading.Thread(target=compute) for _ in range(2)]
        [thread.start() for thread in threads]
        while gil.snapshot().to_dict()["gils"][0]["forced_drops"] < 10 and time.monotonic() < end:
            time.sleep(0.01)
        enough = True
        [thread.join() for thread in threads]
        computed = gil.snapshot()
        for _ in range(50): time.sleep(0)
        show([computed.to_dict(), (gil.snapshot() - computed).to_dict()])
    """
    ((computed, slept),) = run_metered(code)
    forced = computed["gils"][0]
    assert forced["forced_drops"] >= 10
    assert forced["drop_requests"] >= forced["forced_drops"]
    assert slept["gils"][0]["forced_drops"] == 0
    assert slept["gils"][0]["voluntary_drops"] >= 50


@needs_gil
def test_a_difference_holds_what_happened_between() -> None:
    code = """
        gil.install()
        for _ in range(10): time.sleep(0.001)
        before = gil.snapshot()
        for _ in range(100): time.sleep(0)
        difference = gil.snapshot() - before
        show(difference.to_dict())
    """
    (report,) = run_metered(code)
    assert_balanced(report)
    assert 100 <= report["gils"][0]["takes"] < 110
    assert 0 < report["wall_s"] < 1
    assert "GIL" in run_metered("gil.install()\nshow(str(gil.snapshot()))")[0]


@needs_gil
def test_removed_the_books_stay_and_installed_again_they_begin_anew() -> None:
    code = """
        gil.install()
        for _ in range(10): time.sleep(0)
        gil.uninstall()
        closed = gil.snapshot().to_dict()
        for _ in range(10): time.sleep(0)
        later = gil.snapshot().to_dict()
        gil.install()
        show([closed, later, gil.snapshot().to_dict()])
    """
    ((closed, later, anew),) = run_metered(code)
    for report in (closed, later, anew):
        assert_balanced(report)
    assert later == closed
    assert not closed["gils"][0]["alive"]
    assert closed["gils"][0]["takes"] >= 10 > anew["gils"][0]["takes"]


@needs_gil
def test_coming_and_going_under_load_loses_no_take_and_hangs_nobody() -> None:
    code = """
        stop, counts = False, [0] * 8
        def work(index):
            while not stop:
                counts[index] += 1
                sum(range(100))
                if index % 2: time.sleep(0)
        sys.setswitchinterval(1e-4)
        threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
        [thread.start() for thread in threads]
        for round in range(1000):
            gil.install()
            gil.uninstall()
            if round % 50 == 0:
                show(gil.snapshot().to_dict())
        stop = True
        [thread.join() for thread in threads]
        show(min(counts))
    """
    *reports, fewest = run_metered(code)
    for report in reports:
        assert_balanced(report)
    assert fewest > 0


@needs_gil
def test_threads_are_named() -> None:
    code = """
        def work(): time.sleep(0.01)
        installed = threading.Event()
        def work_later(): installed.wait(); work()
        old = threading.Thread(target=work_later, name="older than the meter")
        old.start()
        gil.install()
        installed.set()
        old.join()
        named = threading.Thread(target=work, name="n\u00e4med \\0")
        named.start()
        renamed = threading.Thread(target=time.sleep, args=(0.2,))
        renamed.start()
        renamed.name = "renamed"
        named.join()
        report = gil.snapshot().to_dict()
        show(sorted(row["name"] for row in report["threads"]))
    """
    (names,) = run_metered(code)
    assert names == ["MainThread", "n\u00e4med ", "older than the meter", "renamed"]


def test_a_program_is_not_made_to_import_threading() -> None:
    code = "import sys; from headway import gil; gil.install(); print('threading' in sys.modules)"
    result = run_plain(code)
    assert result == "False\n"
    code += "; import threading; t = threading.Thread(target=int, name='t'); t.start(); t.join()"
    code += (
        "; print([row['name'] for row in gil.snapshot().to_dict()['threads']], sys.meta_path[0])"
    )
    names = run_plain(code).splitlines()[1]
    assert "_ThreadingFinder" not in names
    if GIL_ENABLED:
        assert "'t'" in names


def run_plain(code: str) -> str:

    result = python("-c", code)
    assert result.returncode == 0, result.stderr
    return result.stdout


@needs_gil
@pytest.mark.parametrize(("total", "at_once"), [(100_000, 1), (100_000, 500)])
@pytest.mark.slow("starts 200,000 threads")
def test_memory_does_not_grow_with_the_number_of_threads(total: int, at_once: int) -> None:
    code = f"""
        TOTAL, AT_ONCE = {total}, {at_once}
        def run_threads(count):
            for batch in range(count // AT_ONCE):
                names = [f"w-{{batch % 99}}-{{index}}" for index in range(AT_ONCE)]
                threads = [threading.Thread(target=int, name=name) for name in names]
                [thread.start() for thread in threads]
                [thread.join() for thread in threads]
        def resident_bytes():
            with open("/proc/self/statm") as statm:
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
        gil.install()
        run_threads(TOTAL // 2)
        half = resident_bytes()
        run_threads(TOTAL // 2)
        grown = resident_bytes() - half
        show([gil.snapshot().to_dict(), grown])
    """
    ((report, grown_bytes),) = run_metered(code)
    assert grown_bytes / (total // 2) <= 10
    assert_balanced(report)
    assert report["unmeasured_events"] == 0
    assert sum(row["folded"] or 1 for row in report["threads"]) == total + 1
    assert len(report["threads"]) < 300


def test_bad_policy_and_early_snapshot_are_refused() -> None:
    code = """
        from headway.gil import NotInstalled
        answers = []
        try: gil.install(policy="fifo")
        except ValueError as error: answers.append(str(error))
        try: gil.snapshot()
        except NotInstalled as error: answers.append(str(error))
        show([answers, gil.is_installed()])
    """
    (((bad_policy, early), installed),) = run_metered(code)
    assert "'fifo'" in bad_policy
    assert "'interval'" in bad_policy
    assert "install()" in early
    assert not installed


def test_without_the_extension_module_headway_imports_and_says_why_it_cannot_measure() -> None:
    code = """
        import headway, headway.cli
        from headway.errors import Unsupported
        sys.modules["headway._native"] = None
        try: gil.install()
        except Unsupported as error: show(str(error))
    """
    (why,) = run_metered(code)
    assert "Linux on x86-64" in why


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="for free-threaded builds"
)
def test_a_free_threaded_build_with_a_gil_has_books() -> None:
    """There the first thread state that is made stops the world."""
    code = textwrap.dedent("""
        import threading, time
        from headway import gil
        gil.install()
        end = time.monotonic() + 0.1
        def work():
            while time.monotonic() < end: sum(range(1000))
        threads = [threading.Thread(target=work) for _ in range(2)]
        [each.start() for each in threads]
        [each.join() for each in threads]
        (row,) = gil.snapshot().to_dict()["gils"]
        print(row["contended_takes"] > 0)
    """)
    done = python("-X", "gil=1", "-c", code)
    assert done.stdout == "True\n", done.stderr


@pytest.mark.skipif(GIL_ENABLED, reason="for free-threaded builds that run without the GIL")
def test_without_a_gil_the_books_are_empty() -> None:
    code = """
        gil.install()
        thread = threading.Thread(target=sum, args=(range(1000),))
        thread.start()
        thread.join()
        show(gil.snapshot().to_dict())
    """
    (report,) = run_metered(code)
    assert report["gil"] == "disabled"
    assert report["gils"] == report["threads"] == []
