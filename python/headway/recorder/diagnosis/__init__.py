"""Verdicts on a record in plain words, with evidence and advice.

`inputs` has the figures; `gil_verdicts`, `parking_verdicts`, `loop_verdicts` and
`capacity_verdicts` the rules; `judge` their order; `advice` what to change, computed from the data.
Pure: no clock, no I/O.
"""

from __future__ import annotations

from headway.recorder.diagnosis.judge import is_worse, judge, worst

__all__ = ["is_worse", "judge", "worst"]
