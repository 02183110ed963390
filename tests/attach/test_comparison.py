"""`headway attach --compare`: what is made of turns, without a process."""

from __future__ import annotations

import math
from collections.abc import Sequence

import made_reports
import pytest

from headway.commands.attach_comparison import Comparison, order
from headway.report.model import GilReport
from headway.report.terminal import Style


def turn(light_waited_s: float, compute_held_s: float, name: str = "light") -> GilReport:
    threads = [
        made_reports.thread(name, [light_waited_s / 10] * 10),
        made_reports.thread("compute", [1e-5] * 10, [compute_held_s / 10] * 10),
        made_reports.thread("headway attach", [0.05] * 10),
    ]
    return made_reports.decoded(made_reports.report(threads, 1.0))


def comparison(pairs: Sequence[tuple[GilReport, GilReport]]) -> Comparison:
    """Of pairs of a turn without and one with the policy, put into their order."""
    made = Comparison("interval", "priority")
    for with_policy, (without, having) in zip(list(order(len(pairs)))[::2], pairs, strict=True):
        both = [("interval", without), ("priority", having)]
        for policy, report in reversed(both) if with_policy else both:
            made.add(policy, [report])
    return made


def test_pairs_begin_with_each_by_turns() -> None:
    assert list(order(3)) == [False, True, True, False, False, True]


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


def test_two_pairs_have_no_interval() -> None:
    found = comparison([(turn(0.9, 0.95), turn(0.03, 0.8))] * 2)
    effect = found.to_document()["threads"][0]["waited"]
    assert (effect["low"], effect["high"]) == (None, None)
    assert effect["ratio"] == pytest.approx(1 / 30)
    assert found.sentence().startswith("No thread clearly waits less")


def test_a_turn_without_its_pair_does_not_count() -> None:
    found = comparison([(turn(0.9, 0.95), turn(0.03, 0.8))] * 3)
    found.add("interval", [turn(0.1, 0.1)])
    assert found.pairs == 3
    assert len(found.to_document()["turns"]) == 6


def test_many_names_are_shown_by_their_pattern() -> None:
    found = comparison(
        [
            (turn(0.9, 0.95, f"worker-{2 * k}"), turn(0.1, 0.8, f"worker-{2 * k + 1}"))
            for k in range(6)
        ]
    )
    assert [row.name for row in found.rows()] == ["worker-*", "compute"]
    assert math.isfinite(found.rows()[0].waited.effect(0.05).high)


def test_a_process_that_neither_waits_nor_holds() -> None:
    found = comparison([(turn(0.0, 0.0), turn(0.0, 0.0))] * 3)
    assert found.rows() == []
    assert "priority changes nothing" in found.sentence()
