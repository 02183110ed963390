"""Compares a process without and with a policy while it runs, for `headway attach --compare`.

The process runs without and with the policy in turns of a second, in rounds of four (without, with,
with, without), so that what grows steadily meanwhile counts for neither. Two turns that follow each
other are a pair. Of each pair the ratio is taken, and of the ratios the interval that `headway
tune` uses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple, TypedDict

from headway.attach.guest import THREAD_NAME
from headway.meter.snapshot import Snapshot
from headway.output import drawing
from headway.output.table import Cell, Table
from headway.report import thread_groups, units
from headway.report.terminal import Style
from headway.tune import confidence
from headway.tune.document import EffectDocument, effect_document

SCHEMA = 1
OWN_THREAD = THREAD_NAME.decode()
TURN_S = 1.0
TURNS_OF_ROUND = 4
# Fewer have no interval, as soon as there are three threads.
LEAST_ROUNDS = 2
LEVEL = 0.05
# More names are shown by their pattern, and the rows of the most waiting and holding alone.
MOST_NAMES = 10
# Threads that wait and hold for less than this part of the time are left out.
LEAST_SHARE = 0.01
# A ratio needs two shares above zero.
FLOOR = 1e-4


class TurnThreadDocument(TypedDict):
    """The threads of one name in one turn."""

    name: str  #: The name, or the pattern of the names if there are many.
    waited_s: float  #: How long they waited for the GIL in each second.
    held_s: float  #: How long they held it in each second.
    takes: int  #: How often they took it in the turn.


class TurnDocument(TypedDict):
    """A turn. Of processes that ended meanwhile only whole pairs of turns are in it."""

    policy: str  #: The policy of the turn.
    wall_s: float  #: How long it was, in the first process.
    threads: list[TurnThreadDocument]  #: The threads, by name.


class ComparedThreadDocument(TypedDict):
    """The threads of one name, with the policy as a ratio to without."""

    name: str  #: As in the turns.
    waited: EffectDocument  #: Of how long they waited.
    held: EffectDocument  #: Of how long they held the GIL.


class ComparisonDocument(TypedDict):
    """The document of `headway attach --compare --json`."""

    schema: int  #: 1.
    pids: list[int]  #: The processes.
    control: str  #: The policy that it had before.
    policy: str  #: The policy that it was compared with.
    confidence: float  #: The confidence of all intervals of the waits together.
    sentence: str  #: The sentence that the terminal shows.
    threads: list[ComparedThreadDocument]  #: The threads that waited or held the GIL.
    turns: list[TurnDocument]  #: The raw values, in the order of time.


class Figures(NamedTuple):
    """Of the threads of one name, in seconds and counts."""

    waited_s: float = 0.0
    held_s: float = 0.0
    takes: int = 0

    def plus(self, other: Figures) -> Figures:
        return Figures(
            self.waited_s + other.waited_s, self.held_s + other.held_s, self.takes + other.takes
        )


class ProcessTurn(NamedTuple):
    """The figures of a process in a turn, by thread name and the name of its group."""

    wall_s: float
    threads: Mapping[tuple[str, str], Figures]


def process_turn(before: dict[str, Any], after: dict[str, Any]) -> ProcessTurn:
    """Between two raw readings of the counters. The thread of this command is left out.

    A wait counts in the turns that it lasts, and not in that in which it ends.
    """
    first, last = Snapshot(before), Snapshot(after)
    began = {row.native_id: row.waiting_now_s or 0.0 for row in first.report().threads}
    report = (last - first).report()
    rows = [row for row in report.threads if row.name != OWN_THREAD]
    patterns = {
        thread_groups.pattern(row.name) for row in rows if thread_groups.threads_of(row) == 1
    }
    threads: dict[tuple[str, str], Figures] = {}
    for row in rows:
        key = row.name, thread_groups.name_of_group(row, patterns)
        waited_s = row.waited_s + (row.waiting_now_s or 0.0) - began.get(row.native_id, 0.0)
        found = Figures(max(waited_s, 0.0), row.held_s, row.takes)
        threads[key] = threads.get(key, Figures()).plus(found)
    return ProcessTurn(report.wall_s, threads)


class Turn(NamedTuple):
    """A turn of all processes. Figures are in each second, added up over the processes."""

    policy: str
    wall_s: float
    threads: Mapping[str, Figures]


class Pairs(NamedTuple):
    """A share of the time in the turns without and with the policy, pair by pair."""

    before: Sequence[float]
    after: Sequence[float]

    @property
    def medians(self) -> tuple[float, float]:
        return median(self.before), median(self.after)

    @property
    def lost(self) -> float:
        before, after = self.medians
        return before - after

    def effect(self, level: float) -> confidence.Effect:
        pairs = zip(self.before, self.after, strict=True)
        ratios = [
            math.log(max(after, FLOOR) / max(before, FLOOR))
            for before, after in pairs
            if max(before, after) > FLOOR
        ]
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


def order(rounds: int) -> list[bool]:
    """Whether each turn is one with the policy."""
    return [False, True, True, False] * rounds


class Comparison:
    """Starts without a turn; `add` gives it each in its order. What is asked of it is of those
    pairs that are whole."""

    def __init__(self, control: str, policy: str) -> None:
        self.control = control
        self.policy = policy
        self._turns: list[tuple[str, Mapping[int, ProcessTurn]]] = []

    def add(self, policy: str, processes: Mapping[int, ProcessTurn]) -> None:
        """Adds the figures of the processes in a turn, by pid."""
        self._turns.append((policy, processes))

    @property
    def pairs(self) -> int:
        return len(self._turns) // 2

    def turns(self) -> list[Turn]:
        whole = self._turns[: 2 * self.pairs]
        names = {
            name
            for _, processes in whole
            for turn in processes.values()
            for name, _ in turn.threads
        }
        by_group = len(names) > MOST_NAMES
        turns = []
        for first, second in zip(whole[::2], whole[1::2], strict=True):
            pids = [pid for pid in first[1] if pid in second[1]]
            for policy, processes in (first, second):
                turns.append(_in_all(policy, [processes[pid] for pid in pids], by_group))
        return turns

    def rows(self) -> list[Row]:
        """The threads that waited for the GIL or held it, those that waited most first."""
        turns = self.turns()
        names = dict.fromkeys(name for turn in turns for name in turn.threads)
        rows = [
            Row(
                name,
                self._pairs(turns, name, lambda figures: figures.waited_s),
                self._pairs(turns, name, lambda figures: figures.held_s),
            )
            for name in names
        ]
        rows = [row for row in rows if row.largest_share >= LEAST_SHARE]
        rows.sort(key=lambda row: -max(row.waited.medians))
        holders = sorted(rows, key=lambda row: -max(row.held.medians))
        shown = [*rows[: MOST_NAMES // 2], *holders[: MOST_NAMES // 2]]
        return [row for row in rows if row in shown]

    def _pairs(self, turns: Sequence[Turn], name: str, figure: Callable[[Figures], float]) -> Pairs:
        shares = [
            (turn.policy == self.policy, figure(turn.threads.get(name, Figures())))
            for turn in turns
        ]
        before, after = (
            [share for is_with, share in shares if is_with is wanted] for wanted in (False, True)
        )
        return Pairs(before, after)

    def sentence(self) -> str:
        return _sentence(self.rows(), self.control, self.policy)

    def lines(self, style: Style) -> list[str]:
        """The table and the sentence."""
        rows = self.rows()
        level = _level(rows)
        policies = self.control, self.policy
        table = Table(
            f"In each second: medians of {units.number(self.pairs, 'turn')} of a second under each "
            f"policy, and ratios with intervals of {1 - LEVEL:.0%} for all rows together",
            [
                "thread",
                *(f"waited, {each}" for each in policies),
                "ratio",
                *(f"held, {each}" for each in policies),
            ],
            [list(map(_cell, row.texts(level))) for row in rows],
        )
        sentence = _sentence(rows, self.control, self.policy)
        return [drawing.draw(table, style), "", *drawing.wrap(sentence, style)]

    def to_document(self) -> ComparisonDocument:
        rows = self.rows()
        level = _level(rows)
        return {
            "schema": SCHEMA,
            "pids": sorted({pid for _, processes in self._turns for pid in processes}),
            "control": self.control,
            "policy": self.policy,
            "confidence": 1 - LEVEL,
            "sentence": _sentence(rows, self.control, self.policy),
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


def _in_all(policy: str, processes: Sequence[ProcessTurn], by_group: bool) -> Turn:
    threads: dict[str, Figures] = {}
    for turn in processes:
        for (name, group), found in turn.threads.items():
            key = group if by_group else name
            in_a_second = Figures(
                found.waited_s / turn.wall_s, found.held_s / turn.wall_s, found.takes
            )
            threads[key] = threads.get(key, Figures()).plus(in_a_second)
    return Turn(policy, processes[0].wall_s if processes else 0.0, threads)


def _level(rows: Sequence[Row]) -> float:
    """The level of one interval, so that `LEVEL` is that of all waits in the table."""
    return LEVEL / max(len(rows), 1)


def _sentence(rows: Sequence[Row], control: str, policy: str) -> str:
    """Says who waits less, and what others pay for it."""
    if not rows:
        return f"No thread waited for the GIL or held it, so {policy} changes nothing."
    level = _level(rows)
    most = max(rows, key=lambda row: row.waited.lost)
    if all(math.isinf(row.waited.effect(level).high) for row in rows):
        return f"Too few turns to tell ({_waited(most)})."
    helped = [row for row in rows if row.waited.effect(level).high < 1]
    paying = [row for row in rows if row.held.effect(level).high < 1]
    worse = [row for row in rows if row.waited.effect(level).low > 1]
    texts = [
        f"Under {policy}, {_waited(max(helped, key=lambda row: row.waited.lost))}."
        if helped
        else f"No thread clearly waits less under {policy} than under {control} ({_waited(most)})."
    ]
    if paying:
        payer = max(paying, key=lambda row: row.held.lost)
        before, after = map(units.seconds, payer.held.medians)
        texts.append(f"{payer.name} held the GIL for {after} of each second instead of {before}.")
    elif worse:
        loser = min(worse, key=lambda row: row.waited.lost)
        texts.append(f"But {_waited(loser)}.")
    return " ".join(texts)


def _waited(row: Row) -> str:
    before, after = map(units.seconds, row.waited.medians)
    return f"{row.name} waited {after} of each second instead of {before}"


def _cell(text: str) -> Cell:
    return Cell(text=text)


def _turn_document(turn: Turn) -> TurnDocument:
    return {
        "policy": turn.policy,
        "wall_s": turn.wall_s,
        "threads": [
            {"name": name, "waited_s": waited_s, "held_s": held_s, "takes": takes}
            for name, (waited_s, held_s, takes) in turn.threads.items()
        ],
    }
