"""Prometheus is started as the tests of the recorder start it."""

from __future__ import annotations

import sys
from pathlib import Path

RECORDER = str(Path(__file__).resolve().parent.parent / "recorder")
if RECORDER not in sys.path:
    sys.path.append(RECORDER)
