"""Verdicts on a record in plain words, with evidence and advice.

`inputs` has the figures, `contention` and `capacity` the rules, `rules` their order, `advice` what
to change, computed from the data. Pure: no clock, no I/O.
"""

from __future__ import annotations

from headway.recorder.diagnosis.judge import judge, worst

__all__ = ["judge", "worst"]
