"""Rounds, standings, goals with floors, candidates, and what is said of them."""

import argparse
import itertools
import math
import random
import re
from collections.abc import Sequence

import pytest
from made_experiments import CONTROL, DEADLINE, PRIORITY, experiment

from headway.errors import CommandError
from headway.json_shape import find_problem
from headway.options import argument
from headway.report.terminal import Style
from headway.tune import text
from headway.tune.connection import Counts
from headway.tune.document import TuneDocument, to_document
from headway.tune.fragment import toml_fragment
from headway.tune.goals import OF_SERVER, P99, THROUGHPUT, Figures, Goal, GoalKind
from headway.tune.server import harm
from headway.tune.setting import Excluded, Setting, Shape, candidates
from headway.tune.trials import Block, Measured, Result, Standing, Trials


def trials_of(
    figures_of: dict[Setting, Figures],
    goal: Goal,
    cut: str = "",
    rounds: int = 20,
    has_failed: bool = False,
    excluded: Sequence[Excluded] = (),
) -> Trials:
    """With little noise. Blocks of a setting without figures are cut."""
    chance, clock = random.Random(1), [0.0]

    def measure(setting: Setting, control: Figures | None) -> Measured:
        clock[0] += 1
        figures = figures_of[setting]
        noisy = {key: value * chance.uniform(0.99, 1.01) for key, value in figures.items()}
        return Measured(noisy, "" if figures else cut, has_failed and not figures)

    control, *others = figures_of
    return Trials(
        control,
        others,
        goal,
        OF_SERVER,
        margin=0.1,
        for_s=rounds * len(figures_of),
        measure=measure,
        progress=lambda _: None,
        chance=chance,
        clock=lambda: clock[0],
        excluded=excluded,
    )


def figures(p99_s: float, per_s: float = 100.0) -> Figures:
    return {P99.key: p99_s, THROUGHPUT.key: per_s}


def test_every_round_has_the_control_and_the_open_candidates_in_random_order() -> None:
    trials = experiment(3, {CONTROL: 1, PRIORITY: 1, DEADLINE: 4}, rounds=30)
    trials.run()
    rounds = [
        [block.setting for block in trials.blocks if block.round == number]
        for number in range(1, trials.blocks[-1].round)
    ]
    assert all(CONTROL in each and len(set(each)) == len(each) for each in rounds)
    assert {each[0] for each in rounds} >= {CONTROL, PRIORITY}
    assert [block.setting for block in trials.blocks if block.round == 0] == [CONTROL]
    # The one that is out has no more blocks.
    assert DEADLINE in rounds[0]
    assert DEADLINE not in rounds[-1]


def test_the_winner_is_the_best_of_the_better() -> None:
    trials = trials_of(
        {CONTROL: figures(1.0), PRIORITY: figures(0.5), DEADLINE: figures(0.1)}, Goal(P99)
    )
    trials.run()
    outcome = trials.outcome()
    assert outcome.result is Result.WINNER
    assert outcome.winner is not None
    assert outcome.winner.setting == DEADLINE
    advice = text.advice(trials)
    assert advice.startswith("deadline at 5 ms: p99 0.1")
    assert "no other setting" in advice


def test_a_floor_keeps_a_candidate_from_winning() -> None:
    goal = GoalKind(OF_SERVER).parse("p99, throughput >= 0.95")
    trials = trials_of(
        {CONTROL: figures(1.0), PRIORITY: figures(0.1, 80), DEADLINE: figures(0.5)}, goal
    )
    trials.run()
    outcome = trials.outcome()
    assert outcome.winner is not None
    assert outcome.winner.setting == DEADLINE
    assert outcome.ratings[0].standing is Standing.NOT_BETTER


@pytest.mark.parametrize("has_failed", [True, False])
def test_a_candidate_that_fails_once_or_hurts_twice_is_out(has_failed: bool) -> None:
    settings = {CONTROL: figures(1.0), PRIORITY: {}}
    trials = trials_of(settings, Goal(P99), "p99 is 9 s", has_failed=has_failed)
    trials.run()
    assert trials.outcome().result is Result.EQUIVALENT
    assert sum(each.setting == PRIORITY for each in trials.blocks) == (1 if has_failed else 2)
    assert "p99 is 9 s" in text.advice(trials)


def test_a_candidate_that_hurt_once_can_win() -> None:
    """The machine may have stalled."""
    trials = trials_of({CONTROL: figures(1.0), PRIORITY: figures(0.5)}, Goal(P99))
    trials.blocks.append(Block(1, PRIORITY, 0.0, {}, "p99 is 9 s"))
    trials.run()
    winner = trials.outcome().winner
    assert winner is not None
    assert winner.setting == PRIORITY
    assert text.advice(trials).endswith("Without a block that ended early: p99 is 9 s.")


def test_a_candidate_is_measured_beside_the_highest_figures_of_the_control() -> None:
    given: list[Figures | None] = []
    # The first is of the warm-up.
    values = iter([9.0, 1.0, 3.0, 2.0, 2.0])

    def measure(setting: Setting, control: Figures | None) -> Measured:
        if setting == PRIORITY:
            given.append(control)
            return Measured(figures(1.0))
        return Measured(figures(next(values)))

    clock = itertools.count()
    trials = Trials(
        CONTROL,
        [PRIORITY],
        Goal(P99),
        OF_SERVER,
        margin=0.1,
        for_s=20,
        measure=measure,
        progress=lambda _: None,
        chance=random.Random(1),
        clock=lambda: float(next(clock)),
    )
    trials.run()
    highest = [each[P99.key] for each in given if each]
    if highest[0] == 9.0:
        # The candidate came before the control in the first round.
        highest.pop(0)
    assert highest[0] == 1.0
    assert highest[-1] == 3.0
    assert highest == sorted(highest)


def response(slow: int, number: int) -> Counts:
    """Requests of 2 ms, and some of 64 ms."""
    buckets = [(1 << 21, number - slow), (1 << 26, slow)]
    length = {"count": number, "sum_ns": 1, "min_ns": None, "max_ns": None, "buckets": buckets}
    return {"response": length, "errors": 0, "cpu_ns": 1, "is_whole": True}


@pytest.mark.parametrize(
    ("slow", "number", "hurts"),
    [(3, 90, ""), (4, 100, ""), (6, 100, "p95"), (6, 1000, ""), (12, 1000, "p99")],
)
def test_a_block_ends_early_only_if_at_least_five_requests_are_slow(
    slow: int, number: int, hurts: str
) -> None:
    counts = response(slow, number)
    control = {P99.key: 0.004, "errors": 0.0}
    why = harm(counts, control, 2.0)
    assert why.startswith(hurts)
    assert bool(why) == bool(hurts)


def test_an_experiment_that_was_cut_short_is_undecided() -> None:
    trials = trials_of({CONTROL: figures(1.0), PRIORITY: figures(0.1)}, Goal(P99), rounds=2)
    trials.run()
    assert trials.outcome().result is Result.UNDECIDED
    assert text.advice(trials).startswith("Undecided after 4 s: priority at 5 ms may")


def test_the_document_has_its_declared_shape() -> None:
    for rounds in (0, 1, 20):
        trials = trials_of({CONTROL: figures(1.0), PRIORITY: {}}, Goal(P99), "why", rounds)
        trials.run()
        document = to_document(trials, text.advice(trials), 0.95)
        assert find_problem(document, TuneDocument) == ""
        assert text.report(trials, Style())


def test_the_document_names_the_winner() -> None:
    trials = trials_of({CONTROL: figures(1.0), PRIORITY: figures(0.1)}, Goal(P99))
    trials.run()
    document = to_document(trials, text.advice(trials), 0.95)
    assert document["result"] == "winner"
    assert document["winner"] == {"policy": "priority", "switch_interval_s": 0.005}
    effect = document["candidates"][0]["effects"]["p99_s"]
    assert effect["low"] is not None
    assert effect["high"] is not None
    assert effect["low"] < 0.1 < effect["high"] < 0.12
    assert len(document["blocks"]) == len(trials.blocks)


@pytest.mark.parametrize(
    "goal", ["", "p98", "p99,", "p99, throughput", "p99, throughput >= 0", "p99, cpu >= 2"]
)
def test_another_goal_is_refused(goal: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="allowed: one of p99, p50, throughput"):
        argument(GoalKind(OF_SERVER))(goal)


def test_candidates_are_all_other_combinations() -> None:
    assert len(candidates(CONTROL)) == 5
    assert len(candidates(Setting("priority", 0.001))) == 8
    assert candidates(CONTROL, ["interval"], [0.005]) == []
    assert not math.isnan(candidates(CONTROL, None, [0.1])[0].switch_interval_s)


def test_the_warm_up_does_not_count() -> None:
    clock = itertools.count()
    values = iter([9.0] + [1.0] * 100)
    trials = Trials(
        CONTROL,
        [PRIORITY],
        Goal(P99),
        OF_SERVER,
        margin=0.1,
        for_s=100,
        measure=lambda setting, _: Measured(figures(next(values))),
        progress=lambda _: None,
        chance=random.Random(1),
        clock=lambda: float(next(clock)),
    )
    trials.run()
    assert trials.blocks[0].figures[P99.key] == 9.0
    (rating,) = trials.ratings()
    assert rating.standing is Standing.EQUIVALENT
    assert rating.effects[P99].ratio == 1.0
    assert len(trials.blocks) == 1 + sum(
        len(trials.blocks_of(each)) for each in (CONTROL, PRIORITY)
    )


def test_each_server_has_a_warm_up() -> None:
    small, large = Shape(threads=1), Shape(threads=8)
    present, other = CONTROL._replace(shape=small), PRIORITY._replace(shape=small)
    trials = experiment(
        1,
        {present: 1, other: 1, CONTROL._replace(shape=large): 1, PRIORITY._replace(shape=large): 1},
    )
    trials.run()
    first = [block.setting for block in trials.blocks if block.round == 0]
    assert first == [present, CONTROL._replace(shape=large)]


def test_a_control_that_fails_ends_the_experiment_before_any_candidate() -> None:
    tried = []

    def measure(setting: Setting, _: Figures | None) -> Measured:
        tried.append(setting)
        return Measured({}, "exit status 1")

    trials = experiment(1, {CONTROL: 1, PRIORITY: 1})
    trials._measure = measure
    with pytest.raises(CommandError, match="exit status 1"):
        trials.run()
    assert tried == [CONTROL]


def test_with_shapes_only_what_is_named_varies() -> None:
    present = CONTROL._replace(shape=Shape(threads=4))
    shapes = [Shape(threads=4), Shape(threads=8)]
    assert list(map(str, candidates(present, shapes=shapes))) == ["interval at 5 ms (threads = 8)"]
    found = candidates(present, ["interval", "priority"], [0.005, 0.001], shapes)
    assert len(found) == 7
    assert present not in found


def test_results_name_the_shape() -> None:
    present, best = (CONTROL._replace(shape=Shape(2, count)) for count in (1, 8))
    why = "it can use 4 cores; --cores allows 2"
    trials = trials_of(
        {present: figures(1.0), best: figures(0.1)},
        Goal(P99),
        excluded=[Excluded(Shape(4, 8), why)],
    )
    trials.run()
    advice = text.advice(trials)
    assert advice.startswith("interval at 5 ms (processes = 2, threads = 8): p99 0.1")
    assert "of that of interval at 5 ms (processes = 2, threads = 1)" in advice
    drawn = "\n".join(text.report(trials, Style(120)))
    assert re.search(r"setting +processes +threads +blocks", drawn)
    assert re.search(r"interval at 5 ms +2 +8 +\d+ +better", drawn)
    assert f"Excluded: processes = 4, threads = 8 ({why})." in " ".join(drawn.split())
    document = to_document(trials, advice, 0.95)
    assert find_problem(document, TuneDocument) == ""
    assert document["winner"] == {
        "policy": "interval",
        "switch_interval_s": 0.005,
        "processes": 2,
        "threads": 8,
    }
    assert document["excluded"] == [{"shape": {"processes": 4, "threads": 8}, "why": why}]
    assert toml_fragment("main", best) == (
        '[process-group.main]\npolicy = "interval"\nswitch-interval = 0.005\n'
        "processes = 2\nthreads = 8"
    )


def test_without_shapes_nothing_of_them_is_shown() -> None:
    trials = trials_of({CONTROL: figures(1.0), PRIORITY: figures(0.1)}, Goal(P99))
    trials.run()
    document = to_document(trials, text.advice(trials), 0.95)
    assert document["control"].keys() == {"policy", "switch_interval_s"}
    assert "excluded" not in document
    assert text.effects(trials).headings[:3] == ["setting", "blocks", "is"]
    assert text.effects(trials).note == ""
