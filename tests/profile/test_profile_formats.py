"""A profile as pprof's protocol buffer, for speedscope, and as collapsed stacks."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from made_profiles import (
    HOSTILE,
    MS,
    PROFILES,
    RUN,
    deep,
    empty,
    hostile,
    ordinary,
    profile_of,
    two_gils,
)
from pprof_decoder import Decoded, decode

from headway.profile import collapsed, pprof, speedscope
from headway.profile.model import FORCED, Frame, Held, Profile, Totals

# As UTF-8 can have it.
WRITTEN = HOSTILE.encode("utf-8", "backslashreplace").decode()


@pytest.fixture(params=PROFILES.values(), ids=PROFILES)
def profile(request: pytest.FixtureRequest) -> Profile:
    made: Profile = request.param()
    return made


def total(decoded: Decoded, kind: str) -> int:
    return sum(sample.values[kind] for sample in decoded.samples)


def test_both_sides_in_pprof_sum_to_the_time_waited(profile: Profile) -> None:
    decoded = decode(pprof.encode(profile))
    assert total(decoded, "delay_holders") == profile.waited_ns
    assert total(decoded, "delay_waiters") == profile.waited_ns
    assert total(decoded, "readings_holders") == sum(each.readings for each in profile.holders)
    assert total(decoded, "readings_waiters") == sum(each.readings for each in profile.waiters)


def test_pprof_has_each_charge_with_its_stack_and_labels() -> None:
    profile = ordinary()
    decoded = decode(pprof.encode(profile))
    found = [
        (sample.stack, sample.values["delay_holders"], sample.labels)
        for sample in decoded.samples
        if sample.labels["side"] == "holders" and len(sample.labels) == 5
    ]
    assert found == [
        (
            each.stack,
            each.waited_ns,
            {
                "side": "holders",
                "gil": "main",
                "thread": each.thread,
                "waiter": each.waiter,
                "end": each.end,
            },
        )
        for each in profile.holders
    ]
    without = {
        sample.stack[0][0]: sample.values["delay_holders"]
        for sample in decoded.samples
        if "thread" not in sample.labels
    }
    assert without == {"(handoff)": 90 * MS, "(not recorded)": 10 * MS}


def test_pprof_describes_the_profile() -> None:
    profile = ordinary()
    decoded = decode(pprof.encode(profile))
    assert decoded.sample_types[:2] == [
        ("delay_holders", "nanoseconds"),
        ("delay_waiters", "nanoseconds"),
    ]
    assert decoded.default == "delay_holders"
    assert decoded.comments[:2] == ["program: app.py", "pid: 4242"]
    assert decoded.comments[2].startswith("written by: headway/")
    assert (decoded.time_ns, decoded.duration_ns) == (profile.began_ns, profile.wall_ns)


def test_pprof_keeps_hostile_names() -> None:
    samples = decode(pprof.encode(hostile())).samples
    first = samples[0]
    assert first.stack == ((WRITTEN, WRITTEN, 1), ("", "", 0), (WRITTEN, "", -1))
    assert first.labels["thread"] == first.labels["waiter"] == WRITTEN
    assert samples[1].stack == (("(no Python code)", "", 0),)


def read(profile: Profile) -> dict[str, object]:
    parsed: dict[str, object] = json.loads("".join(speedscope.encode(profile)))
    return parsed


def test_both_sides_in_speedscope_sum_to_the_time_waited(profile: Profile) -> None:
    parsed = read(profile)
    weights: Counter[str] = Counter()
    for each in parsed["profiles"]:  # type: ignore[attr-defined]
        assert (each["type"], each["unit"]) == ("sampled", "nanoseconds")
        assert len(each["samples"]) == len(each["weights"])
        assert (each["startValue"], each["endValue"]) == (0, sum(each["weights"]))
        weights[each["name"].split()[0]] += each["endValue"]
    expected = dict.fromkeys(("holders", "waiters"), profile.waited_ns) if profile.totals else {}
    assert weights == expected


def test_speedscope_has_each_stack_once_with_the_outermost_call_first() -> None:
    parsed = read(ordinary())
    frames = parsed["shared"]["frames"]  # type: ignore[index]
    holders, waiters = parsed["profiles"]  # type: ignore[misc]
    assert (holders["name"], waiters["name"]) == ("holders of the GIL", "waiters for the GIL")
    found = {
        tuple(frames[number]["name"] for number in sample): weight
        for sample, weight in zip(holders["samples"], holders["weights"], strict=True)
    }
    assert len(found) == len(holders["samples"])
    assert found == {
        ("run", "work", "crunch"): 1_200 * MS,
        ("run", "work", "<lambda>"): 400 * MS,
        ("run", "serve_forever", "do_GET", "dumps"): 150 * MS,
        ("<module>",): 100 * MS,
        ("(handoff)",): 90 * MS,
        ("(not recorded)",): 10 * MS,
    }
    assert {"name": "run", "file": RUN.file, "line": RUN.line} in frames
    assert {"name": "(handoff)"} in frames
    assert parsed["name"] == "app.py (pid 4242)"


def test_speedscope_has_two_profiles_for_each_gil() -> None:
    names = [each["name"] for each in read(two_gils())["profiles"]]  # type: ignore[attr-defined]
    assert names == [
        "holders of the GIL main",
        "waiters for the GIL main",
        "holders of the GIL worker",
        "waiters for the GIL worker",
    ]


def test_speedscope_has_gils_of_one_name_once() -> None:
    profile = two_gils()
    profile.totals.append(Totals("worker", 5, 5, 0, 5))
    ends = [each["endValue"] for each in read(profile)["profiles"]]  # type: ignore[attr-defined]
    assert ends == [1_950 * MS, 1_950 * MS, 80 * MS + 5, 80 * MS + 5]


def test_speedscope_keeps_hostile_names() -> None:
    text = "".join(speedscope.encode(hostile()))
    assert text.isascii()
    assert {"name": WRITTEN, "file": WRITTEN, "line": 1} in json.loads(text)["shared"]["frames"]


def parsed_lines(text: str) -> list[tuple[list[str], int]]:
    """As flamegraph.pl reads them: all before the last space is the stack."""
    parts = [line.rpartition(" ") for line in text.splitlines()]
    return [(stack.split(";"), int(figure)) for stack, _, figure in parts]


def test_collapsed_stacks_sum_to_the_time_waited(profile: Profile) -> None:
    found = parsed_lines(collapsed.write(profile))
    figures = [figure for _, figure in found]
    assert sum(figures) == profile.waited_ns
    assert figures == sorted(figures, reverse=True)
    assert 0 not in figures


def test_collapsed_stacks_are_merged_by_what_is_written() -> None:
    assert collapsed.write(ordinary()).splitlines()[-4:] == [
        "run (/usr/lib/python3.13/threading.py:992);"
        "serve_forever (/usr/lib/python3.13/socketserver.py:235);"
        "do_GET (/home/me/shop/pages.py:61);"
        "dumps (/usr/lib/python3.13/json/__init__.py:231) 150000000",
        "<module> (/home/me/shop/app.py:40) 100000000",
        "(handoff) 90000000",
        "(not recorded) 10000000",
    ]
    # Names that differ in what is replaced are the same text, and one line.
    twins = [
        Held("main", (Frame(name, "", 0),), "a", "b", FORCED, 3, 1)
        for name in ("x;y z", "x:y\nz", "x:y\u2028z")
    ]
    assert collapsed.write(profile_of(twins, [])) == "x:y z 9\n"


def test_collapsed_stacks_have_as_many_frames_as_the_stacks() -> None:
    assert {len(stack) for stack, _ in parsed_lines(collapsed.write(deep()))} == {128}
    assert sorted(len(stack) for stack, _ in parsed_lines(collapsed.write(hostile()))) == [1, 3]
    assert collapsed.write(empty()) == ""
