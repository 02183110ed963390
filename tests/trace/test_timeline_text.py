"""A timeline in a terminal: at any width, in any encoding, with and without colours."""

from __future__ import annotations

import re

import pytest
from made_timelines import convoy, quick

from headway.report import columns
from headway.report.terminal import Style
from headway.trace import text
from headway.trace.timeline import HOLD, RUNNING, Span, Timeline, TimelineThread

BARS = re.compile(r"^(compute-0|echo) +[\d.]+ %  (.*)$", re.MULTILINE)


def test_who_holds_and_who_waits_is_seen() -> None:
    drawn = text.draw(convoy(), Style(80))
    compute, echo = (bars for _, bars in BARS.findall(drawn)[:2])
    # Four times the GIL goes from the one to the other and back, a switch interval apart.
    assert len(re.findall("▎", echo)) == 4
    assert all(11 <= len(wait) <= 15 for wait in re.findall("░+", echo)[:4])
    assert len(re.findall("█+", compute)) == 5
    assert "↕" in drawn
    assert "1 \N{MULTIPLICATION SIGN}" in drawn
    assert "② to ⑥, magnified" in drawn
    assert drawn.count("↓") == drawn.count("⇡") - 1 == 1


def test_the_magnified_part_shows_every_step_in_its_lane() -> None:
    drawn = text.draw(convoy(), Style(80))
    magnified = drawn.split("magnified")[1]
    badges = next(line for line in magnified.splitlines() if "②③" in line)
    compute, echo = (bars for _, bars in BARS.findall(magnified))
    begin = badges.index("②") - 19
    assert compute[begin] == "█"
    assert echo[begin] == "░"
    took = badges.index("④") - 19
    assert compute[took] in "▒░"
    assert echo[took + 1] == "█"
    assert echo[badges.index("⑤") - 19] in "▍▎"


@pytest.mark.parametrize("width", [60, 72, 80, 100, 110])
@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_no_line_is_wider_than_the_terminal(width: int, blocks: bool, whole: bool) -> None:
    for made, title in ((convoy(30, cpu_threads=30), "a long title "), (quick(300), "長い題名")):
        made.title = title * 20
        made.threads[1] = TimelineThread("長い名前" * 10, "main")
        made.threads[0] = TimelineThread("a name that nobody would give to a thread" * 3, "main")
        made.lost = 12_345
        drawn = text.draw(made, Style(width, blocks=blocks), whole=whole)
        assert max(map(columns.width, drawn.splitlines())) <= width


def test_it_is_plain_ascii_where_the_encoding_has_no_more() -> None:
    text.draw(convoy(30, cpu_threads=3), Style(80, blocks=False)).encode("ascii")


def test_arrows_that_would_be_a_thicket_are_counted_instead() -> None:
    drawn = text.draw(quick(1000), Style(80), whole=True)
    main, magnified = drawn.split("magnified")
    assert not set("⇡↑↓↕") & set(main)
    assert {"⇡", "↓", "↑"} <= set(magnified)
    assert "3,000 arrows had no room." in magnified


def test_there_is_colour_only_where_it_is_wanted() -> None:
    plain = text.draw(convoy(), Style(80))
    coloured = text.draw(convoy(), Style(80, colour=True))
    assert "\x1b" not in plain
    assert "\x1b" in coloured
    without = re.sub(r"\x1b\[\d+m", "", coloured)
    assert [line.rstrip() for line in without.splitlines()] == plain.splitlines()


def test_threads_that_are_not_drawn_are_counted() -> None:
    drawn = text.draw(convoy(3, cpu_threads=40), Style(80))
    assert "21 threads that held and waited least are not drawn." in drawn
    assert "echo" in drawn


def test_names_from_elsewhere_do_not_move_the_cursor() -> None:
    made = convoy()
    made.threads[1] = TimelineThread("ec\x1b[2Jho\n", "main")
    made.title = "a\x1b[31m title"
    drawn = text.draw(made, Style(80))
    assert "\x1b" not in drawn
    assert "ec\\x1b[2Jho\\n" in drawn


def test_a_thread_without_a_gil_is_seen_running() -> None:
    made = Timeline("free", [TimelineThread("one")], 1000, spans=[Span(RUNNING, 0, 0, 500)])
    drawn = text.draw(made, Style(80))
    assert 30 <= drawn.count("▁") <= 40
    assert "No thread has a GIL" in drawn


@pytest.mark.parametrize("spans", [[], [Span(HOLD, 0, 0, 0)]])
def test_nothing_and_next_to_nothing_can_be_drawn(spans: list[Span]) -> None:
    made = Timeline("empty", [TimelineThread("one", "main")], 0, spans=spans)
    assert "empty" in text.draw(made, Style(80))
