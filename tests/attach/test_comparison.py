"""`headway attach --compare`: what is made of turns, without a process."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headway.commands.attach_comparison import Comparison, Figures, ProcessTurn, order
from headway.report.terminal import Style

PID = 4242


def turn(waited_s: float, held_s: float, name: str = "light", **more: float) -> ProcessTurn:
    """`more` are further threads that wait."""
    threads = {(name, "light-*"): Figures(waited_s, 0.001, 10)}
    threads["compute", "compute"] = Figures(0.0, held_s, 10)
    for each, waits_s in more.items():
        threads[each, each] = Figures(waits_s, 0.0, 10)
    return ProcessTurn(1.0, threads)


def comparison(pairs: Sequence[tuple[ProcessTurn, ProcessTurn]]) -> Comparison:
    """Of pairs of a turn without and one with the policy, put into their order."""
    made = Comparison("interval", "priority")
    comes_first = order(len(pairs))[::2]
    for with_policy, (before, after) in zip(comes_first, pairs, strict=False):
        both = [("interval", before), ("priority", after)]
        for policy, found in reversed(both) if with_policy else both:
            made.add(policy, {PID: found})
    return made


def test_a_round_has_each_twice_and_its_second_pair_is_turned() -> None:
    assert order(2) == [False, True, True, False] * 2


def test_who_waits_less_and_who_pays() -> None:
    found = comparison([(turn(0.9, 0.95), turn(0.03 + k / 1000, 0.8)) for k in range(4)])
    assert found.sentence() == (
        "Under priority, light waited 31.5 ms of each second instead of 900 ms. compute held the "
        "GIL for 800 ms of each second instead of 950 ms."
    )
    light, compute = found.rows()
    assert (light.name, compute.name) == ("light", "compute")
    assert light.waited.effect(0.05).ratio == pytest.approx(0.035, rel=0.01)
    assert "0.03 [0.0" in "\n".join(found.lines(Style()))


def test_no_clear_difference_is_said() -> None:
    found = comparison([(turn(0.5, 0.9), turn(0.5 * 1.3 ** (-1) ** k, 0.9)) for k in range(4)])
    assert found.sentence().startswith("No thread clearly waits less under priority")
    assert "compute held" not in found.sentence()


def test_waits_that_end_altogether_are_a_difference() -> None:
    found = comparison([(turn(0.8, 0.9), turn(0.0, 0.9))] * 4)
    assert "light waited 0 s of each second instead of 800 ms" in found.sentence()


def test_a_thread_whose_waits_vary_hides_no_other() -> None:
    noise = (0.001, 0.9, 0.002, 0.8)
    found = comparison(
        [(turn(0.2, 0.9, noisy=0.9), turn(0.01, 0.9, noisy=noise[k])) for k in range(4)]
    )
    assert "light waited 10 ms of each second instead of 200 ms" in found.sentence()


def test_a_thread_that_waits_more_is_told() -> None:
    found = comparison([(turn(0.1, 0.9), turn(0.4, 0.9))] * 4)
    assert found.sentence() == (
        "No thread clearly waits less under priority than under interval (compute waited 0 s of "
        "each second instead of 0 s). But light waited 400 ms of each second instead of 100 ms."
    )


def test_two_pairs_are_too_few() -> None:
    found = comparison([(turn(0.9, 0.95), turn(0.03, 0.8))] * 2)
    effect = found.to_document()["threads"][0]["waited"]
    assert (effect["low"], effect["high"]) == (None, None)
    assert effect["ratio"] == pytest.approx(1 / 30)
    assert found.sentence().startswith("Too few turns to tell (light waited 30 ms ")


def test_a_turn_without_its_pair_does_not_count() -> None:
    found = comparison([(turn(0.9, 0.95), turn(0.03, 0.8))] * 4)
    found.add("interval", {PID: turn(0.1, 0.1)})
    assert found.pairs == 4
    assert len(found.to_document()["turns"]) == 8


def test_of_a_process_that_ends_only_whole_pairs_count() -> None:
    found = Comparison("interval", "priority")
    found.add("interval", {1: turn(0.5, 0.5), 2: turn(0.5, 0.5)})
    found.add("priority", {1: turn(0.1, 0.5)})
    (before, _) = found.turns()
    assert before.threads["light"].waited_s == 0.5
    assert found.to_document()["pids"] == [1, 2]


def test_many_names_are_shown_by_their_group() -> None:
    found = comparison(
        [(turn(0.9, 0.9, f"light-{2 * k}"), turn(0.1, 0.8, f"light-{2 * k + 1}")) for k in range(6)]
    )
    assert [row.name for row in found.rows()] == ["light-*", "compute"]


def test_a_process_that_neither_waits_nor_holds() -> None:
    nothing = ProcessTurn(1.0, {("light", "light"): Figures(0.0, 0.0, 1)})
    found = comparison([(nothing, nothing)] * 4)
    assert found.rows() == []
    assert "priority changes nothing" in found.sentence()
