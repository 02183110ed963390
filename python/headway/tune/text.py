"""An experiment with settings as text: a table, and one sentence of advice."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from headway.output import drawing
from headway.output.table import Cell, Table
from headway.report.terminal import Style
from headway.tune.goals import Figure
from headway.tune.setting import Setting
from headway.tune.trials import LEVEL, Outcome, Rating, Result, Standing, Trials


def report(trials: Trials, style: Style) -> list[str]:
    """Line by line."""
    drawn = drawing.draw(effects(trials), style)
    return ["", drawn, "", *drawing.wrap(advice(trials), style)]


def effects(trials: Trials) -> Table:
    """The candidates beside the control, whose figures are medians."""
    names = ["setting", *trials.control.shape.varied(), "blocks", "is"]
    return Table(
        f"Ratios to {trials.control}, with intervals of {1 - LEVEL:.0%} for all together",
        [*names, *(each.name for each in trials.figures)],
        [_control(trials), *(_row(trials, each) for each in trials.outcome().ratings)],
        len(names),
        _excluded(trials),
    )


def _excluded(trials: Trials) -> str:
    reasons = "; ".join(f"{each.shape} ({each.why})" for each in trials.excluded)
    return f"Excluded: {reasons}." if reasons else ""


def _control(trials: Trials) -> list[Cell]:
    blocks = trials.blocks_of(trials.control)
    texts = []
    for figure in trials.figures:
        values = [each.figures[figure.key] for each in blocks if figure.key in each.figures]
        texts.append(figure.show(median(values)) if values else "-")
    return _cells(trials, trials.control, "control", texts)


def _row(trials: Trials, rating: Rating) -> list[Cell]:
    texts = [str(rating.effects[figure]) for figure in trials.figures]
    return _cells(trials, rating.setting, rating.standing.value, texts)


def _cells(trials: Trials, setting: Setting, standing: str, figures: Sequence[str]) -> list[Cell]:
    blocks = len(trials.blocks_of(setting))
    shape = map(str, setting.shape.varied().values())
    return [Cell(text=each) for each in (setting.of_gil, *shape, str(blocks), standing, *figures)]


def advice(trials: Trials) -> str:
    """One sentence, and how sure it is."""
    outcome = trials.outcome()
    if outcome.winner is not None:
        return _advise_winner(trials, outcome, outcome.winner)
    out = [each.setting for each in outcome.ratings if each.standing is Standing.NOT_BETTER]
    cut = next((each for each in trials.blocks if each.cut and each.setting in out), None)
    why = "" if cut is None else f" ({cut.setting}: {cut.cut})"
    margin = f"{trials.margin:.0%}"
    if outcome.result is Result.EQUIVALENT:
        return (
            f"Keep {trials.control}: no other setting has a {trials.goal.figure.name} better by "
            f"more than {margin}{why}."
        )
    wanting = [str(each.setting) for each in outcome.ratings if each.standing is Standing.OPEN]
    return (
        f"Undecided after {trials.elapsed_s:.0f} s: {', '.join(wanting)} may have a "
        f"{trials.goal.figure.name} better by more than {margin}; a longer --for would tell{why}."
    )


def _advise_winner(trials: Trials, outcome: Outcome, winner: Rating) -> str:
    def ratio(figure: Figure) -> str:
        return f"{figure.name} {winner.effects[figure]}"

    goal, *rest = [trials.goal.figure, *(f for f in trials.figures if f != trials.goal.figure)]
    others = [
        each for each in outcome.ratings if each is not winner and _overlap(each, winner, goal)
    ]
    alike = ", ".join(str(each.setting) for each in others)
    end = f"{alike} may be as good" if others else "no other setting is as good"
    figures = ", ".join((f"{ratio(goal)} of that of {trials.control}", *map(ratio, rest)))
    cut = next((each.cut for each in trials.blocks_of(winner.setting) if each.cut), None)
    left_out = "" if cut is None else f" Without a block that ended early: {cut}."
    return f"{winner.setting}: {figures}; {end}.{left_out}"


def _overlap(rating: Rating, winner: Rating, figure: Figure) -> bool:
    """Whether the intervals of two candidates that are not out have ratios in common."""
    one, other = rating.effects[figure], winner.effects[figure]
    return rating.standing in (Standing.BETTER, Standing.OPEN) and (
        one.low <= other.high and other.low <= one.high
    )
