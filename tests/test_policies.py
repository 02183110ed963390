"""Policies in a live process: put in force, changed while threads run, inherited, reported."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from launch import GIL_ENABLED, HAS_MUSL, headway, python, read_json, run_main
from metered import PREAMBLE, assert_balanced, run_metered

from headway import gil

pytestmark = [pytest.mark.serial, pytest.mark.free_threading]

needs_gil = pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL")
own_gils = pytest.mark.skipif(
    sys.version_info < (3, 12) or not GIL_ENABLED, reason="no own GILs, or none at all"
)
POLICIES = tuple(gil.policies())
SCHEDULING = POLICIES[1:]

# One thread computes, another comes back from a short sleep, 200 times.
CONTEND = """
import threading, time
def contend():
    computing = True
    def compute():
        while computing: sum(range(100))
    def wake():
        for _ in range(200): time.sleep(0.0001)
    threads = [threading.Thread(target=each, name=each.__name__) for each in (compute, wake)]
    [thread.start() for thread in threads]
    threads[1].join()
    computing = False
    threads[0].join()
"""


def assert_scheduled(report: dict[str, Any], policy: str, id: int = 0) -> None:
    """Asserts that `policy` scheduled the threads of `contend`, and that the report names it."""
    assert_balanced(report)
    assert report["policy"] == policy
    row = next(row for row in report["gils"] if row["id"] == id)
    threads = [thread for thread in report["threads"] if thread["gil"] == id]
    assert row["preemptions"] > 0
    assert row["preemptions"] == sum(thread["preemptions"] for thread in threads)
    longest = [row["longest_wait_io_bound_s"], row["longest_wait_cpu_bound_s"]]
    assert max(each for each in longest if each) == row["wait"]["max_s"]
    assert any(thread["longest_unanswered_s"] for thread in threads)


def test_there_are_these_policies_each_with_a_purpose() -> None:
    assert POLICIES == ("interval", "priority", "deadline")
    assert all(gil.policies().values())


@needs_gil
@pytest.mark.parametrize("policy", SCHEDULING)
def test_a_policy_preempts_and_tells_the_longest_waits(policy: str) -> None:
    code = f"""
{CONTEND}
gil.install({policy!r})
contend()
show(gil.snapshot().to_dict())
"""
    (report,) = run_metered(code)
    assert_scheduled(report, policy)
    rows = {row["name"]: row for row in report["threads"]}
    assert rows["compute"]["preemptions"] > 0


@needs_gil
def test_under_priority_a_hold_counts_only_while_its_thread_runs() -> None:
    """A call that sleeps with the GIL held stands for a holder that lost its core: the hold lasts,
    and the thread does not run."""
    code = """
        import ctypes, sys
        INTERVAL_S, ROUNDS = 0.05, 20
        sys.setswitchinterval(INTERVAL_S)
        gil.install("priority")
        usleep = ctypes.PyDLL(None).usleep
        ended = False
        def compute():
            while not ended: pass
            show(time.thread_time() / ROUNDS / INTERVAL_S)
        def serve():
            for _ in range(ROUNDS):
                usleep(3000)
                time.sleep(0.0005)
        threads = [threading.Thread(target=each) for each in (compute, serve)]
        [thread.start() for thread in threads]
        threads[1].join()
        ended = True
        threads[0].join()
    """
    (intervals,) = run_metered(code)
    assert intervals < 0.25, "`compute` had a turn before each hold of `serve`"


@needs_gil
def test_under_interval_nobody_is_preempted_and_there_are_no_classes() -> None:
    code = f"{CONTEND}\ngil.install()\ncontend()\nshow(gil.snapshot().to_dict())"
    (report,) = run_metered(code)
    assert_balanced(report)
    assert report["policy"] == "interval"
    (row,) = report["gils"]
    assert row["preemptions"] == 0
    assert (row["longest_wait_io_bound_s"], row["longest_wait_cpu_bound_s"]) == (None, None)


def test_installed_again_the_policy_changes_and_the_books_go_on() -> None:
    code = """
        gil.install("priority")
        for _ in range(100): time.sleep(0)
        reports = [gil.snapshot().to_dict()]
        for policy in ("deadline", "interval", "priority"):
            gil.install(policy)
            reports.append(gil.snapshot().to_dict())
        show(reports)
    """
    (reports,) = run_metered(code)
    assert [each["policy"] for each in reports] == ["priority", "deadline", "interval", "priority"]
    for report in reports if GIL_ENABLED else ():
        assert_balanced(report)
        assert report["gils"][0]["takes"] >= 100


@needs_gil
def test_installed_again_without_a_policy_it_stays() -> None:
    code = """
gil.install("deadline")
gil.install()
show(gil.snapshot().to_dict()["policy"])
"""
    assert run_metered(code) == ["deadline"]


@needs_gil
def test_removed_the_policy_is_gone_and_closed_books_tell_which_it_was() -> None:
    code = f"""
{CONTEND}
gil.install("deadline")
contend()
gil.uninstall()
closed = gil.snapshot().to_dict()
gil.install()
contend()
show([closed, gil.snapshot().to_dict()])
"""
    ((closed, anew),) = run_metered(code)
    assert_scheduled(closed, "deadline")
    assert_balanced(anew)
    assert anew["policy"] == "interval"
    assert anew["gils"][0]["preemptions"] == 0


@pytest.mark.parametrize("name", ["'fair'", "'Priority'", "'requests'", "''"])
def test_a_policy_that_there_is_not_is_refused_and_changes_nothing(name: str) -> None:
    code = f"""
        gil.install("priority")
        try: gil.install({name})
        except ValueError as error: show(str(error))
        show(gil.snapshot().to_dict()["policy"])
    """
    complaint, policy = run_metered(code)
    assert complaint == f"policy is {name}, and must be one of 'interval', 'priority', 'deadline'"
    assert policy == "priority"


@needs_gil
def test_policies_change_under_load_and_no_thread_is_stuck() -> None:
    """200 changes in an order with every pair of policies in it; after each, all eight threads must
    come to work again before the next."""
    code = """
        import random
        choose = random.Random(7).choice
        stop, counts = False, [0] * 8
        def work(index):
            while not stop:
                counts[index] += 1
                sum(range(100))
                if index % 2: time.sleep(0.0001 if index % 4 == 1 else 0)
        sys.setswitchinterval(1e-4)
        gil.install()
        threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
        [thread.start() for thread in threads]
        names, reports, stuck = list(gil.policies()), [], set()
        for round in range(200):
            policy = choose(names)
            gil.install(policy)
            before, deadline = counts[:], time.monotonic() + 20
            while any(map(int.__eq__, counts, before)) and time.monotonic() < deadline:
                time.sleep(0.0005)
            stuck |= {(round, i) for i in range(8) if counts[i] == before[i]}
            if stuck: break
            if round % 20 == 0: reports.append([policy, gil.snapshot().to_dict()])
        stop = True
        [thread.join() for thread in threads]
        gil.uninstall()
        show([sorted(stuck), [*reports, [policy, gil.snapshot().to_dict()]]])
    """
    ((stuck, reports),) = run_metered(code, timeout=110)
    assert stuck == []
    assert len(reports) == 11
    for policy, report in reports:
        assert_balanced(report)
        assert report["policy"] == policy
        assert report["unmeasured_events"] == 0
    assert reports[-1][1]["gils"][0]["preemptions"] > 0


@needs_gil
@pytest.mark.parametrize("policy", SCHEDULING)
def test_forked_children_have_their_parents_policy(policy: str) -> None:
    code = f"""
{CONTEND}
import warnings
warnings.simplefilter("ignore")
gil.install({policy!r})
computing = True
def compute():
    while computing: sum(range(100))
others = [threading.Thread(target=compute) for _ in range(2)]
[thread.start() for thread in others]
for _ in range(5):
    pid = os.fork()
    if not pid:
        try:
            contend()
            show(gil.snapshot().to_dict())
            sys.stdout.flush()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
computing = False
[thread.join() for thread in others]
show(gil.snapshot().to_dict())
"""
    *children, parent = run_metered(code)
    assert len(children) == len(parent["children"]) == 5
    for report in children:
        assert_scheduled(report, policy)
    assert [child["policy"] for child in parent["children"]] == [policy] * 5
    assert all(child["gils"][0]["preemptions"] for child in parent["children"])


@own_gils
@pytest.mark.skipif(
    (3, 12) <= sys.version_info[:3] <= (3, 12, 1),
    reason="this CPython never ends an interpreter that ran threads, without Headway either",
)
@pytest.mark.parametrize("policy", SCHEDULING)
def test_sub_interpreters_are_scheduled_each_by_itself(policy: str) -> None:
    code = f"""
import warnings
warnings.simplefilter("ignore")
try: import _interpreters as interpreters
except ImportError: import _xxsubinterpreters as interpreters
run = getattr(interpreters, "exec", None) or interpreters.run_string
isolated = {{"isolated": True}} if sys.version_info < (3, 13) else {{"config": "isolated"}}
contend = {CONTEND + "contend()"!r}
older = interpreters.create(**isolated)
gil.install({policy!r})
both = (older, interpreters.create(**isolated))
threads = [threading.Thread(target=run, args=(each, contend)) for each in both]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
show(gil.snapshot().to_dict())
gil.install("interval")
interpreters.destroy(both[1])
show(gil.snapshot().to_dict())
"""
    running, ended = run_metered(code)
    own = [row["id"] for row in running["gils"] if row["name"] != "main"]
    assert len(own) == 2
    for id in own:
        assert_scheduled(running, policy, id)
    assert_balanced(ended)
    assert [row["preemptions"] for row in ended["gils"]] == [
        row["preemptions"] for row in running["gils"]
    ]


@needs_gil
def test_a_difference_subtracts_preemptions_and_keeps_the_longest() -> None:
    code = f"""
{CONTEND}
gil.install("priority")
contend()
before = gil.snapshot()
for _ in range(10): time.sleep(0)
after = gil.snapshot()
show([each.to_dict() for each in (before, after, after - before)])
"""
    ((before, after, between),) = run_metered(code)
    assert_balanced(between)
    assert between["gils"][0]["preemptions"] == 0
    for key in ("longest_wait_io_bound_s", "longest_wait_cpu_bound_s"):
        assert between["gils"][0][key] == after["gils"][0][key]
    rows = [{row["name"]: row for row in report["threads"]} for report in (before, between)]
    assert rows[1]["compute"]["longest_unanswered_s"] == rows[0]["compute"]["longest_unanswered_s"]


def test_a_ledger_tells_the_policy_of_the_process_that_left_it(tmp_path: Path) -> None:
    path = tmp_path / "books.ledger"
    code = f"""
gil.install("deadline", ledger={str(path)!r})
os.kill(os.getpid(), {signal.SIGKILL})
"""
    assert python("-c", PREAMBLE + code).returncode == -signal.SIGKILL
    (report,) = run_metered(f"show(gil.read_ledger({str(path)!r}).to_dict())")
    assert report["policy"] == "deadline"


# Prints whether the kernel schedules this process's threads, two of which compute, as any others.
TELL_KERNEL_POLICIES = """
import os, threading, time
computing = True
def compute():
    while computing: sum(range(100))
threads = [threading.Thread(target=compute) for _ in range(2)]
[thread.start() for thread in threads]
for _ in range(20): time.sleep(0.01)
ids = map(int, os.listdir("/proc/self/task"))
# musl has no sched_getscheduler. The policy is the 41st field, and the name before the third may
# have any characters.
def policy(id): return int(open(f"/proc/self/task/{id}/stat").read().rpartition(")")[2].split()[38])
seen = [(policy(id), sorted(os.sched_getaffinity(id))) for id in ids]
computing = False
[thread.join() for thread in threads]
print(seen == [(os.SCHED_OTHER, sorted(os.sched_getaffinity(os.getppid())))] * 3, flush=True)
"""


@pytest.mark.parametrize("policy", POLICIES)
def test_run_hands_the_policy_to_children_of_every_kind(tmp_path: Path, policy: str) -> None:
    forking = f"import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\n{TELL_KERNEL_POLICIES}"
    code = (
        f"import os, subprocess, sys; print(os.environ['HEADWAY'], flush=True);"
        f"subprocess.run([sys.executable, '-c', {forking!r}], check=True)"
    )
    out = tmp_path / "out.json"
    options = ("--json", out, "--follow", "--policy", policy)
    result = headway("run", *options, "-c", code)
    assert result.returncode == 0, result.stderr
    following, *left_alone = result.stdout.splitlines()
    assert following.startswith("follow:")
    assert left_alone == ["True", "True"]
    report = read_json(out)
    assert [each["policy"] for each in (report, *report["children"])] == [policy] * 3
    if GIL_ENABLED and policy != "interval":
        assert all(child["gils"][0]["preemptions"] for child in report["children"])
    assert (f"policy {policy}" in " ".join(result.stderr.split())) is (policy != "interval")


def test_a_followed_child_that_changed_its_policy_keeps_it() -> None:
    """Its site may run again, as it does in a virtual environment."""
    child = (
        "from headway import environment, gil; gil.install('deadline'); environment.start();"
        "print(gil.snapshot().to_dict()['policy'])"
    )
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    result = headway("run", "--follow", "--policy", "priority", "-c", code)
    assert result.stdout == "deadline\n"


@needs_gil
@pytest.mark.parametrize("policy", SCHEDULING)
def test_a_call_that_keeps_the_gil_is_reported_with_its_thread(tmp_path: Path, policy: str) -> None:
    """Powers of large integers are C code that answers no drop request."""
    code = """if True:
        import threading, time
        def work():
            exponent, took = 50_000, 0
            while took < 0.1:
                exponent *= 2
                began = time.monotonic()
                7 ** exponent
                took = time.monotonic() - began
        worker = threading.Thread(target=work, name="number cruncher")
        worker.start()
        while worker.is_alive(): time.sleep(0.001)
    """
    out = tmp_path / "out.json"
    result = headway("run", "--json", out, "--policy", policy, "-c", code)
    assert result.returncode == 0, result.stderr
    said = " ".join(result.stderr.split())
    assert re.search(
        r"number cruncher kept the GIL for [\d.]+ m?s after it was asked to drop it, and used "
        r"[\d.]+ m?s of CPU time meanwhile: held by a call that cannot be preempted \(C "
        r"code\)",
        said,
    ), result.stderr
    rows = {row["name"]: row for row in read_json(out)["threads"]}
    assert rows["number cruncher"]["longest_unanswered_s"] > 0.05
    assert rows["number cruncher"]["longest_unanswered_cpu_s"] > 0.01


STARVED = """
import os, subprocess, sys, threading, time
from headway import gil
first, *_, last = sorted(os.sched_getaffinity(0))
code = f"import os; os.sched_setaffinity(0, {{{first}}})\\nwhile True: pass"
other = subprocess.Popen([sys.executable, "-S", "-c", code])
stopping = False
def spin():
    os.sched_setaffinity(0, {first})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while not stopping: pass
spinner = threading.Thread(target=spin, name="spinner")
spinner.start()
os.sched_setaffinity(0, {last})
def kept_s():
    threads = gil.snapshot().to_dict()["threads"]
    return max(each["longest_unanswered_s"] or 0 for each in threads if each["name"] == "spinner")
# Until the spinner has kept the GIL while it was off its core.
end = time.monotonic() + 60
while kept_s() < 0.05 and time.monotonic() < end:
    time.sleep(0.002)
stopping = True
other.kill()
other.wait()
"""


@needs_gil
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs a processor for each thread")
@pytest.mark.skipif(HAS_MUSL, reason="musl has no sched_setscheduler")
# Under `priority` the spinner loses its core as it drops the GIL, with the GIL's mutex held.
@pytest.mark.parametrize("policy", ["interval", "deadline"])
def test_python_code_that_waits_for_a_processor_is_not_taken_for_c_code(
    tmp_path: Path, policy: str
) -> None:
    """Another process has the processor that the spinner, which the kernel ranks last, is bound
    to."""
    out = tmp_path / "out.json"
    result = headway("run", "--json", out, "--policy", policy, "-c", STARVED)
    assert result.returncode == 0, result.stderr
    said = " ".join(result.stderr.split())
    assert "spinner kept the GIL for" in said
    assert "it was off the processor" in said
    assert "C code" not in said


WITHOUT_NATIVE = (
    "import sys; sys.modules['headway._native'] = None;"
    "from headway.cli import main; sys.exit(main({arguments}))"
)


def test_help_works_where_the_extension_module_does_not() -> None:
    result = python("-c", WITHOUT_NATIVE.format(arguments=["run", "--help"]))
    assert (result.returncode, result.stderr) == (0, "")
    assert "--policy P" in result.stdout
    assert "policies: none here" in result.stdout


def test_nothing_is_run_where_the_extension_module_does_not_work() -> None:
    arguments = ["run", "--policy", "priority", "-c", "print('started')"]
    result = python("-c", WITHOUT_NATIVE.format(arguments=arguments))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("headway run: the GIL meter cannot be installed: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("run", "found 'beazley'; allowed: one of interval, priority, deadline"),
        ("serve", "found 'beazley'; allowed: one of interval, priority, deadline"),
    ],
)
def test_a_bad_name_is_one_line_with_the_good_ones(verb: str, said: str) -> None:
    result = run_main(verb, "--policy", "beazley", "program")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        f"headway {verb}: argument --policy: {said} (see headway {verb} --help)\n"
    )
