"""A profile as a drawing: what is in the file. How it looks in a browser is tested beside."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from made_profiles import MS, PROFILES, deep, empty, hostile, ordinary, profile_of, wide

from headway.profile import flame_graph, flame_tree, sides
from headway.profile.model import FORCED, Frame, Held, Profile

SVG = "{http://www.w3.org/2000/svg}"
Element = ElementTree.Element


@pytest.fixture(params=PROFILES.values(), ids=PROFILES)
def profile(request: pytest.FixtureRequest) -> Profile:
    made: Profile = request.param()
    return made


def parsed(profile: Profile) -> Element:
    return ElementTree.fromstring(flame_graph.draw(profile))


def calls(root: Element) -> dict[str, list[Element]]:
    """The calls of each side."""
    return {
        each.get("data-side", ""): [call for call in each if call.get("class") == "call"]
        for each in root.iter(f"{SVG}g")
        if each.get("class") == "side"
    }


def title(call: Element) -> str:
    return call.findtext(f"{SVG}title", "")


def box(call: Element) -> tuple[float, float, float]:
    rect = call.find(f"{SVG}rect")
    assert rect is not None
    return tuple(float(rect.get(name, "")) for name in ("x", "y", "width"))  # type: ignore[return-value]


def test_both_sides_have_the_time_waited(profile: Profile) -> None:
    for of_side in calls(parsed(profile)).values():
        assert int(of_side[0].get("data-ns", "")) == profile.waited_ns
        assert box(of_side[0])[2] == flame_graph.INNER


def test_calls_lie_below_their_callers_and_do_not_overlap(profile: Profile) -> None:
    for of_side in calls(parsed(profile)).values():
        callees: dict[int, list[Element]] = {}
        for place, call in enumerate(of_side[1:], start=1):
            parent = int(call.get("data-parent", ""))
            assert parent < place
            callees.setdefault(parent, []).append(call)
        for parent, group in callees.items():
            left, top, whole = box(of_side[parent])
            end = left
            for x, y, width in sorted(map(box, group)):
                assert y == top + flame_graph.CALL
                assert x == pytest.approx(end, abs=0.03)
                end = x + width
            assert end <= left + whole + 0.03


def test_titles_have_function_place_time_and_share() -> None:
    holders, waiters = calls(parsed(ordinary())).values()
    found = [title(call) for call in holders]
    assert found[0] == "all\n1.95 s, 100.0 % of all waiting"
    assert "crunch (/home/me/shop/jobs/prices.py:8)\n1.2 s, 61.5 % of all waiting" in found
    assert "(handoff)\n90 ms, 4.6 % of all waiting" in found
    assert "(not recorded)\n10 ms, 0.5 % of all waiting" in found
    assert (
        "serve_forever (/usr/lib/python3.13/socketserver.py:235)\n1.75 s, 89.7 % of all waiting\n"
        "without its callees: 150 ms, 7.7 %"
    ) in [title(call) for call in waiters]


def test_colours_go_by_file_and_the_legend_names_them() -> None:
    drawn = flame_graph.draw(ordinary())
    root = ElementTree.fromstring(drawn)
    kinds: dict[str, set[str]] = {}
    for of_side in calls(root).values():
        for call in of_side:
            place = re.search(r"\((/.*):\d+\)", title(call))
            rect = call.find(f"{SVG}rect")
            assert rect is not None
            kinds.setdefault(place[1] if place else "", set()).add(rect.get("class", ""))
    assert kinds.pop("") == {"root", "none"}
    assert all(len(each) == 1 for each in kinds.values())
    assert len(set.union(*kinds.values())) == len(kinds)
    assert kinds["/home/me/shop/jobs/prices.py"] == {"file-0"}
    assert ">jobs/prices.py</text>" in drawn
    many = flame_graph.draw(wide())
    assert re.search(r">\d+ other files</text>", many)
    classes = set(re.findall(r'class="(?:swatch )?(file-\d+)"', many))
    assert classes == {f"file-{number}" for number in range(9)}
    # Each class has a colour in both themes.
    assert all(len(re.findall(rf"\.{each} \{{ fill:", flame_graph.STYLE)) == 2 for each in classes)


def test_the_largest_calls_are_drawn_and_the_others_together() -> None:
    for made in (wide(), deep(stacks=500)):
        for of_side in calls(parsed(made)).values():
            small = [call for call in of_side if title(call).startswith("(")]
            assert 100 < len(of_side) <= 2 * flame_tree.MOST_NODES + 1
            assert len(small) > 10
            least = min(int(call.get("data-ns", "")) for call in of_side)
            assert least >= flame_tree.LEAST_SHARE * made.waited_ns
    few = calls(parsed(deep(stacks=7)))["holders"]
    # All calls that there are: the root, the common one, and the others of each stack.
    assert len(few) == 1 + 1 + 7 * 127


def test_a_tree_loses_no_time(profile: Profile) -> None:
    for charges in (sides.holders(profile), sides.waiters(profile)):
        root = flame_tree.grow(charges, Frame("all", "", 0))
        assert root.waited_ns == profile.waited_ns
        for node in flame_tree.walk(root):
            parts = node.self_ns + node.small_ns + sum(each.waited_ns for each in node.children)
            assert parts == node.waited_ns


def test_equally_small_calls_are_counted() -> None:
    held = [
        Held("main", (Frame(f"f{number}", "a.py", 1),), "t", "w", FORCED, 1, 1)
        for number in range(2000)
    ]
    titles = [title(call) for call in calls(parsed(profile_of(held, [])))["holders"]]
    assert titles[1] == "(2,000 small calls)\n2 µs, 100.0 % of all waiting"


def test_text_is_escaped_and_controls_nothing() -> None:
    drawn = flame_graph.draw(hostile())
    root = ElementTree.fromstring(drawn)
    assert len(list(root.iter(f"{SVG}script"))) == 1
    shown = (
        "<script>alert('1')</script>&\";]]>-->\\x00\\x0b\\r\\n\\t\\x85\\u2028\\udcff\\ud800\\ufffe"
    )
    assert any(title(call).startswith(shown) for call in calls(root)["holders"])
    assert "<script>alert" not in drawn
    allowed = {"\n"}
    assert [each for each in set(drawn) - allowed if not each.isprintable()] == []
    drawn.encode()


def test_an_empty_profile_says_so() -> None:
    root = parsed(empty())
    assert calls(root) == {}
    assert "No thread waited for a GIL." in [each.text for each in root.iter(f"{SVG}text")]


def test_the_description_names_what_is_charged_most() -> None:
    described = parsed(ordinary()).findtext(f"{SVG}desc", "")
    assert described.startswith("pid 4242, 3 s watched, 1.95 s waited by all threads. ")
    assert "charged most to crunch (/home/me/shop/jobs/prices.py:8) 61.5 %, <lambda>" in described


def test_equal_profiles_give_equal_files() -> None:
    assert flame_graph.draw(wide(500)) == flame_graph.draw(wide(500))


def test_a_legend_without_files_takes_no_room() -> None:
    nothing = profile_of([], [])
    assert nothing.waited_ns == 0
    only = profile_of([Held("main", (), "t", "w", FORCED, MS, 1)], [])
    assert 'class="swatch' not in flame_graph.draw(only)
