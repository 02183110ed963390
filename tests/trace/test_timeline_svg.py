"""A timeline as SVG: what is in the file. How it looks in a browser is tested beside."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from made_timelines import US, convoy, quick

from headway.trace import svg
from headway.trace.timeline import HOLD, RUNNING, Span, Timeline, TimelineThread

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert('1')</script>&\"\x00\x0b\ud800\ufffe"


def parsed(drawn: str) -> ElementTree.Element:
    return ElementTree.fromstring(drawn)


def of_class(root: ElementTree.Element, tag: str, kind: str) -> list[ElementTree.Element]:
    return [each for each in root.iter(f"{SVG}{tag}") if each.get("class") == kind]


def titles(root: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}title")]


def test_each_wait_hold_and_arrow_is_there_with_its_time() -> None:
    root = parsed(svg.draw(convoy(), whole=True))
    found = titles(root)
    assert found.count("echo: wait of 5.09 ms") == 4
    assert found.count("compute-0: hold of 5.36 ms, ended forced") == 4
    # And once more where it is magnified.
    assert found.count("echo asks compute-0") == 4 + 1
    assert found.count("compute-0 to echo: 30 µs") == 4 + 1
    assert found.count("echo to compute-0: 35 µs") == 4 + 1


def test_bars_are_where_their_times_are() -> None:
    made = convoy()
    root = parsed(svg.draw(made, whole=True))
    lane = of_class(root, "rect", "lane")[0]
    left, width = float(lane.get("x", "")), float(lane.get("width", ""))
    lasts_ns = made.end_ns - made.begin_ns
    wait = next(bar for bar in of_class(root, "rect", "wait") if float(bar.get("width", "")) > 99)
    assert float(wait.get("x", "")) == pytest.approx(left + width * 300 * US / lasts_ns, abs=0.1)
    assert float(wait.get("width", "")) == pytest.approx(width * 5094 * US / lasts_ns, abs=0.1)


def test_a_hold_of_microseconds_can_be_seen_and_it_is_said_that_it_is_wider() -> None:
    drawn = svg.draw(convoy(cpu_threads=1), whole=True)
    slivers = [
        bar
        for bar in of_class(parsed(drawn), "rect", "hold")
        if bar.get("width") == "2" and float(bar.get("x", "")) > 100
    ]
    assert len(slivers) == 4
    assert "What lasts less than 55.6 µs is drawn that wide." in drawn


@pytest.mark.slow("draws twenty thousand handoffs")
def test_what_is_too_narrow_is_merged_and_that_is_said() -> None:
    small, large = svg.draw(quick(500), whole=True), svg.draw(quick(20_000), whole=True)
    # 40 times the spans, about the same file.
    assert len(large) < 1.2 * len(small) < 200_000
    assert "Where short spans crowd, they are as high as the share of the time" in large
    assert "60,000 arrows had no room." in large
    assert "20,001 holds, 1.4 s; " in " ".join(titles(parsed(large)))


@pytest.mark.parametrize("cpu_threads", [1, 7, 15, 39, 60])
def test_any_number_of_threads_fits(cpu_threads: int) -> None:
    root = parsed(svg.draw(convoy(6, cpu_threads)))
    names = [each.text or "" for each in of_class(root, "text", "name")]
    main = min(cpu_threads + 1, svg.MOST_LANES)
    assert main <= len(names) <= main + svg.MOST_MAGNIFIED
    assert names.count("echo") == 2
    height = float(root.get("height", ""))
    lowest = max(float(each.get("y", "")) for each in root.iter(f"{SVG}text"))
    assert height - 30 < lowest < height
    left_out = cpu_threads + 1 - main
    note = f"{left_out} threads that held and waited least are not drawn."
    assert (note in ElementTree.tostring(root, "unicode")) == bool(left_out)


def test_the_same_timeline_gives_the_same_bytes() -> None:
    assert svg.draw(convoy(50, 3)) == svg.draw(convoy(50, 3))


def test_whatever_names_are_the_file_is_whole_and_runs_nothing() -> None:
    made = convoy()
    made.title = HOSTILE
    made.threads[0] = TimelineThread(HOSTILE, HOSTILE)
    made.threads[1] = TimelineThread(HOSTILE, HOSTILE)
    drawn = svg.draw(made)
    drawn.encode()
    root = parsed(drawn)
    assert [each for each in root.iter() if each.tag == f"{SVG}script"] == []
    assert titles(root)[0].startswith("<script>alert('1')</script>&\"\\x00")


def test_it_needs_nothing_else() -> None:
    drawn = svg.draw(convoy(50))
    assert set(re.findall(r"https?://[^\"'\s]*", drawn)) == {"http://www.w3.org/2000/svg"}
    assert set(re.findall(r"url\(([^)]*)\)", drawn)) <= {
        f"#timeline-{each}" for each in ("wait", "forced-wait", "ask-head", "pass-head")
    }
    assert "@import" not in drawn


def test_several_can_stand_in_one_page() -> None:
    first, second = (set(re.findall(r' id="([^"]*)"', svg.draw(convoy(), name=n))) for n in "ab")
    assert len(first) == len(second) > 4
    assert not first & second


def test_it_is_described_in_words() -> None:
    root = parsed(svg.draw(convoy()))
    assert root.get("role") == "img"
    ids = (root.get("aria-labelledby") or "").split()
    title, description = (root.find(f"{SVG}*[@id='{each}']") for each in ids)
    assert title is not None
    assert title.text == "echo beside computing"
    assert description is not None
    assert "This is the convoy" in (description.text or "")
    assert "a forced drop" in (description.text or "")


def test_kinds_differ_by_more_than_colour() -> None:
    root = parsed(svg.draw(convoy()))
    fills = {
        kind: {each.get("fill") for each in of_class(root, "rect", kind)}
        for kind in ("hold", "wait", "forced-wait")
    }
    assert fills == {
        "hold": {None},
        "wait": {"url(#timeline-wait)"},
        "forced-wait": {"url(#timeline-forced-wait)"},
    }
    heights = {
        kind: max(float(each.get("height", "")) for each in of_class(root, "rect", kind))
        for kind in ("hold", "wait")
    }
    assert heights["wait"] < 0.7 * heights["hold"]


@pytest.mark.parametrize(
    "made",
    [
        Timeline("empty", [], 0),
        Timeline("silent", [TimelineThread("one", "main")], 1000),
        Timeline("brief", [TimelineThread("one", "main")], 5, spans=[Span(HOLD, 0, 3, 3)]),
        Timeline("free", [TimelineThread("one")], 1000, spans=[Span(RUNNING, 0, 0, 500)]),
    ],
    ids=lambda made: made.title,
)
def test_nothing_and_next_to_nothing_can_be_drawn(made: Timeline) -> None:
    assert made.title in titles(parsed(svg.draw(made)))
