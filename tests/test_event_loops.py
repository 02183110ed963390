"""Event loops: their iterations, the parts of these, and the lines that made them late."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import sys
import textwrap
from pathlib import Path
from typing import Any

import made_reports
import pytest
from launch import GIL_ENABLED, PROGRAMS, environment, headway, python
from metered import run_metered

from headway.report import event_loops
from headway.report.model import GilReport

pytestmark = pytest.mark.free_threading

Loop = dict[str, Any]

KINDS = [
    pytest.param(
        kind,
        marks=pytest.mark.skipif(
            importlib.util.find_spec(kind) is None, reason=f"{kind} is not installed"
        ),
    )
    for kind in ("asyncio", "uvloop", "trio")
]
BEGINNING = """\
import asyncio, select
gil.install()

def compute(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end: pass

def rows():
    return gil.snapshot().to_dict()["event_loops"]

def threads():
    return [open(f"/proc/self/task/{each}/comm").read() for each in os.listdir("/proc/self/task")]
"""


def run(code: str) -> list[Any]:
    return run_metered(BEGINNING + textwrap.dedent(code))


def loops_of(folder: Path, *command: str | Path) -> tuple[list[Loop], str]:
    """The event loops in the report of a program, and what the program printed."""
    file = folder / "report.json"
    result = headway("run", "--json", file, *command)
    assert result.returncode == 0, result.stderr
    return json.loads(file.read_text())["event_loops"], result.stdout


def parts_of(row: Loop) -> dict[str, float]:
    return {part: row[f"late_{part}_s"] for part in ("computed", "waited", "blocked")}


def charged(row: Loop, part: str, function: str) -> float:
    lines = [line for line in row["lines"] if (line["part"], line["function"]) == (part, function)]
    return sum(float(line["late_s"]) for line in lines)


@pytest.mark.parametrize("kind", KINDS)
def test_each_cause_is_the_part_and_the_line_that_it_is(tmp_path: Path, kind: str) -> None:
    causes = ("sleep", "python", "c")
    [row], printed = loops_of(tmp_path, PROGRAMS / "event_loop.py", kind, *causes)
    own = json.loads(printed)
    assert row["name"] == "MainThread"
    assert row["late"] >= 3 * 4
    parts = parts_of(row)
    # An iteration has more than the stall, and other programs may take its core.
    assert parts["blocked"] >= 0.99 * own["sleep"]
    if GIL_ENABLED:
        assert parts["computed"] >= 0.99 * (own["python"] + own["c"])
    assert parts["waited"] < 0.02 * sum(parts.values())
    sums = [row[part]["sum_s"] for part in ("computed", "waited", "blocked")]
    assert sum(sums) == pytest.approx(row["iteration"]["sum_s"])
    # The first late iteration has no reading, so at least three of four are charged.
    assert charged(row, "blocked", "sleeping") >= 0.6 * own["sleep"]
    for function, cause in (("compute", "python"), ("sum_in_c", "c")):
        assert charged(row, "computed", function) >= (0.5 if GIL_ENABLED else 0.2) * own[cause]
    named = sum(line["late_s"] for line in row["lines"] if line["callback"] == "main")
    assert named >= 0.9 * sum(line["late_s"] for line in row["lines"])


@pytest.mark.skipif(not GIL_ENABLED, reason="there is no GIL to wait for")
@pytest.mark.parametrize("kind", KINDS)
def test_a_wait_for_the_gil_names_the_line_of_the_holder(tmp_path: Path, kind: str) -> None:
    [row], _ = loops_of(tmp_path, PROGRAMS / "event_loop.py", kind, "thread")
    parts = parts_of(row)
    assert parts["waited"] > 0.9 * sum(parts.values())
    line = row["lines"][0]
    assert (line["part"], line["function"], line["thread"]) == ("waited", "sum_in_c", "hog")


def test_a_report_says_which_line_made_a_loop_late(tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    program.write_text(
        "import asyncio, time\n"
        "async def handle():\n"
        "    time.sleep(0.2)\n"
        "async def main():\n"
        "    for _ in range(4):\n"
        "        await handle()\n"
        "        await asyncio.sleep(0.01)\n"
        "asyncio.run(main())\n"
    )
    result = headway("run", program)
    assert result.returncode == 0
    said = " ".join(result.stderr.split())
    assert "event loop" in said
    assert "handle (app.py:3), by main" in said
    assert "Late event loop: MainThread did not look for events for up to" in said
    assert "it blocked in handle (app.py:3). Use an asynchronous library" in said
    assert "No waiting" not in said


def test_a_loop_that_is_never_late_gets_no_thread_and_no_finding() -> None:
    code = """
        async def main():
            for _ in range(50):
                await asyncio.sleep(0.001)
            return threads()
        show(asyncio.run(main()))
        show(rows())
    """
    names, [row] = run(code)
    assert "headway-stacks\n" not in names
    assert row["iteration"]["count"] >= 50
    # The machine may be slow; a limit of the program's own is in another test.
    assert row["late"] == 0 or row["iteration"]["max_s"] >= 0.02


def test_clients_and_the_time_between_two_loops_are_no_iterations() -> None:
    code = """
        import selectors, socket, subprocess
        ours, theirs = socket.socketpair()
        for _ in range(20):
            theirs.send(b"x")
            select.select([ours], [], [], 1)
            poll = select.poll()
            poll.register(ours, select.POLLIN)
            poll.poll(1000)
            with selectors.DefaultSelector() as selector:
                selector.register(ours, selectors.EVENT_READ)
                selector.select(1)
            ours.recv(1)
            compute(0.03)
        subprocess.run([sys.executable, "-c", "0"], capture_output=True, timeout=30)
        show(rows())
        async def main():
            await asyncio.sleep(0.001)
        for _ in range(5):
            asyncio.run(main())
            compute(0.05)
        show(rows())
    """
    clients, [row] = run(code)
    assert clients == []
    assert row["late"] == 0 or row["iteration"]["max_s"] < 0.05


def test_what_a_program_does_between_two_runs_of_one_loop_is_no_iteration() -> None:
    """From the first late iteration on, with which reading begins."""
    code = """
        from headway.meter import engine
        engine.read_loops()
        loop = asyncio.new_event_loop()
        async def late():
            await asyncio.sleep(0.05)
            compute(0.2)
        loop.run_until_complete(late())
        loop.run_until_complete(asyncio.sleep(0.1))
        for _ in range(3):
            time.sleep(0.25)
            loop.run_until_complete(asyncio.sleep(0.05))
        loop.close()
        show(rows())
    """
    [[row]] = run(code)
    assert 0.2 <= sum(parts_of(row).values()) < 0.2 + 0.25
    assert charged(row, "computed", "compute") > 0


def test_iterations_are_counted_exactly_however_many_there_are() -> None:
    code = """
        import selectors
        class Counting(selectors.EpollSelector):
            calls = 0
            def select(self, timeout=None):
                Counting.calls += 1
                return super().select(timeout)
        async def main():
            for _ in range(50_000):
                await asyncio.sleep(0)
        loop = asyncio.SelectorEventLoop(Counting())
        loop.run_until_complete(main())
        show([Counting.calls, rows()])
    """
    [[calls, [row]]] = run(code)
    # The first call begins the first iteration, and the last iteration has not ended.
    assert row["iteration"]["count"] == calls - 1


def test_loops_of_many_threads_and_loops_that_end() -> None:
    code = """
        async def main(steps):
            for _ in range(steps):
                await asyncio.sleep(0.001)
            barrier.wait()
        barrier = threading.Barrier(21)
        def begin(steps): asyncio.run(main(steps))
        started = [threading.Thread(target=begin, args=(5,), name=f"loop {n}") for n in range(20)]
        [thread.start() for thread in started]
        while len(rows()) < 20: time.sleep(0.01)
        live = rows()
        barrier.wait()
        [thread.join() for thread in started]
        show([sorted(row["name"] for row in live), all(row["alive"] for row in live)])
        barrier = threading.Barrier(1)
        for n in range(60):
            thread = threading.Thread(target=begin, args=(3,), name=f"later {n}")
            thread.start()
            thread.join()
        # A thread may be joined a moment before it has ended.
        while any(row["alive"] for row in rows()): time.sleep(0.01)
        ended = gil.snapshot().report()
        show([sum(row.folded or 1 for row in ended.event_loops), ended.unmeasured_loops])
    """
    [[names, alive], [count, unmeasured]] = run(code)
    assert names == sorted(f"loop {n}" for n in range(20))
    assert alive
    assert (count, unmeasured) == (80, 0)


def test_loops_beyond_the_room_are_counted_as_not_measured() -> None:
    code = """
        barrier = threading.Barrier(41)
        def run():
            with select.epoll() as epoll:
                for _ in range(4): epoll.poll(0.001)
                barrier.wait()
                barrier.wait()
        threads = [threading.Thread(target=run) for _ in range(40)]
        [thread.start() for thread in threads]
        barrier.wait()
        report = gil.snapshot().report()
        barrier.wait()
        [thread.join() for thread in threads]
        show([len(report.event_loops), report.unmeasured_loops])
    """
    [[measured, unmeasured]] = run(code)
    assert measured + unmeasured == 40
    assert measured >= 20


def test_forks_bring_no_warning_and_a_child_has_loops_of_its_own() -> None:
    code = """
        import warnings
        warnings.simplefilter("error")
        async def late(times, ended):
            for _ in range(times):
                time.sleep(0.05)
                await asyncio.sleep(0.01)
            if ended is not None:
                os.write(ended, json.dumps(rows()).encode())
        async def main():
            await late(3, None)
            for _ in range(5):
                reader, writer = os.pipe()
                pid = os.fork()
                if pid == 0:
                    os.close(reader)
                    asyncio._set_running_loop(None)
                    asyncio.run(late(2, writer))
                    os._exit(0)
                os.close(writer)
                with open(reader) as pipe: child = json.load(pipe)
                assert os.waitpid(pid, 0)[1] == 0
                await late(1, None)
            return child
        [child] = asyncio.run(main())
        show([child["late"], rows()[0]["late"]])
    """
    [[child, parent]] = run(code)
    assert 1 <= child <= 2
    # The iterations with the forks are late too.
    assert parent >= 8


@pytest.mark.skipif(
    sys.version_info < (3, 12) or not GIL_ENABLED, reason="no interpreter has a GIL of its own"
)
def test_the_loop_of_an_interpreter_with_a_gil_of_its_own() -> None:
    code = """
        try: import _interpreters as interpreters
        except ImportError: import _xxsubinterpreters as interpreters
        import warnings
        warnings.simplefilter("ignore")
        isolated = {"isolated": True} if sys.version_info < (3, 13) else {"config": "isolated"}
        interpreter = interpreters.create(**isolated)
        work = '''if True:
            import select, time
            with select.epoll() as epoll:
                for _ in range(5):
                    epoll.poll(0.01)
                    end = time.perf_counter() + 0.05
                    while time.perf_counter() < end: pass
                    time.sleep(0.1)
                epoll.poll(0)
        '''
        execute = getattr(interpreters, "exec", None) or interpreters.run_string
        thread = threading.Thread(target=execute, args=(interpreter, work), name="other")
        thread.start()
        thread.join()
        show(rows())
    """
    [[row]] = run(code)
    assert row["name"] == "other"
    assert row["late"] >= 5
    parts = parts_of(row)
    assert parts["computed"] >= 0.99 * 5 * 0.05
    assert parts["blocked"] >= 0.99 * 5 * 0.1


def test_what_runs_in_a_greenlet_is_part_of_the_iteration() -> None:
    """As with SQLAlchemy's asyncio: its stack does not begin with the loop's calls."""
    pytest.importorskip("greenlet")
    code = """
        import greenlet
        async def main():
            for _ in range(4):
                time.sleep(0.05)
                await asyncio.sleep(0.1)
            for _ in range(3):
                greenlet.greenlet(compute).switch(0.1)
                await asyncio.sleep(0.01)
        asyncio.run(main())
        show(rows())
    """
    [[row]] = run(code)
    assert row["late"] >= 7
    assert row["late_computed_s" if GIL_ENABLED else "late_blocked_s"] > 0.1
    assert charged(row, "computed", "compute") > 0


def test_a_second_loop_of_a_thread_is_measured_though_it_is_of_another_kind() -> None:
    code = """
        async def main():
            for _ in range(3):
                time.sleep(0.05)
                await asyncio.sleep(0.1)
        asyncio.run(main())
        [first] = rows()
        with select.epoll() as epoll:
            for _ in range(5):
                epoll.poll(0.03)
                compute(0.06)
            epoll.poll(0)
        [second] = rows()
        show([first["late"], second["late"]])
    """
    [[first, second]] = run(code)
    assert first >= 3
    assert second >= first + 5


def test_a_callback_that_waits_with_epoll_itself_blocks() -> None:
    code = """
        import selectors, socket
        ours, theirs = socket.socketpair()
        def receive():
            with selectors.DefaultSelector() as selector:
                selector.register(ours, selectors.EVENT_READ)
                threading.Timer(0.1, theirs.send, [b"x"]).start()
                selector.select(5)
                ours.recv(1)
        async def main():
            for _ in range(4):
                receive()
                await asyncio.sleep(0.01)
        asyncio.run(main())
        show(rows())
    """
    [[row]] = run(code)
    assert row["late"] >= 4
    assert row["late_blocked_s"] >= 0.9 * 4 * 0.1


def test_a_loop_that_is_stuck_is_late_before_it_is_back() -> None:
    code = """
        from headway.meter import engine
        engine.read_loops()
        is_stuck, is_over = threading.Event(), threading.Event()
        async def main():
            await asyncio.sleep(0.1)
            is_stuck.set()
            is_over.wait()
        thread = threading.Thread(target=asyncio.run, args=(main(),), name="loop")
        thread.start()
        is_stuck.wait()
        time.sleep(1.5)
        snapshot = gil.snapshot()
        show(snapshot.to_dict()["event_loops"])
        show(str(snapshot))
        is_over.set()
        thread.join()
    """
    [row], drawn = run(code)
    assert (row["name"], row["late"]) == ("loop", 0)
    assert row["iterating_now_s"] >= 1
    assert "main" in {line["callback"] for line in row["lines"]}
    assert "Late event loop: loop has not looked for events for" in " ".join(drawn.split())


def test_a_long_iteration_is_charged_to_each_line_that_it_ran() -> None:
    code = """
        from headway.meter import engine
        engine.read_loops()
        def first(): time.sleep(0.7)
        def second(): time.sleep(0.7)
        async def main():
            await asyncio.sleep(0.1)
            first()
            second()
            await asyncio.sleep(0.01)
        asyncio.run(main())
        show(rows())
    """
    [[row]] = run(code)
    for function in ("first", "second"):
        assert 0.6 < charged(row, "blocked", function) < 0.85


def test_clients_leave_room_for_loops() -> None:
    code = """
        def wait():
            with select.epoll() as epoll: epoll.poll(0)
        for _ in range(60):
            thread = threading.Thread(target=wait)
            thread.start()
            thread.join()
        while len(threads()) > 1: time.sleep(0.01)
        show(rows())
        barrier = threading.Barrier(41)
        def keep():
            epoll = select.epoll()
            epoll.poll(0)
            barrier.wait()
            barrier.wait()
        started = [threading.Thread(target=keep) for _ in range(40)]
        [thread.start() for thread in started]
        barrier.wait()
        asyncio.run(asyncio.sleep(0.01))
        barrier.wait()
        [thread.join() for thread in started]
        async def main():
            for _ in range(5): await asyncio.sleep(0.01)
        asyncio.run(main())
        show(rows())
    """
    clients, [row] = run(code)
    assert clients == []
    assert (row["name"], row["folded"]) == ("MainThread", 0)


def test_a_close_by_another_thread_ends_the_loop() -> None:
    code = """
        def close(): epoll.close()
        for _ in range(3):
            epoll = select.epoll()
            for _ in range(3): epoll.poll(0.001)
            thread = threading.Thread(target=close)
            thread.start()
            thread.join()
            time.sleep(0.05)
        epoll = select.epoll()
        for _ in range(3): epoll.poll(0.001)
        show(rows())
    """
    [[row]] = run(code)
    assert row["late"] == 0 or row["iteration"]["max_s"] < 0.05


def test_lines_of_many_ended_loops_and_of_an_earlier_installation() -> None:
    code = """
        from headway.meter import engine
        engine.read_loops()
        async def main():
            await asyncio.sleep(0.01)
            time.sleep(0.03)
            await asyncio.sleep(0.01)
        for n in range(45):
            thread = threading.Thread(target=asyncio.run, args=(main(),))
            thread.start()
            thread.join()
        show(rows())
        gil.uninstall()
        gil.install()
        asyncio.run(main())
        show(rows())
    """
    ended, [row] = run(code)
    [folded] = [row for row in ended if row["folded"]]
    assert charged(folded, "blocked", "main") > 0.5 * folded["late_blocked_s"]
    assert sum(line["late_s"] for line in row["lines"]) <= 1.01 * sum(parts_of(row).values())


def test_the_difference_of_two_snapshots_has_what_came_between() -> None:
    code = """
        async def main():
            for seconds in (0.05, 0.05, 0.1, 0.1):
                if seconds == 0.1 and len(found) == 0:
                    found.append(gil.snapshot())
                await asyncio.sleep(0.02)
                time.sleep(seconds)
            await asyncio.sleep(0.05)
            between = gil.snapshot() - found[0]
            show([between.to_dict()["event_loops"], len(between.loops)])
        found = []
        asyncio.run(main())
    """
    [[[row], count]] = run(code)
    assert count == 1
    assert row["late"] >= 2
    assert row["late_blocked_s"] >= 0.19
    assert 0.1 <= charged(row, "blocked", "main") <= row["late_blocked_s"] * 1.001


BLOCKING = """
import asyncio, os, signal, time

def handle():
    time.sleep(0.06)

async def main():
    for _ in range(8):
        handle()
        await asyncio.sleep(0.03)
"""


def test_with_a_limit_the_first_late_iteration_has_its_line(tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    program.write_text(BLOCKING.replace("range(8)", "range(1)") + "asyncio.run(main())\n")
    [row], _ = loops_of(tmp_path, "--loop-limit", "20ms", program)
    assert row["late"] == 1
    assert charged(row, "blocked", "handle") >= 0.9 * row["late_blocked_s"]


@pytest.mark.parametrize("number", ["SIGTERM", "SIGKILL"])
def test_a_program_that_a_signal_ends_leaves_the_lines(tmp_path: Path, number: str) -> None:
    program, file = tmp_path / "app.py", tmp_path / "report.json"
    end = f"asyncio.run(main())\nos.kill(os.getpid(), signal.{number})\n"
    program.write_text(BLOCKING + end)
    result = headway("run", "--json", file, program)
    assert result.returncode == -getattr(signal, number)
    if number == "SIGKILL":
        assert headway("report", file, "--json", file).returncode == 0
    [row] = json.loads(file.read_text())["event_loops"]
    assert row["late"] >= 8
    assert charged(row, "blocked", "handle") >= 0.7 * row["late_blocked_s"]
    assert row["lines"][0]["callback"] == "main"


def test_the_lines_of_forked_children_are_in_the_report(tmp_path: Path) -> None:
    """As of gunicorn with asyncio workers."""
    program = tmp_path / "app.py"
    program.write_text(
        BLOCKING
        + "children = []\n"
        + "for _ in range(2):\n"
        + "    pid = os.fork()\n"
        + "    if pid == 0:\n"
        + "        asyncio.run(main())\n"
        + "        os._exit(0)\n"
        + "    children.append(pid)\n"
        + "assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0]\n"
    )
    result = headway("run", "--json", tmp_path / "report.json", program)
    assert result.returncode == 0, result.stderr
    children = json.loads((tmp_path / "report.json").read_text())["children"]
    for child in children:
        [row] = child["event_loops"]
        assert charged(row, "blocked", "handle") > 0
    said = " ".join(result.stderr.split())
    assert "has the latest event loop. Late event loop: MainThread did not look for" in said
    assert "it blocked in handle (app.py:5)" in said


def test_the_limit_is_the_programs() -> None:
    code = """
        import asyncio
        gil.install(loop_limit_s=0.003)
        async def main():
            for _ in range(10):
                time.sleep(0.005)
                await asyncio.sleep(0.001)
        asyncio.run(main())
        show([(row.late, row.late_limit_s) for row in gil.snapshot().loops])
        try: gil.install(loop_limit_s=0)
        except ValueError as error: show(str(error))
    """
    [[late, limit_s]], refused = run_metered(code)
    assert late >= 10
    assert limit_s == 0.003
    assert refused == "loop_limit_s is 0, and must be above 0"


@pytest.mark.parametrize("option", ["run", "variable"])
def test_the_limit_is_an_option_and_a_word_of_the_variable(tmp_path: Path, option: str) -> None:
    file = tmp_path / "report.json"
    program = ("-c", "import asyncio; asyncio.run(asyncio.sleep(0.01))")
    if option == "run":
        result = headway("run", "--json", file, "--loop-limit", "7ms", *program)
    else:
        value = f"report={file},loop-limit=7ms"
        result = python(*program, env=environment(HEADWAY=value))
    assert result.returncode == 0, result.stderr
    [row] = json.loads(file.read_text())["event_loops"]
    assert row["late_limit_s"] == 0.007


SUITE = """
import asyncio, time
import pytest

def compute(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end: pass

async def late():
    await asyncio.sleep(0.01)
    compute(0.3)
    await asyncio.sleep(0.01)

@pytest.fixture(scope="session")
def loop():
    loop = asyncio.new_event_loop()
    loop.run_until_complete(asyncio.sleep(0.001))
    yield loop
    loop.close()

@pytest.fixture
def slow(loop):
    compute(0.3)

def test_fine(loop, slow): loop.run_until_complete(asyncio.sleep(0.15))
def test_late(loop): loop.run_until_complete(late())
def test_fine_again(loop, slow): loop.run_until_complete(asyncio.sleep(0.15))
def test_own(slow): asyncio.run(late())
"""


def test_pytest_fails_a_test_whose_loop_was_late_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    options = ("-p", "headway", "--headway-loop-limit", "100ms", "-p", "no:cacheprovider", "-rfP")
    result = python("-m", "pytest", *options, "-W", "error", cwd=tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    failed = re.findall(r"^FAILED test_suite.py::(\w+)", result.stdout, re.MULTILINE)
    assert failed == ["test_late", "test_own"]
    # pytest says it once more in the summary of a wide terminal, or where CI is set.
    details, _, summary = result.stdout.partition("short test summary info")
    assert details.count("late event loop: MainThread did not look for events for") == 2
    assert summary.startswith(" ===")
    assert "in compute (test_suite.py:7) (--headway-loop-limit 100 ms)" in result.stdout


def test_a_limit_that_is_none_is_refused() -> None:
    result = headway("run", "--loop-limit", "soon", "-c", "0")
    assert result.returncode == 2
    assert "--loop-limit: found 'soon'; allowed:" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_removing_and_installing_again_begins_anew() -> None:
    code = """
        async def main():
            for _ in range(3):
                await asyncio.sleep(0.01)
                time.sleep(0.03)
            gil.uninstall()
            show(len(rows()))
            show(threads())
            await asyncio.sleep(0.01)
            gil.install()
            for _ in range(3): await asyncio.sleep(0.01)
            show([row["iteration"]["count"] for row in rows()])
        asyncio.run(main())
    """
    before, threads, [count] = run(code)
    assert before == 1
    assert "headway-stacks\n" not in threads
    assert 2 <= count <= 6


# The finding and its words.


def made_loop(**changes: Any) -> Loop:
    return {
        "native_id": 1,
        "name": "MainThread",
        "alive": True,
        "folded": 0,
        "polled_s": 9.0,
        "iterating_now_s": None,
        "mean_lag_s": 0.001,
        "late_limit_s": 0.02,
        "late": 3,
        "late_computed_s": 0.0,
        "late_waited_s": 0.0,
        "late_blocked_s": 0.0,
        "late_ran_blocked_s": 0.0,
        "ran_blocked_s": 0.0,
        "core_waited_s": 0.0,
        "iteration": made_reports.histogram([0.3, 0.3, 0.3, 0.001]),
        **dict.fromkeys(("computed", "waited", "blocked"), made_reports.histogram([])),
        "lines": [],
        **changes,
    }


def line(part: str, **changes: Any) -> dict[str, Any]:
    found = {"function": "work", "file": "/srv/app.py", "line": 7, "callback": "main"}
    return {"part": part, **found, "thread": None, "late_s": 0.8, "readings": 80, **changes}


@pytest.mark.parametrize(
    ("changes", "gil", "policy", "expected"),
    [
        (
            {"late_computed_s": 0.9, "lines": [line("computed")]},
            "enabled",
            "interval",
            "it computed in work (app.py:7). Move it into a thread, with asyncio.to_thread() and "
            "the policy priority, or into another process.",
        ),
        (
            {"late_waited_s": 0.9, "lines": [line("waited", thread="hog")]},
            "enabled",
            "interval",
            "it waited for the GIL, which hog held in work (app.py:7). The policy priority ends "
            "waits for threads that compute in Python.",
        ),
        (
            {"late_waited_s": 0.9},
            "enabled",
            "priority",
            "it waited for the GIL. No policy interrupts a call that keeps the GIL: move it to "
            "another process.",
        ),
        (
            {"late_blocked_s": 0.9, "lines": [line("blocked")]},
            "enabled",
            "interval",
            "it blocked in work (app.py:7). Use an asynchronous library for it, or "
            "asyncio.to_thread().",
        ),
        (
            {"late_blocked_s": 0.9, "late_ran_blocked_s": 0.8},
            "enabled",
            "interval",
            "it blocked. Such a call has dropped the GIL: asyncio.to_thread() is enough.",
        ),
        (
            {"late_computed_s": 0.5, "late_blocked_s": 0.4, "lines": [line("blocked")]},
            "enabled",
            "interval",
            "it computed for 500 ms, and blocked in work (app.py:7) for 400 ms. Move it into",
        ),
        (
            {"late_computed_s": 0.9},
            "disabled",
            "interval",
            "it computed. Move it into a thread, with asyncio.to_thread().",
        ),
    ],
)
def test_a_sentence_says_which_part_and_what_helps(
    changes: dict[str, Any], gil: str, policy: str, expected: str
) -> None:
    thread = made_reports.thread("MainThread")
    made = made_reports.report([thread], 10.0, gil=gil, policy=policy)
    made["event_loops"] = [made_loop(**changes)]
    said = event_loops.sentence(GilReport.decode(made))
    assert said is not None
    began = (
        "Late event loop: MainThread did not look for events for up to 300 ms, 3 times for 20 ms "
        "or longer, 900 ms in all: "
    )
    assert said.startswith(began + expected)


@pytest.mark.parametrize(
    ("durations_s", "late_s", "is_late"),
    [
        ([0.1], 0.1, True),
        ([0.05], 0.05, False),
        ([0.05] * 4, 0.2, True),
        ([0.001], 0.0, False),
    ],
)
def test_a_loop_is_late_by_one_long_iteration_or_by_many(
    durations_s: list[float], late_s: float, is_late: bool
) -> None:
    late = sum(duration_s >= 0.02 for duration_s in durations_s)
    iteration = made_reports.histogram(durations_s)
    row = made_loop(iteration=iteration, late=late, late_computed_s=late_s)
    made = made_reports.report([made_reports.thread("MainThread")], 10.0) | {"event_loops": [row]}
    assert (event_loops.late(GilReport.decode(made)) is not None) == is_late


def test_a_report_of_an_earlier_version_has_no_event_loops() -> None:
    made = made_reports.report([made_reports.thread("MainThread")], 10.0)
    del made["event_loops"]
    report = GilReport.decode(made)
    assert report.event_loops is None
    assert event_loops.late(report) is None
