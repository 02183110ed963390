"""Waits of a free-threaded build: parked, suspended, stopping; in counters, report and text."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path
from typing import Any

import made_reports
import pytest
from launch import headway, read_json
from metered import CANCELLING, assert_balanced, run_metered

from headway.report import terminal

pytestmark = [pytest.mark.serial, pytest.mark.free_threading]

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
free_threaded = pytest.mark.skipif(not FREE_THREADED, reason="this build has a GIL")
Parks = dict[str, Any]

# Four threads do `work` while the main one does `meanwhile`, until enough came of it.
COMPETE = """
import gc
def compete(work, meanwhile, enough=lambda: True):
    gc.disable()
    ended = False
    def loop():
        while not ended: work()
    threads = [threading.Thread(target=loop, name=f"t{number}") for number in range(4)]
    [thread.start() for thread in threads]
    began = time.monotonic()
    while time.monotonic() < began + 0.3 or not enough() and time.monotonic() < began + 30:
        meanwhile()
    ended = True
    [thread.join() for thread in threads]

def waits(*kinds):
    rows = gil.snapshot().to_dict()["free_threading"]["threads"]
    return sum(row[kind]["count"] for row in rows for kind in kinds if row["name"][0] == "t")

nap = lambda: time.sleep(0.01)
"""


def parks_of(code: str, *options: str) -> list[Parks]:
    shown = run_metered(COMPETE + code, *options)
    for report in shown:
        assert made_reports.problem_of(report) == ""
        assert_adds_up(report["free_threading"])
    return [report["free_threading"] for report in shown]


def assert_adds_up(parks: Parks) -> None:
    for key in ("parked", "suspended", "stopping"):
        rows = [row[key] for row in parks["threads"]]
        assert parks[key]["count"] == sum(row["count"] for row in rows)
        assert parks[key]["sum_s"] == pytest.approx(sum(row["sum_s"] for row in rows))
    assert parks["cpu_s"] is None or parks["cpu_s"] >= 0


def workers(parks: Parks) -> list[Parks]:
    return [row for row in parks["threads"] if row["name"].startswith("t")]


@free_threaded
@pytest.mark.parametrize(
    ("setup", "work"),
    [
        ("lock = threading.Lock()", "lock.acquire(); sum(range(100)); lock.release()"),
        ("shared = list(range(2000))", "shared.sort(); shared.copy()"),
        ("shared = dict.fromkeys(range(2000))", "shared.copy(); shared.update(a=1)"),
    ],
    ids=["lock", "list", "dict"],
)
def test_threads_that_fight_for_one_thing_park(setup: str, work: str) -> None:
    code = f"""
{setup}
def fight():
    {work}
gil.install()
compete(fight, nap, lambda: waits("parked") >= 50)
show(gil.snapshot().to_dict())
"""
    (parks,) = parks_of(code)
    assert sum(row["parked"]["count"] for row in workers(parks)) >= 50
    assert parks["suspended"]["count"] == parks["stopping"]["count"] == 0
    assert parks["cpu_s"] > 0


@free_threaded
def test_who_collects_garbage_stops_and_the_others_are_suspended() -> None:
    code = """
gil.install()
compete(lambda: sum(range(100)), gc.collect, lambda: waits("suspended") >= 50)
show(gil.snapshot().to_dict())
"""
    (parks,) = parks_of(code)
    by_name = {row["name"]: row for row in parks["threads"]}
    assert sum(row["suspended"]["count"] for row in workers(parks)) >= 50
    assert all(row["stopping"]["count"] == 0 for row in workers(parks))
    assert by_name["MainThread"]["stopping"]["count"] > 0
    assert by_name["MainThread"]["suspended"]["count"] == 0


@free_threaded
def test_threads_that_share_nothing_do_not_wait() -> None:
    """Not even a closure's cell, whose readers take a critical section in CPython 3.13. Watched are
    threads that have begun: for a new one's state CPython stops the world now and then."""
    code = """
import gc
gc.disable()
gil.install()
ended = False
begun = [False] * 4
def compute(number):
    begun[number] = True
    while not ended: sum(range(100))
threads = [threading.Thread(target=compute, args=(n,), name=f"t{n}") for n in range(4)]
[thread.start() for thread in threads]
while not all(begun): time.sleep(0.001)
before = gil.snapshot()
time.sleep(0.3)
after = gil.snapshot()
ended = True
[thread.join() for thread in threads]
show((after - before).to_dict())
"""
    (parks,) = parks_of(code)
    for row in (parks, *workers(parks)):
        assert row["suspended"]["count"] == row["stopping"]["count"] == 0
    assert all(row["parked"]["count"] == 0 for row in workers(parks))


@free_threaded
def test_a_wait_with_a_limit_is_parked_and_ends_as_it_did_without_the_meter() -> None:
    """Also one of the length that CPython waits for while it stops the world."""
    code = """
gil.install()
lock = threading.Lock()
lock.acquire()
before = gil.snapshot()
assert not lock.acquire(timeout=0.05)
assert all(not lock.acquire(timeout=0.001) for _ in range(20))
show((gil.snapshot() - before).to_dict())
event = threading.Event()
waiter = threading.Thread(target=event.wait, args=(30,), name="waiter")
waiter.start()
event.set()
waiter.join()
"""
    (parks,) = parks_of(code)
    assert parks["stopping"]["count"] == 0
    assert parks["parked"]["count"] == 21
    assert parks["parked"]["sum_s"] >= 0.05 + 20 * 0.001


@free_threaded
def test_books_close_begin_anew_and_are_a_forked_childs_own() -> None:
    code = """
lock = threading.Lock()
lock.acquire()
gil.install()
lock.acquire(timeout=0.001)
gil.uninstall()
lock.acquire(timeout=0.001)
show(gil.snapshot().to_dict())
gil.install()
lock.acquire(timeout=0.001)
lock.acquire(timeout=0.001)
sys.stdout.flush()
if os.fork() == 0:
    lock.acquire(timeout=0.001)
    lock.acquire(timeout=0.001)
    lock.acquire(timeout=0.001)
    show(gil.snapshot().to_dict())
    sys.stdout.flush()
    os._exit(0)
assert os.wait()[1] == 0
show(gil.snapshot().to_dict())
"""
    closed, child, anew = parks_of(code)
    assert [each["parked"]["count"] for each in (closed, child, anew)] == [1, 3, 2]
    shown = run_metered(COMPETE + code)
    assert shown[2]["children"][0]["free_threading"]["parked"]["count"] == 3


@free_threaded
def test_threads_that_ended_are_added_up_and_a_difference_balances() -> None:
    code = """
gil.install()
lock = threading.Lock()
def wait_once(): lock.acquire(timeout=0.0001)
def start_and_end(count):
    for number in range(count):
        thread = threading.Thread(target=wait_once, name=f"t{number}")
        thread.start()
        thread.join()
lock.acquire()
start_and_end(50)
before = gil.snapshot()
start_and_end(1500)
after = gil.snapshot()
show(after.to_dict())
show((after - before).to_dict())
"""
    parks, difference = parks_of(code)
    assert len(parks["threads"]) < 512
    assert sum(row["parked"]["count"] for row in workers(parks)) >= 1550
    own = sum(row["parked"]["count"] for row in workers(difference))
    assert 1500 <= own <= 1500 * 2
    assert 0 <= difference["cpu_s"] <= parks["cpu_s"]


@free_threaded
def test_with_the_gil_on_there_are_both_kinds_of_books() -> None:
    code = """
gil.install()
compete(lambda: sum(range(100)), gc.collect)
show(gil.snapshot().to_dict())
"""
    (report,) = run_metered(COMPETE + code, "-X", "gil=1")
    assert_balanced(report)
    assert report["gil"] == "enabled"
    assert report["gils"][0]["takes"] > 0
    assert_adds_up(report["free_threading"])


@pytest.mark.skipif(FREE_THREADED, reason="for builds with a GIL")
def test_on_a_build_with_a_gil_there_is_none_of_it() -> None:
    (report,) = run_metered("gil.install(); show(gil.snapshot().to_dict())")
    assert report["free_threading"] is None


@free_threaded
def test_run_reports_them(tmp_path: Path) -> None:
    program, report = tmp_path / "program.py", tmp_path / "report.json"
    program.write_text("import gc, threading; threading.Thread(target=gc.collect).start()\n")
    result = headway("run", "--json", report, program)
    assert result.returncode == 0
    assert "\nfree-threaded  CPU " in result.stderr
    assert_adds_up(read_json(report)["free_threading"])


def made() -> dict[str, Any]:
    parked, suspended = made_reports.histogram([0.001] * 3), made_reports.histogram([0.002])
    none = made_reports.histogram([])
    rows = [
        {"name": "worker", "parked": parked, "suspended": none},
        {"name": "other", "parked": none, "suspended": suspended},
    ]
    for row in rows:
        row |= {"native_id": 1, "alive": True, "folded": 0, "stopping": {"count": 0, "sum_s": 0}}
    parks = {
        "cpu_s": 1.5,
        "parked": parked,
        "suspended": suspended,
        "stopping": {"count": 2, "sum_s": 0.0015},
        "threads": rows,
    }
    return made_reports.report([], 1.0, gil="disabled", free_threading=parks)


def test_the_text_names_each_kind_of_wait() -> None:
    report = made()
    assert made_reports.problem_of(report) == ""
    text = terminal.draw(made_reports.decoded(report), terminal.Style(width=100))
    for line in (
        "free-threaded  CPU 1.5 s, 1.50 cores on average",
        "parked         3 ms  3 waits for locks and events: p50 1 ms, p99 1 ms, longest 1 ms",
        "stopping     1.5 ms  2 waits until the others stood still",
    ):
        assert line in text
    assert "while another stopped the world" in text
    assert "For locks and events worker waited most: 3 ms, in 3 waits." in " ".join(text.split())
    report["free_threading"]["cpu_s"] = None
    assert "free-threaded  CPU -\n" in terminal.draw(
        made_reports.decoded(report), terminal.Style(width=100)
    )
    report["free_threading"] = None
    assert "parked" not in terminal.draw(made_reports.decoded(report))


@pytest.mark.parametrize(
    ("place", "bad"),
    [
        (("cpu_s",), "1"),
        (("parked",), None),
        (("parked", "count"), 1.5),
        (("stopping", "sum_s"), "0"),
        (("threads",), {}),
        (("threads", 0, "name"), None),
        (("threads", 1, "suspended", "buckets"), [[1]]),
    ],
)
def test_a_report_that_lacks_something_is_told_what(place: tuple[Any, ...], bad: object) -> None:
    report = json.loads(json.dumps(made()))
    row: Any = report["free_threading"]
    for key in place[:-1]:
        row = row[key]
    row[place[-1]] = bad
    problem = made_reports.problem_of(report)
    assert problem.startswith("free_threading.")
    assert all(str(key) in problem for key in place)


@free_threaded
def test_a_cancelled_wait_on_a_semaphore_unwinds_through_its_hook() -> None:
    """The cancelled thread leaves the parking lot as it is, as without Headway."""
    code = (
        CANCELLING
        + """
        lock = threading.Lock()
        lock.acquire()
        gil.install()
        task = cancel(started(lock.acquire))
        while libc.access(task, 0) == 0: libc.usleep(1000)
        libc.puts(b"true")
        libc.fflush(None)
        libc._exit(0)
    """
    )
    assert run_metered(code) == [True]
