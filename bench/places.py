"""Where the programs are that these benchmarks need; the others are `headway bench`'s own."""

from __future__ import annotations

from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs"
RECIPES = PROGRAMS.parent.parent / "examples" / "recipes"
