"""The JSON document that `headway tune --json` writes."""

from __future__ import annotations

import math
from typing import TypedDict, cast

from headway.tune.confidence import Effect
from headway.tune.setting import Setting, Shape
from headway.tune.trials import Block, Rating, Trials

SCHEMA = 1


class ShapeDocument(TypedDict, total=False):
    """The options of `headway serve` that the experiment varies. Others are absent."""

    processes: int  #: How many processes served.
    threads: int  #: How many threads each process had.
    interpreters: int  #: How many interpreters each process had.


class SettingDocument(ShapeDocument):
    """A setting."""

    policy: str  #: The policy.
    switch_interval_s: float  #: The switch interval.


class EffectDocument(TypedDict):
    """A figure of a candidate as a ratio to the control's."""

    ratio: float | None  #: The geometric mean of the rounds; null if no round has both figures.
    low: float | None  #: The lower end of the interval; null if it is not known yet.
    high: float | None  #: The upper end of the interval; null if it is not known yet.


class CandidateDocument(TypedDict):
    """A candidate and what is known of it."""

    setting: SettingDocument  #: What was tried.
    standing: str  #: `better`, `equivalent`, `not better` or `open`.
    effects: dict[str, EffectDocument]  #: The effects, by figure.


class BlockDocument(TypedDict):
    """A block: one run of a program, or some seconds of a server."""

    round: int  #: The number of the round. 0 is the warm-up, which does not count.
    setting: SettingDocument  #: The setting of the block.
    began_s: float  #: When the block began, from the start of the experiment.
    figures: dict[str, float]  #: What was measured.
    cut: str | None  #: Why the block was cut short or failed; null if it was not.


class ExcludedDocument(TypedDict):
    """A shape of a server that was not tried."""

    shape: ShapeDocument  #: The shape.
    why: str  #: The budget that it exceeds, or why its server did not start.


class ExclusionsDocument(TypedDict, total=False):
    """The shapes that an experiment leaves out."""

    excluded: list[ExcludedDocument]  #: The shapes that were not tried, if there are any.


class TuneDocument(ExclusionsDocument):
    """The document: an experiment with settings."""

    schema: int  #: 1.
    result: str  #: `winner`, `equivalent` or `undecided`.
    winner: SettingDocument | None  #: The setting that won; null without one.
    advice: str  #: The sentence that the terminal shows.
    goal: str  #: The goal, as `--goal` takes it.
    margin: float  #: The share by which a candidate must be better to win.
    confidence: float  #: The probability that all intervals contain the true ratios.
    for_s: float  #: The longest time that the experiment might take.
    elapsed_s: float  #: The time that it took.
    control: SettingDocument  #: The setting that candidates are compared with.
    candidates: list[CandidateDocument]  #: The candidates.
    blocks: list[BlockDocument]  #: The raw values, in the order of time.


def to_document(trials: Trials, advice: str, confidence: float) -> TuneDocument:
    outcome = trials.outcome()
    winner = outcome.winner
    document: TuneDocument = {
        "schema": SCHEMA,
        "result": outcome.result.value,
        "winner": None if winner is None else _setting(winner.setting),
        "advice": advice,
        "goal": str(trials.goal),
        "margin": trials.margin,
        "confidence": confidence,
        "for_s": trials.for_s,
        "elapsed_s": round(trials.elapsed_s, 3),
        "control": _setting(trials.control),
        "candidates": [_candidate(each) for each in outcome.ratings],
        "blocks": [_block(each) for each in trials.blocks],
    }
    if trials.excluded:
        document["excluded"] = [
            {"shape": _shape(each.shape), "why": each.why} for each in trials.excluded
        ]
    return document


def _setting(setting: Setting) -> SettingDocument:
    return {
        "policy": setting.policy,
        "switch_interval_s": setting.switch_interval_s,
        **_shape(setting.shape),
    }


def _shape(shape: Shape) -> ShapeDocument:
    return cast(ShapeDocument, shape.varied())


def _candidate(rating: Rating) -> CandidateDocument:
    return {
        "setting": _setting(rating.setting),
        "standing": rating.standing.value,
        "effects": {figure.key: effect_document(found) for figure, found in rating.effects.items()},
    }


def effect_document(found: Effect) -> EffectDocument:
    def known(value: float) -> float | None:
        return value if math.isfinite(value) else None

    is_known = math.isfinite(found.high)
    low = found.low if is_known else None
    return {"ratio": known(found.ratio), "low": low, "high": known(found.high)}


def _block(block: Block) -> BlockDocument:
    return {
        "round": block.round,
        "setting": _setting(block.setting),
        "began_s": round(block.began_s, 3),
        "figures": dict(block.figures),
        "cut": block.cut or None,
    }
