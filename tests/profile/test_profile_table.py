"""The lines that made other threads wait most, in the terminal's report and as data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_profiles import (
    CRUNCH,
    MS,
    PROFILES,
    deep,
    empty,
    hostile,
    ordinary,
    profile_of,
    two_gils,
    without_waits,
)

from headway.profile import table
from headway.profile.model import FORCED, UNKNOWN_THREAD, Frame, Held, Profile
from headway.report import columns
from headway.report.terminal import Style

SHOP = "/home/me/shop"


@pytest.fixture(params=PROFILES.values(), ids=PROFILES)
def profile(request: pytest.FixtureRequest) -> Profile:
    made: Profile = request.param()
    return made


def drawn(profile: Profile, width: int = 80) -> list[str]:
    return table.lines(table.tabulate(profile), Style(width), SHOP)


def test_rows_with_what_has_no_stack_sum_to_the_time_waited(profile: Profile) -> None:
    made = table.tabulate(profile)
    rows_ns = sum(row.waited_ns for row in made.rows)
    assert rows_ns + made.handoff_ns + made.not_recorded_ns == profile.waited_ns == made.waited_ns
    for row in made.rows:
        figures = [waited_ns for _, waited_ns in row.waiters]
        assert sum(figures) == row.waited_ns
        assert figures == sorted(figures, reverse=True)


def test_charges_are_summed_by_the_innermost_line() -> None:
    held = [
        Held("main", (Frame("caller", "a.py", line), CRUNCH), thread, "w", FORCED, 2, 1)
        for line, thread in ((1, "a"), (2, "a"), (1, "b"))
    ]
    other = Held("main", (CRUNCH._replace(line=9),), "a", "w", FORCED, 1, 1)
    made = table.tabulate(profile_of([*held, other], []))
    assert [(row.frame, row.waited_ns) for row in made.rows] == [
        (CRUNCH, 6),
        (CRUNCH._replace(line=9), 1),
    ]


def test_the_report_names_lines_times_shares_and_waiters() -> None:
    assert drawn(ordinary()) == [
        "made others wait              waited   share  threads that waited",
        "crunch (jobs/prices.py:8)      1.2 s  61.5 %  http-1 58 % and 3 more",
        "<lambda> (jobs/prices.py:9)   400 ms  20.5 %  http-1",
        "dumps (json/__init__.py:231)  150 ms   7.7 %  http-2",
        "<module> (app.py:40)          100 ms   5.1 %  http-2",
        "(handoff) 90 ms, 4.6 %",
    ]


def test_a_wide_terminal_has_room_for_three_threads() -> None:
    assert drawn(ordinary(), 110)[1].endswith(
        "  http-1 58 %, http-2 25 %, MainThread 8 % and 1 more"
    )


def test_a_narrow_terminal_keeps_the_lines_numbers() -> None:
    lines = drawn(ordinary(), 61)
    assert [line.partition("  ")[0] for line in lines[1:5]] == [
        "crunch (prices.py:8)",
        "<lambd~ (prices.py:9)",
        "du~ (__init__.py:231)",
        "<module> (app.py:40)",
    ]


def crowd(*names: str) -> Profile:
    """Threads that waited for one line, each longer than the next."""
    held = [
        Held("main", (CRUNCH,), "holder", name, FORCED, (100 - n) * MS, 1)
        for n, name in enumerate(names)
    ]
    return profile_of(held, [])


@pytest.mark.parametrize("width", [80, 110])
@pytest.mark.parametrize(
    "names",
    [
        [f"compute-thread-of-the-pool-{n}" for n in range(6)],
        [f"Thread-{n} (process_request_thread)" for n in range(6)],
    ],
)
def test_names_of_waiters_are_cut_where_they_are_alike(names: list[str], width: int) -> None:
    """The first of them are shown; it must be seen which these are."""
    shown = {
        drawn(crowd(*names[n:], *names[:n]), width)[1].partition("100.0 %")[2].split(" %")[0]
        for n in range(6)
    }
    assert len(shown) == 6


def test_unknown_threads_are_not_counted() -> None:
    def waiters(*names: str) -> str:
        return drawn(crowd(*names), 110)[1].partition("  100.0 %  ")[2]

    names = ["compute-1", UNKNOWN_THREAD, "MainThread"]
    assert waiters(*names) == "compute-1 34 %, MainThread 33 %"
    assert waiters(UNKNOWN_THREAD, "compute-1") == "compute-1 50 %"
    assert waiters(UNKNOWN_THREAD) == UNKNOWN_THREAD
    assert waiters(*names, "a", "b").endswith(" and 1 more")


def test_at_most_five_lines_are_shown_and_the_rest_is_counted() -> None:
    lines = drawn(deep())
    assert lines[1].startswith("call_9_127 (deep/part9.py:127)")
    assert lines[6:] == ["and 5 more lines: 15 ms, 27.3 %"]


def test_lines_fit_any_terminal_and_do_not_control_it(profile: Profile) -> None:
    for width in (60, 73, 80, 110):
        for line in drawn(profile, width):
            assert columns.width(line) <= width
            assert line.isprintable()


def test_time_without_a_stack_is_mentioned_from_a_hundredth_on() -> None:
    held = [Held("main", (CRUNCH,), "a", "b", FORCED, 99 * MS, 1)]
    assert drawn(profile_of(held, [], handoff_ns=MS))[-1] == "(handoff) 1 ms, 1.0 %"
    assert "(handoff)" not in drawn(profile_of(held, [], handoff_ns=MS - MS // 10))[-1]
    assert drawn(profile_of([], [], handoff_ns=0)) == drawn(empty())
    assert drawn(two_gils())[-1] == "(not recorded) 101 ms, 5.0 %"


@pytest.mark.parametrize("made", [empty, without_waits])
def test_no_waiting_is_a_line(made: type[Profile]) -> None:
    assert drawn(made()) == ["made others wait", "No thread waited for a GIL."]


def test_plain_text_has_no_micro_sign() -> None:
    held = [Held("main", (CRUNCH,), "a", "b", FORCED, 5_000, 1)]
    made = table.tabulate(profile_of(held, []))
    assert "  5 us  " in table.lines(made, Style(80, blocks=False))[1]
    assert "  5 µs  " in table.lines(made, Style(80))[1]


def test_the_data_has_what_the_lines_have() -> None:
    made = table.tabulate(ordinary()).to_dict(most=1)
    assert made == {
        "waited_s": 1.95,
        "handoff_s": 0.09,
        "not_recorded_s": 0.01,
        "lines": [
            {
                "function": "crunch",
                "file": "/home/me/shop/jobs/prices.py",
                "line": 8,
                "waited_s": 1.2,
                "waiters": [
                    {"thread": "http-1", "waited_s": 0.7},
                    {"thread": "http-2", "waited_s": 0.3},
                    {"thread": "MainThread", "waited_s": 0.1},
                    {"thread": "http-3", "waited_s": 0.1},
                ],
            }
        ],
    }
    json.dumps(table.tabulate(hostile()).to_dict())


@pytest.mark.parametrize(
    ("file", "folder", "shown"),
    [
        ("/home/me/shop/jobs/prices.py", "/home/me/shop", "jobs/prices.py"),
        ("/home/me/shop/jobs/prices.py", "/home/me/shop/", "jobs/prices.py"),
        ("/home/me/shop.py", "/home/me/shop", "me/shop.py"),
        ("/usr/lib/python3.13/json/decoder.py", "/home/me", "json/decoder.py"),
        ("/app.py", "/home/me", "/app.py"),
        ("/app.py", "/", "app.py"),
        ("/app.py", "", "/app.py"),
        ("<string>", "/home/me", "<string>"),
        ("<frozen importlib._bootstrap>", "", "<frozen importlib._bootstrap>"),
        ("pkg/mod/inner.py", "/home/me", "pkg/mod/inner.py"),
        ("", "/", ""),
    ],
)
def test_files_are_shortened(file: str, folder: str, shown: str) -> None:
    assert table.shortened(file, folder) == shown


def test_files_are_relative_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    leaf = Frame("work", f"{Path.cwd()}/deep/in/job.py", 3)
    made = table.tabulate(profile_of([Held("main", (leaf,), "a", "b", FORCED, 1, 1)], []))
    assert table.lines(made, Style(80))[1].startswith("work (deep/in/job.py:3)  ")
