"""What a policy changes in a process that already runs, for `headway attach --compare`.

The process runs without and with the policy in turns of a second. Two turns that follow each other
are a pair, and the pairs begin with each by turns (without, with, with, without, ...), so that what
drifts or grows meanwhile counts for neither. Of each pair the ratio is taken, and of the ratios the
interval that `headway tune` uses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import NamedTuple, TypedDict

from headway.attach.guest import THREAD_NAME
from headway.output import drawing
from headway.output.table import Cell, Table
from headway.report import thread_groups, units
from headway.report.model import GilReport, ThreadRow
from headway.report.terminal import Style
from headway.tune import confidence
from headway.tune.document import EffectDocument, effect_document

SCHEMA = 1
OWN_THREAD = THREAD_NAME.decode()
TURN_S = 1.0
# Fewer pairs have no interval.
LEAST_PAIRS = 3
LEVEL = 0.05
# More names are shown by their pattern, and the rows of the most waiting and holding alone.
MOST_NAMES = 10
# What a thread waits or holds below this part of the time is no subject.
LEAST_SHARE = 0.01


class TurnThreadDocument(TypedDict):
    """The threads of one name in one turn."""

    name: str  #: The name, or the pattern of the names if there are many.
    waited_s: float  #: How long they waited for the GIL.
    held_s: float  #: How long they held it.
    takes: int  #: How often they took it.


class TurnDocument(TypedDict):
    """A turn."""

    policy: str  #: The policy of the turn.
    wall_s: float  #: How long it was.
    threads: list[TurnThreadDocument]  #: The threads, by name.


class ComparedThreadDocument(TypedDict):
    """The threads of one name, with the policy as a ratio to without."""

    name: str  #: As in the turns.
    waited: EffectDocument  #: Of how long they waited.
    held: EffectDocument  #: Of how long they held the GIL.


class ComparisonDocument(TypedDict):
    """The document of `headway attach --compare --json`."""

    schema: int  #: 1.
    pid: int  #: The process; of a tree, the first.
    python: str  #: Its version of CPython.
    control: str  #: The policy that it had before.
    policy: str  #: The policy that it was compared with.
    confidence: float  #: The probability that all intervals contain the true ratios.
    sentence: str  #: The sentence that the terminal shows.
    threads: list[ComparedThreadDocument]  #: The threads that waited or held the GIL.
    turns: list[TurnDocument]  #: The raw values, in the order of time.


Figure = Callable[[ThreadRow], float]


def waited_s(row: ThreadRow) -> float:
    return row.waited_s


def held_s(row: ThreadRow) -> float:
    return row.held_s


class Turn(NamedTuple):
    """A second of the processes under one policy. `threads` are their rows by name; of a name there
    may be several."""

    policy: str
    wall_s: float
    threads: Sequence[tuple[str, ThreadRow]]

    def share(self, figure: Figure, name: str) -> float:
        """Seconds in each second, of all threads of this name together."""
        return sum(figure(row) for each, row in self.threads if each == name) / self.wall_s


class Pairs(NamedTuple):
    """A share of the time in the turns without and with the policy, pair by pair."""

    without: Sequence[float]
    having: Sequence[float]

    @property
    def medians(self) -> tuple[float, float]:
        return median(self.without), median(self.having)

    @property
    def lost(self) -> float:
        before, after = self.medians
        return before - after

    def effect(self, level: float) -> confidence.Effect:
        pairs = zip(self.without, self.having, strict=True)
        ratios = [math.log(after / before) for before, after in pairs if before > 0 and after > 0]
        return confidence.effect(ratios, level)


class Row(NamedTuple):
    """The threads of one name."""

    name: str
    waited: Pairs
    held: Pairs

    @property
    def largest_share(self) -> float:
        return max(*self.waited.medians, *self.held.medians)

    def texts(self, level: float) -> Iterator[str]:
        yield self.name
        yield from map(units.seconds, self.waited.medians)
        yield str(self.waited.effect(level))
        yield from map(units.seconds, self.held.medians)


def order(pairs: int) -> Iterator[bool]:
    """Whether each turn is one with the policy."""
    for pair in range(pairs):
        yield pair % 2 == 1
        yield pair % 2 == 0


class Comparison:
    """Starts without a turn; `add` gives it each in its order. What is asked of it is of those
    pairs that are whole."""

    def __init__(self, control: str, policy: str) -> None:
        self.control = control
        self.policy = policy
        self._reports: list[tuple[str, Sequence[GilReport]]] = []

    def add(self, policy: str, reports: Sequence[GilReport]) -> None:
        """What the processes did in a turn."""
        self._reports.append((policy, reports))

    @property
    def pairs(self) -> int:
        return len(self._reports) // 2

    def turns(self) -> list[Turn]:
        """The thread of this command is left out."""
        reports = self._reports[: 2 * self.pairs]
        names = {row.name for _, made in reports for each in made for row in each.threads}
        has_many = len(names) > MOST_NAMES
        return [
            Turn(
                policy,
                max(each.wall_s for each in made),
                [
                    (thread_groups.pattern(row.name) if has_many else row.name, row)
                    for each in made
                    for row in each.threads
                    if row.name != OWN_THREAD
                ],
            )
            for policy, made in reports
        ]

    def rows(self) -> list[Row]:
        """The threads that waited for the GIL or held it, those that waited most first."""
        turns = self.turns()
        names = dict.fromkeys(name for turn in turns for name, _ in turn.threads)
        rows = [
            Row(name, *(self._shares(turns, figure, name) for figure in (waited_s, held_s)))
            for name in names
        ]
        rows = [row for row in rows if row.largest_share >= LEAST_SHARE]
        rows.sort(key=lambda row: -max(row.waited.medians))
        holders = sorted(rows, key=lambda row: -max(row.held.medians))
        shown = [*rows[: MOST_NAMES // 2], *holders[: MOST_NAMES // 2]]
        return [row for row in rows if row in shown]

    def _shares(self, turns: Sequence[Turn], figure: Figure, name: str) -> Pairs:
        shares = [(turn.policy == self.policy, turn.share(figure, name)) for turn in turns]
        without, having = (
            [share for is_with, share in shares if is_with is wanted] for wanted in (False, True)
        )
        return Pairs(without, having)

    def _level(self, rows: Sequence[Row]) -> float:
        """Of one interval, so that `LEVEL` is that of all in the table."""
        return LEVEL / max(2 * len(rows), 1)

    def sentence(self) -> str:
        """Who waits less, and what others pay for it."""
        rows = self.rows()
        if not rows:
            return f"No thread waited for the GIL or held it, so {self.policy} changes nothing."
        level = self._level(rows)
        helped = max(rows, key=lambda row: row.waited.lost)
        before, after = map(units.seconds, helped.waited.medians)
        if helped.waited.effect(level).high >= 1:
            return (
                f"No thread clearly waits less under {self.policy} than under {self.control} "
                f"({helped.name}: {before} of each second, and {after})."
            )
        text = (
            f"Under {self.policy}, {helped.name} waited {after} of each second instead of {before}."
        )
        payer = max(rows, key=lambda row: row.held.lost)
        if payer.held.effect(level).high < 1:
            before, after = map(units.seconds, payer.held.medians)
            text += f" {payer.name} held the GIL for {after} of each second instead of {before}."
        return text

    def lines(self, style: Style) -> list[str]:
        """The table and the sentence."""
        rows = self.rows()
        level = self._level(rows)
        policies = self.control, self.policy
        table = Table(
            f"In each second: medians of {units.number(self.pairs, 'turn')} of a second under each "
            f"policy, and ratios with intervals of {1 - LEVEL:.0%} for all together",
            [
                "thread",
                *(f"waited, {each}" for each in policies),
                "ratio",
                *(f"held, {each}" for each in policies),
            ],
            [list(map(_cell, row.texts(level))) for row in rows],
        )
        return [drawing.draw(table, style), "", *drawing.wrap(self.sentence(), style)]

    def to_document(self) -> ComparisonDocument:
        rows = self.rows()
        level = self._level(rows)
        first = self._reports[0][1][0]
        return {
            "schema": SCHEMA,
            "pid": first.pid,
            "python": first.python,
            "control": self.control,
            "policy": self.policy,
            "confidence": 1 - LEVEL,
            "sentence": self.sentence(),
            "threads": [
                {
                    "name": row.name,
                    "waited": effect_document(row.waited.effect(level)),
                    "held": effect_document(row.held.effect(level)),
                }
                for row in rows
            ],
            "turns": [_turn_document(turn) for turn in self.turns()],
        }


def _cell(text: str) -> Cell:
    return Cell(text=text)


def _turn_document(turn: Turn) -> TurnDocument:
    names = dict.fromkeys(name for name, _ in turn.threads)
    return {
        "policy": turn.policy,
        "wall_s": turn.wall_s,
        "threads": [
            {
                "name": name,
                "waited_s": turn.share(waited_s, name) * turn.wall_s,
                "held_s": turn.share(held_s, name) * turn.wall_s,
                "takes": sum(row.takes for each, row in turn.threads if each == name),
            }
            for name in names
        ],
    }
