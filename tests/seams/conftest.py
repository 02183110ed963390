"""Lets the tests here start servers as those of other folders do."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "server"), str(TESTS / "recipes")]
sys.path.append(str(TESTS.parent / "bench"))
