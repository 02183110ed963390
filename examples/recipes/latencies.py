"""Prints the latencies of a job's light work, as `headway tune run` can read them too.

    headway tune run --smaller --metric 'p99: ([0-9.]+) ms' ...

bench/recipes.py reads this line.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence

# How long a recipe's job or client works.
SECONDS = float(os.environ.get("RECIPE_SECONDS", "10"))


def print_latencies(latencies_s: Sequence[float], heavy: int, seconds: float) -> None:
    """`heavy` is how much heavy work was done in `seconds`, beside which the light work had these
    latencies: two or more."""
    percentiles = statistics.quantiles(latencies_s, n=100, method="inclusive")
    print(
        f"p50: {percentiles[49] * 1e3:.2f} ms, p99: {percentiles[98] * 1e3:.2f} ms, "
        f"max: {max(latencies_s) * 1e3:.2f} ms, heavy: {heavy / seconds:.2f}/s",
        flush=True,
    )
