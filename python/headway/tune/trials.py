"""The rounds of an experiment: the control and every candidate that is still open, in random order.

A block of each server comes before them, the control's first. It warms up caches, and shows whether
the control works at all. A candidate that is settled has no more blocks. This module knows neither
what a block is nor how results are shown. `outcome()` can be asked at any moment, however the
rounds ended.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from headway.errors import CommandError
from headway.tune.confidence import Effect, effect
from headway.tune.goals import Figure, Figures, Goal, log_ratio
from headway.tune.setting import Excluded, Setting

LEVEL = 0.05


class Standing(Enum):
    """The state of knowledge about a candidate beside the control."""

    # The whole interval of its gain is beyond the margin, and the floors are kept.
    BETTER = "better"
    # The whole interval lies inside the margin.
    EQUIVALENT = "equivalent"
    # It cannot win by the margin, breaks a floor, hurt in two blocks, or failed in one.
    NOT_BETTER = "not better"
    OPEN = "open"


class Result(Enum):
    WINNER = "winner"
    # No candidate is better by the margin.
    EQUIVALENT = "equivalent"
    UNDECIDED = "undecided"


# The number of the round that is not counted.
WARM_UP = 0


class Block(NamedTuple):
    """One measurement. `cut` says why a block was ended early or failed; it has no figures then."""

    round: int
    setting: Setting
    began_s: float
    figures: Figures
    cut: str = ""
    has_failed: bool = False


class Rating(NamedTuple):
    """A candidate: its effects by figure, and what they mean for the goal."""

    setting: Setting
    standing: Standing
    effects: dict[Figure, Effect]


class Outcome(NamedTuple):
    result: Result
    winner: Rating | None
    ratings: list[Rating]


class Measured(NamedTuple):
    """The figures of a block. It was cut because the setting hurt, or because it has failed. A
    machine that stalls hurts as well, so one such block is no proof against the setting."""

    figures: Figures
    cut: str = ""
    has_failed: bool = False


class Trials:
    """`measure` measures one block of a setting. For a candidate it is also given the highest
    figures that blocks of the control have had, once there are any. `excluded` is only shown."""

    def __init__(
        self,
        control: Setting,
        candidates: Sequence[Setting],
        goal: Goal,
        figures: Sequence[Figure],
        *,
        margin: float,
        for_s: float,
        measure: Callable[[Setting, Figures | None], Measured],
        progress: Callable[[str], None],
        chance: random.Random,
        clock: Callable[[], float] = time.monotonic,
        excluded: Sequence[Excluded] = (),
    ) -> None:
        self.control = control
        self.candidates = list(candidates)
        self.excluded = list(excluded)
        self.goal = goal
        self.figures = list(figures)
        self.margin = margin
        self.for_s = for_s
        self.blocks: list[Block] = []
        self._measure = measure
        self._progress = progress
        self._chance = chance
        self._clock = clock
        self._began_s = clock()
        # The chance to be wrong about any candidate at all is shared by all comparisons.
        self.level = LEVEL / (len(self.candidates) * (1 + len(goal.floors)))

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._began_s

    def run(self) -> None:
        """Until there is a result, or the time is over. Raises CommandError if a block of the
        control fails."""
        settings, number = self._warm_ups(), WARM_UP
        while settings:
            for setting in settings:
                if self.elapsed_s >= self.for_s:
                    return
                self._progress(self._describe(number, setting))
                began_s = self.elapsed_s
                is_control = setting == self.control
                is_judged = not is_control and number != WARM_UP
                highest = self._highest_of_control() if is_judged else None
                found = self._measure(setting, highest)
                if found.cut and is_control:
                    raise CommandError(f"{setting}: {found.cut}")
                self.blocks.append(Block(number, setting, began_s, *found))
            waiting = self._waiting()
            settings = [self.control, *waiting] if waiting else []
            self._chance.shuffle(settings)
            number += 1

    def _warm_ups(self) -> list[Setting]:
        """The control, and a candidate of each other shape, which has a server of its own."""
        first_of = {self.control.shape: self.control}
        for each in self.candidates:
            first_of.setdefault(each.shape, each)
        return list(first_of.values())

    def blocks_of(self, setting: Setting) -> list[Block]:
        """Those of the rounds."""
        return [each for each in self.blocks if each.setting == setting and each.round != WARM_UP]

    def outcome(self) -> Outcome:
        ratings = self.ratings()
        best = [each for each in ratings if each.standing is Standing.BETTER]
        if best:
            return Outcome(Result.WINNER, min(best, key=self._rank), ratings)
        if any(each.standing is Standing.OPEN for each in ratings):
            return Outcome(Result.UNDECIDED, None, ratings)
        return Outcome(Result.EQUIVALENT, None, ratings)

    def _waiting(self) -> list[Setting]:
        """The candidates that need more blocks: all that are open, until one is better and none of
        these looks better than it does."""
        ratings = self.ratings()
        waiting = [each for each in ratings if each.standing is Standing.OPEN]
        best = [self._rank(each) for each in ratings if each.standing is Standing.BETTER]
        if best and not any(self._rank(each) < min(best) for each in waiting):
            return []
        return [each.setting for each in waiting]

    def ratings(self) -> list[Rating]:
        return [self._rating(each) for each in self.candidates]

    def _rating(self, setting: Setting) -> Rating:
        own = {each.round: each for each in self.blocks_of(setting)}
        control = {each.round: each for each in self.blocks_of(self.control)}
        pairs = [(own[each].figures, control[each].figures) for each in own if each in control]
        effects = {}
        for figure in self.figures:
            ratios = [log_ratio(figure, *pair) for pair in pairs]
            known = [each for each in ratios if each is not None]
            effects[figure] = effect(known, self.level)
        cut = [each for each in self.blocks if each.setting == setting and each.cut]
        is_out = len(cut) > 1 or any(each.has_failed for each in cut)
        standing = Standing.NOT_BETTER if is_out else self._standing(effects)
        return Rating(setting, standing, effects)

    def _standing(self, effects: dict[Figure, Effect]) -> Standing:
        low, high = gain(self.goal.figure, effects[self.goal.figure])
        least = 1 + self.margin
        floors = [(gain(figure, effects[figure]), share) for figure, share in self.goal.floors]
        if high < least or any(upper < share for (_, upper), share in floors):
            inside = 1 / least < low and high < least
            return Standing.EQUIVALENT if inside else Standing.NOT_BETTER
        if low > least and all(lower >= share for (lower, _), share in floors):
            return Standing.BETTER
        return Standing.OPEN

    def _rank(self, rating: Rating) -> float:
        figure = self.goal.figure
        ratio = rating.effects[figure].ratio
        return ratio if figure.smaller_is_better else -ratio

    def _highest_of_control(self) -> Figures | None:
        highest: dict[str, float] = {}
        for block in self.blocks_of(self.control) or self.blocks[:1]:
            for name, value in block.figures.items():
                highest[name] = max(value, highest.get(name, value))
        return highest or None

    def _describe(self, number: int, setting: Setting) -> str:
        figure = self.goal.figure
        so_far = ", ".join(
            f"{each.setting} {each.effects[figure].ratio:.2f}"
            for each in self.ratings()
            if not math.isnan(each.effects[figure].ratio)
        )
        left_s = max(self.for_s - self.elapsed_s, 0.0)
        place = f"round {number}" if number != WARM_UP else "warm-up"
        text = f"{place}, {left_s:.0f} s left at most, {setting}"
        return f"{text}; {figure.name} so far: {so_far}" if so_far else text


def gain(figure: Figure, found: Effect) -> tuple[float, float]:
    """The interval of a figure's gain over the control: above 1 is better."""
    if not figure.smaller_is_better:
        return found.low, found.high
    return 1 / found.high, 1 / found.low if found.low else math.inf
