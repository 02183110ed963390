"""The names of processes in a report."""

from __future__ import annotations

from typing import Any

import pytest
from made_reports import convoy, decoded, problem_of, report, thread

from headway.report import processes, sentence, terminal
from headway.report.model import GilReport

PYTHON = "/srv/venv/bin/python3.13"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ([PYTHON, "/srv/app/manage.py", "runserver", "8000"], "manage.py runserver 8000"),
        ([PYTHON, "/srv/venv/bin/gunicorn", "-w", "4", "app:app"], "gunicorn -w 4 app:app"),
        ([PYTHON, "-m", "gunicorn", "app:app"], "python -m gunicorn app:app"),
        ([PYTHON, "-X", "dev", "-W", "error", "-Bum", "pytest", "-q"], "python -m pytest -q"),
        ([PYTHON, "-c", "print(1)", "more"], "python -c print(1) more"),
        ([PYTHON, "-I", "--", "-odd.py"], "-odd.py"),
        ([PYTHON, "-"], "-"),
        ([PYTHON, "-B"], "python3.13"),
        ([PYTHON, "/srv/app/"], "/srv/app/"),
        (["/usr/sbin/uwsgi", "--ini", "site.ini"], "uwsgi --ini site.ini"),
        ([PYTHON, "-c", "from multiprocessing.spawn import spawn_main; spawn_main(pipe_handle=7)",
          "--multiprocessing-fork"], "multiprocessing spawn"),
        ([PYTHON, "-s", "-c", "from multiprocessing.forkserver import main; main(5, 6)"],
         "multiprocessing forkserver"),
        ([PYTHON, "-c", "from multiprocessing.resource_tracker import main;main(5)"],
         "multiprocessing resource tracker"),
        ([PYTHON, "-u", "-c", "import sys;exec(eval(sys.stdin.readline()))"], "execnet worker"),
        ([], ""),
        ([PYTHON], "python3.13"),
    ],
)  # fmt: skip
def test_a_command_is_told_without_the_interpreter(command: list[str], said: str) -> None:
    assert processes.role(command) == said
    assert processes.label(process(command=command), 200) == said


def test_a_fork_is_told_from_its_parent() -> None:
    forked = process(pid=12, command=[PYTHON, "app.py"], forked_from=11)
    assert processes.label(forked) == "fork of app.py"
    assert processes.title(forked) == "pid 12 (fork of app.py)"
    assert processes.title(forked.replaced(command=None)) == "pid 12 (fork of pid 11)"
    assert processes.title(process(pid=12)) == "pid 12"


def test_a_command_cannot_move_the_cursor_or_fill_the_screen() -> None:
    hostile = process(command=[PYTHON, "\x1b[31mapp\n.py", "x" * 100_000])
    assert processes.label(hostile, 30) == r"\x1b[31mapp\n.py xxx~xxxxxxxxx"


def process(**changes: Any) -> GilReport:
    return decoded(report([], 1.0, **changes))


def child(pid: int, waits_s: list[float], **more: Any) -> dict[str, Any]:
    made = report([thread("MainThread", waits_s, [0.2], forced_drops=1)], 1.0)
    return {**made, "pid": pid, "forked_from": None, "command": [PYTHON, f"{pid}.py"], **more}


def test_the_summary_speaks_of_the_process_that_waited_most() -> None:
    made = report([thread("MainThread", [0.001] * 3)], 1.0)
    made["children"] = [child(5, [0.01]), child(6, [0.1] * 5), child(7, [])]
    said = sentence.sentence(decoded(made))
    assert said.startswith("Of 4 processes, pid 6 (6.py) waited most. ")
    assert "MainThread waited 500 ms of 1 s" in said
    # The program itself is named without its pid.
    made["threads"][0]["waited_s"] = 0.7
    assert "pid" not in sentence.sentence(decoded(made))


def test_the_thread_of_a_child_that_kept_the_gil_is_told_with_its_process() -> None:
    made = report([thread("a", longest_unanswered_s=0.03)], 1.0, policy="priority")
    made["children"] = [child(6, [0.1], policy="priority")]
    made["children"][0]["threads"][0]["longest_unanswered_s"] = 0.2
    assert sentence.unanswered(decoded(made)).startswith(
        "MainThread of pid 6 (6.py) kept the GIL for 200 ms after it was asked to drop it (1 more "
    )


def test_children_are_listed_by_how_long_they_waited() -> None:
    made = convoy()
    waits = [n / 1000 for n in range(40)]
    made["children"] = [child(100 + n, [wait] if wait else []) for n, wait in enumerate(waits)]
    text = terminal.draw(decoded(made), terminal.Style(100))
    listed = [line.split()[1] for line in text.splitlines() if line.startswith("pid ")]
    assert listed == [str(139 - n) for n in range(30)]
    assert "pid 139 139.py" in text
    assert "and 10 more" in text


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"command": "x"}, "command is 'x', and must be a list"),
        ({"command": ["x", 1]}, "command[1] is 1, and must be a string"),
        ({"forked_from": "1"}, "forked_from is '1', and must be an integer or null"),
        ({"command": ["x"], "forked_from": 1, "parent_pid": None}, ""),
    ],
)
def test_a_report_with_another_kind_of_command_is_refused(
    fields: dict[str, Any], problem: str
) -> None:
    assert problem_of({**convoy(), **fields}) == problem
