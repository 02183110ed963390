"""Verdicts: what a record means, in plain words, with evidence and with what to try.

`situation` says what is known, `thresholds` when it counts; `contention` and `capacity` hold the
rules, `judgement` their order, `advice` what is computed from the data. Pure: no clock, no I/O.
"""

from __future__ import annotations

from headway.recorder.diagnosis.rules import judge, worst

__all__ = ["judge", "worst"]
