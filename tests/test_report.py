"""Reports and ledgers as files: what is read, what is refused, and how a report is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launch import run_main
from made_reports import convoy, decoded, problem_of

from headway import json_file
from headway.errors import CommandError
from headway.meter import report_file as reports
from headway.report import terminal


def written(path: Path, report: Any) -> Path:
    path.write_text(json.dumps(report))
    return path


def test_a_report_is_shown_as_it_was(tmp_path: Path) -> None:
    result = run_main("report", written(tmp_path / "out.json", convoy()))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == terminal.draw(decoded(convoy()))


def test_a_report_on_stdin() -> None:
    assert run_main("report", "-", input=json.dumps(convoy())).stdout == terminal.draw(
        decoded(convoy())
    )


def test_writing_and_reading_agree(tmp_path: Path) -> None:
    json_file.write_json(convoy(), str(tmp_path / "out.json"))
    assert reports.read_report(str(tmp_path / "out.json")) == decoded(convoy())
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, -2.5, 1e-9, 1e300, True, False, None, (), {}]},
        {'quote"': "back\\slash\n\t\0\x7f", "umläut": "\U0001f40d", "lone": "\udc80"},
        [],
        0.1 + 0.2,
    ],
)
def test_json_is_as_the_json_package_writes_it(value: Any) -> None:
    assert json_file.to_json(value) == json.dumps(value, separators=(",", ":"))


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = written(tmp_path / "out.json", "old")
    with pytest.raises(TypeError):
        json_file.write_json({"schema": object()}, str(path))
    trial = tmp_path / f"out.json.{os.getpid()}.tmp"
    trial.mkdir()
    with pytest.raises(IsADirectoryError):
        json_file.write_json(convoy(), str(path))
    assert json.loads(path.read_text()) == "old"
    # A killed process that had the same pid has left a link; what it leads to stays.
    trial.rmdir()
    trial.symlink_to(path)
    json_file.write_json("new", str(tmp_path / "out.json"))
    assert json.loads(path.read_text()) == "new"
    assert os.listdir(tmp_path) == ["out.json"]


def without(key: str) -> dict[str, Any]:
    made = convoy()
    del made[key]
    return made


def with_row(table: str, **changes: Any) -> dict[str, Any]:
    made = convoy()
    made[table][0] = {**made[table][0], **changes}
    return made


BAD = {
    "schema is 1, and must be 2": {**convoy(), "schema": 1},
    "schema is None, and must be 2": without("schema"),
    "the report is [1, 2], and must be an object": [1, 2],
    "pid is missing": without("pid"),
    "wall_s is '2', and must be a number": {**convoy(), "wall_s": "2"},
    "threads is {}, and must be a list": {**convoy(), "threads": {}},
    "gils[0].held_s is None, and must be a number": with_row("gils", held_s=None),
    "threads[0].takes is True, and must be an integer": with_row("threads", takes=True),
    "threads[0].wait.sum_s is missing": with_row(
        "threads",
        wait={"count": 1},
    ),
    "gils[0].preemptions is None, and must be an integer": with_row("gils", preemptions=None),
    "gils[0].longest_wait_io_bound_s is '1', and must be a number or null": with_row(
        "gils", longest_wait_io_bound_s="1"
    ),
    "threads[0].longest_unanswered_s is [], and must be a number or null": with_row(
        "threads", longest_unanswered_s=[]
    ),
    "gils[0].hold is [], and must be an object": with_row("gils", hold=[]),
    "gils[0] is 7, and must be an object": {**convoy(), "gils": [7]},
    "children[0].pid is missing": {**convoy(), "children": [without("pid")]},
    "threads[0].hold.buckets[0] is [1], and must be [seconds, count]": with_row(
        "threads", hold={**convoy()["threads"][0]["hold"], "buckets": [[1]]}
    ),
}


@pytest.mark.parametrize("problem", BAD)
def test_what_is_not_a_report_is_named(problem: str) -> None:
    assert problem_of(BAD[problem]) == problem


def test_a_good_report_has_no_problem() -> None:
    assert problem_of({**convoy(), "children": [convoy()], "more": 1}) == ""


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "neither a report in JSON nor a ledger"),
        (b"hello", "neither a report in JSON nor a ledger"),
        (b"\0" * 100_000, "neither a report in JSON nor a ledger"),
        (b"{", "is not JSON"),
        (b'{"schema": 1}', "is no GIL report: schema is 1, and must be 2"),
        (b'{"schema": 2}', "is no GIL report: python is missing"),
        (b"{" + b'"a":{' * 100_000, "is not JSON"),
        (b'{"schema": 1, "python": "\xff"}', "is not JSON"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "bad"
    path.write_bytes(content)
    result = run_main("report", path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"headway report: FILE '{path}'")
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1


def test_no_file_is_one_line(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
        result = run_main("report", path)
        assert result.returncode == 2
        assert result.stderr.startswith(f"headway report: FILE '{path}': {reason}")
        assert result.stderr.count("\n") == 1


def test_the_newer_of_report_and_ledger_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "out.json", convoy())
    ledger = tmp_path / "out.json.ledger"
    ledger.write_text("not a ledger")
    os.utime(path, (200, 200))
    os.utime(ledger, (100, 100))
    assert reports.read_report(str(path)) == decoded(convoy())
    os.utime(ledger, (300, 300))
    with pytest.raises(CommandError, match=r"out\.json\.ledger.* is neither"):
        reports.read_report(str(path))


def test_output_to_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    path = written(tmp_path / "out.json", convoy())
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        [sys.executable, "-m", "headway", "report", path], stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    assert (result.returncode, result.stderr) == (1, b"")


@pytest.mark.parametrize("closed", [False, True])
def test_output_that_cannot_be_written_is_one_line(tmp_path: Path, closed: bool) -> None:
    path = written(tmp_path / "out.json", convoy())
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "headway", "report", path],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=(lambda: os.close(1)) if closed else None,
        )
    reason = "Bad file descriptor" if closed else "No space left on device"
    assert result.stderr == f"headway report: stdout cannot be written: {reason}\n"
    assert result.returncode == 1


def test_json_that_cannot_be_written_is_refused_first(tmp_path: Path) -> None:
    path = written(tmp_path / "out.json", convoy())
    for out, reason in ((tmp_path / "none" / "x", "No such file"), (tmp_path, "is a directory")):
        result = run_main("report", path, "--json", out)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.startswith(f"headway report: --json '{out}' cannot be written: ")
        assert reason in result.stderr
        assert result.stderr.count("\n") == 1


def test_json_to_stdout(tmp_path: Path) -> None:
    path = written(tmp_path / "out.json", convoy())
    result = run_main("report", path, "--json", "-", cwd=tmp_path)
    assert result.returncode == 0
    assert json.loads(result.stdout) == convoy()
    assert result.stderr == terminal.draw(decoded(convoy()))
    assert [each.name for each in tmp_path.iterdir()] == ["out.json"]


def of_process(pid: int, parent_pid: int | None, **changes: Any) -> dict[str, Any]:
    return {**convoy(), "pid": pid, "parent_pid": parent_pid, **changes}


def test_several_files_of_one_program_are_one_report(tmp_path: Path) -> None:
    """As `HEADWAY=report=reports/%p.json,follow` writes them."""
    forked = of_process(31, 30, forked_from=30, unlisted_children=1)
    files = [
        written(tmp_path / "30.json", of_process(30, 20, children=[forked])),
        # Its parent was forked from another process, whose file is the last.
        written(tmp_path / "40.json", of_process(40, 31)),
        written(tmp_path / "20.json", of_process(20, 1, unlisted_children=2)),
    ]
    result = run_main("report", *files, "--json", tmp_path / "all.json")
    assert (result.returncode, result.stderr) == (0, "")
    children = [
        of_process(30, 20),
        forked,
        of_process(40, 31),
    ]
    whole = of_process(20, 1, children=children, unlisted_children=2)
    assert json.loads((tmp_path / "all.json").read_text()) == whole
    assert result.stdout == terminal.draw(decoded(whole))


def test_files_of_several_programs_are_several_reports(tmp_path: Path) -> None:
    # Pids that were used again lead from each to the other.
    made = [of_process(20, 30), of_process(30, 20), of_process(40, 1)]
    files = [written(tmp_path / f"{each['pid']}.json", each) for each in made]
    result = run_main("report", *files, files[0], "--json", "-")
    assert result.returncode == 0
    found = json.loads(result.stdout)
    assert found == made
    assert result.stderr == "\n".join(terminal.draw(decoded(each)) for each in found)


def test_a_bad_one_of_several_files_is_named(tmp_path: Path) -> None:
    good, bad = written(tmp_path / "good.json", convoy()), tmp_path / "bad.json"
    bad.write_text("{")
    result = run_main("report", good, bad)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"headway report: FILE '{bad}' is not JSON")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--trace", "--profile"])
def test_what_one_file_has_is_not_taken_from_several(tmp_path: Path, option: str) -> None:
    files = [written(tmp_path / name, convoy()) for name in ("a.json", "b.json")]
    result = run_main("report", *files, option, tmp_path / "out.svg")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"headway report: {option}: found 2 FILEs; allowed: one\n"


def test_a_report_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """A later version of schema 2 only adds keys."""
    report = convoy()
    del report["unmeasured_gils"]
    for row in report["threads"]:
        del row["cpu_in_longest_unanswered_s"], row["unanswered_with_most_cpu_s"]
    result = run_main(
        "report", written(tmp_path / "old.json", report), "--json", tmp_path / "new.json"
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == terminal.draw(decoded(convoy()))
    assert json.loads((tmp_path / "new.json").read_text())["unmeasured_gils"] is None
    bad = {**convoy(), "unmeasured_gils": "x"}
    assert problem_of(bad) == "unmeasured_gils is 'x', and must be an integer"
