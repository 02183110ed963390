"""As tests/programs/daemons_in_native.py, for the functions of `headway_lab._native`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "tests" / "programs"))

import daemons_in_native
from daemons_in_native import _plain, _refused

from headway_lab import _native

daemons_in_native.CALLS = {
    "refcount_measure": _plain(_native.refcount_measure, "plain", 1, 1, False),
    "simulate": _plain(lambda: _refused(_native.simulate, "{}")),
}

daemons_in_native.main()
