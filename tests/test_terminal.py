"""The report as text: what stands where, at any width, encoding and kind of terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from typing import Any

import pytest
from made_reports import convoy, decoded, report, thread

from headway.report import columns, terminal
from headway.report.terminal import Style


def lines_of(text: str) -> list[str]:
    assert text.endswith("\n")
    return text.splitlines()


def test_threads_are_sorted_by_time_waited() -> None:
    lines = lines_of(terminal.draw(decoded(convoy())))
    start = next(index for index, line in enumerate(lines) if line.startswith("thread "))
    assert [line.split()[0] for line in lines[start + 1 : start + 4]] == [
        "echo",
        "hog",
        "MainThread",
    ]


def test_the_three_states_have_their_shares() -> None:
    text = terminal.draw(decoded(report([thread("MainThread", holds_s=[0.25])], 1.0)))
    assert "held       250 ms   25.0 %" in text
    assert "handoff       0 s    0.0 %" in text
    assert "idle       750 ms   75.0 %" in text


def test_the_multiples_of_the_switch_interval_are_marked() -> None:
    lines = lines_of(terminal.draw(decoded(convoy())))
    bumps = {line.split()[0]: line for line in lines if "├" in line}
    assert [bumps[multiple].split()[-1] for multiple in "123"] == ["60", "25", "8"]
    assert [bumps[multiple].split("├")[0].split()[2:] for multiple in "123"] == [
        [">", "5", "ms"],
        [">", "10", "ms"],
        [">", "15", "ms"],
    ]
    widths = [bumps[multiple].count("█") for multiple in "123"]
    assert widths[0] > 2 * widths[1] > 4 * widths[2] > 0


@pytest.mark.parametrize("width", [60, 72, 80, 100, 110])
@pytest.mark.parametrize("blocks", [True, False])
def test_no_line_is_wider_than_the_terminal(width: int, blocks: bool) -> None:
    made = scheduled() if blocks else convoy()
    made["children"] = [convoy(), report([], 0.1)]
    made["threads"][0]["name"] = "a name that nobody would give to a thread " * 3
    made["threads"][0]["longest_unanswered_s"] = 0.5
    text = terminal.draw(decoded(made), Style(width, blocks=blocks))
    assert max(map(len, lines_of(text))) <= width
    assert text.isascii() is not blocks


def test_a_name_that_only_utf_8_can_show() -> None:
    made = report([thread("Träger")], 1.0)
    assert "Träger" in terminal.draw(decoded(made))


def test_a_name_cannot_move_the_cursor_or_the_columns() -> None:
    names = ["\x1b[2Jred\nalert", "工" * 100, "worker"]
    made = report([thread(name, [0.01], [0.02]) for name in names], 0.1)
    made["gils"][0]["name"] = "\x1b[31mmain"
    text = terminal.draw(decoded(made))
    assert all(line.isprintable() for line in lines_of(text))
    assert r"\x1b[2Jred\nalert  " in text
    start = next(n for n, line in enumerate(lines_of(text)) if line.startswith("thread "))
    rows = lines_of(text)[start : start + 4]
    assert {columns.width(row) for row in rows} == {columns.width(rows[0])}
    assert columns.width(rows[0]) <= 80


def test_a_child_is_measured_by_the_time_that_is_shown() -> None:
    child = {**report([thread("MainThread", holds_s=[0.5])], 1.0), "wall_s": 4.0}
    made = {**convoy(), "children": [child]}
    row = next(line for line in lines_of(terminal.draw(decoded(made))) if line.startswith("pid "))
    assert row.split()[2:] == ["4", "s", "500", "ms", "12.5", "%", "0", "s", "0", "-"]


def test_children_have_a_line_each() -> None:
    made = convoy()
    made["children"] = [{**convoy(), "pid": pid} for pid in range(100, 150)]
    lines = lines_of(terminal.draw(decoded(made)))
    assert sum(line.startswith("pid 1") for line in lines) == terminal.MAX_OTHERS
    assert any(line.startswith("child  ") for line in lines)
    assert "and 20 more (the JSON of --json FILE has them all)" in lines


def test_the_process_whose_threads_waited_most_has_the_tables() -> None:
    """As that of a server whose first process only waits for its workers."""
    made = report([thread("master", holds_s=[0.001] * 5)], 10.0)
    made["children"] = [
        {**report([thread("idle")], 10.0), "pid": 7},
        {**convoy(), "pid": 8, "forked_from": 4242, "command": ["gunicorn", "site"]},
    ]
    lines = lines_of(terminal.draw(decoded(made)))
    assert lines[1] == "pid 8  fork of gunicorn site, 725 ms watched; its threads waited most"
    assert any(line.startswith("echo ") for line in lines)
    assert not any(line.startswith("master ") for line in lines)
    rows = [line for line in lines if line.startswith(("pid 7 ", "pid 4242 "))]
    assert len(rows) == 2, lines
    assert any(line.startswith("process  ") for line in lines)


def test_many_threads_end_in_a_sum() -> None:
    names = [f"{chr(97 + n)} worker" for n in range(25)]
    made = report([thread(name, [n / 1000], [0.001]) for n, name in enumerate(names)], 10.0)
    lines = lines_of(terminal.draw(decoded(made)))
    assert "and 5 more threads: waited 10 ms, held 5 ms" in lines
    assert not any(line.startswith("e worker ") for line in lines)


def scheduled() -> dict[str, Any]:
    """The convoy again, under a policy."""
    made = {**convoy(), "policy": "priority"}
    hog = next(row for row in made["threads"] if row["name"] == "hog")
    hog["preemptions"] = made["gils"][0]["preemptions"] = 1234
    made["gils"][0].update(longest_wait_io_bound_s=0.0012, longest_wait_cpu_bound_s=0.0255)
    return made


def test_under_a_policy_preemptions_and_longest_waits_are_told() -> None:
    lines = lines_of(terminal.draw(decoded(scheduled())))
    assert "policy priority, switch interval 5 ms" in " ".join(" ".join(lines[:2]).split())
    assert "  1,234 preemptions; longest wait: I/O-bound 1.2 ms, CPU-bound 25.5 ms" in lines
    head = next(line for line in lines if line.startswith("thread "))
    rows = {line.split()[0]: line for line in lines[lines.index(head) :] if line}
    end = head.index("preempted") + len("preempted")
    assert [rows[name][:end].split()[-1] for name in ("echo", "hog")] == ["0", "1,234"]


def test_under_interval_there_is_nothing_of_a_policy() -> None:
    text = terminal.draw(decoded(convoy()))
    for word in ("policy", "preempt", "longest wait:"):
        assert word not in text


def test_a_class_without_waits() -> None:
    made = scheduled()
    made["gils"][0]["longest_wait_cpu_bound_s"] = None
    assert "I/O-bound 1.2 ms, CPU-bound -" in terminal.draw(decoded(made))


def test_a_call_that_cannot_be_preempted_is_told_before_the_summary() -> None:
    made = scheduled()
    made["threads"][0]["longest_unanswered_s"] = 0.048
    made["threads"][0]["longest_unanswered_cpu_s"] = 0.04
    made["threads"][0]["unanswered_with_most_cpu_s"] = 0.048
    lines = lines_of(terminal.draw(decoded(made)))
    name = made["threads"][0]["name"]
    start = lines.index(next(line for line in lines if line.startswith(f"{name} kept the GIL")))
    assert lines[start - 1] == lines[start + 2] == ""
    assert lines[start + 3].startswith("The convoy effect")


def test_what_the_books_lack_is_said() -> None:
    made = {**convoy(), "unmeasured_events": 3, "unmeasured_gils": 1, "unlisted_children": 2}
    text = " ".join(terminal.draw(decoded(made)).split())
    assert (
        "Not counted, for want of room: 3 events of threads, 1 own GIL of sub-interpreters, "
        "2 of the children." in text
    )
    assert "Not counted, for want of room" not in terminal.draw(decoded(convoy()))


def test_several_gils_are_told_apart() -> None:
    threads = [thread("a", [0.01]), thread("b", [0.01], gil=1)]
    text = terminal.draw(decoded(report(threads, 1.0)))
    for words in (
        "GIL 0 (main)",
        "GIL 1 (interpreter 1)",
        "a (GIL 0)",
        "b (GIL 1)",
        "waits for GIL 1",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("encoding", "blocks"),
    [("utf-8", True), ("ascii", False), ("latin-1", False), ("cp437", False), ("unknown", False)],
)
def test_blocks_only_where_the_encoding_has_them(encoding: str, blocks: bool) -> None:
    reader, writer = os.pipe()
    try:
        assert Style.of_stream(writer, encoding).blocks is blocks
    finally:
        os.close(reader)
        os.close(writer)


def test_colour_only_on_a_terminal_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    controller, terminal_side = pty.openpty()
    reader, writer = os.pipe()
    try:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        assert Style.of_stream(terminal_side, "utf-8").colour
        assert not Style.of_stream(writer, "utf-8").colour
        assert "\x1b[" in terminal.draw(decoded(convoy()), Style(colour=True))
        assert "\x1b[" not in terminal.draw(decoded(convoy()), Style(colour=False))
        monkeypatch.setenv("NO_COLOR", "1")
        assert not Style.of_stream(terminal_side, "utf-8").colour
        monkeypatch.delenv("NO_COLOR")
        monkeypatch.setenv("TERM", "dumb")
        assert not Style.of_stream(terminal_side, "utf-8").colour
    finally:
        for descriptor in (controller, terminal_side, reader, writer):
            os.close(descriptor)


def test_the_width_is_the_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    controller, terminal_side = pty.openpty()
    try:
        fcntl.ioctl(terminal_side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 97, 0, 0))
        monkeypatch.delenv("COLUMNS", raising=False)
        assert Style.of_stream(terminal_side, "utf-8").width == 97
        monkeypatch.setenv("COLUMNS", "66")
        assert Style.of_stream(terminal_side, "utf-8").width == 66
        monkeypatch.setenv("COLUMNS", "5")
        assert Style.of_stream(terminal_side, "utf-8").width == terminal.MIN_WIDTH
    finally:
        os.close(controller)
        os.close(terminal_side)
