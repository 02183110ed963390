"""Results of made-up values; nothing is measured."""

from __future__ import annotations

from typing import Any

from headway.output.results import Result, Results


def row(
    values: list[float],
    published: float | None = None,
    left_out: str = "",
    figures: dict[str, list[float]] | None = None,
    **parameters: Any,
) -> Result:
    result = Result(parameters, published, left_out)
    result.values = values
    result.figures = figures or {}
    return result


def results(*rows: Result, name: str = "made", unit: str = "s") -> Results:
    return Results(name, unit, list(rows), {"loops": 1_000_000})
