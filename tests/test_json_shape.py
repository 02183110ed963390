"""JSON values against types: the first part that does not fit is named with its path."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypedDict

import pytest

from headway.json_shape import find_problem


class Optional(TypedDict, total=False):
    note: str | None


class Pair(Optional):
    name: str
    share: float
    count: int
    is_open: bool
    buckets: Sequence[tuple[float, int]]
    more: dict[str, list[int]]
    any: object


PAIR = {
    "name": "a",
    "share": 1,
    "count": 2,
    "is_open": False,
    "buckets": [[0.5, 1]],
    "more": {"x": [1, 2]},
    "any": [None],
    "unknown": 1,
}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, ""),
        ({"note": None}, ""),
        ({"note": 1}, "note is 1, and must be a string or null"),
        ({"share": True}, "share is True, and must be a number"),
        ({"share": float("inf")}, "share is inf, and must be a number"),
        ({"count": 2.0}, "count is 2.0, and must be an integer"),
        ({"is_open": 0}, "is_open is 0, and must be a boolean"),
        ({"buckets": "ab"}, "buckets is 'ab', and must be a list"),
        ({"buckets": [[0.5]]}, "buckets[0] is [0.5], and must have 2 items"),
        ({"buckets": [[0.5, 1], [1, "2"]]}, "buckets[1][1] is '2', and must be an integer"),
        ({"more": {"x": [1, None]}}, "more.x[1] is None, and must be an integer"),
    ],
)
def test_the_first_part_that_does_not_fit_is_named(changes: dict[str, Any], problem: str) -> None:
    value = json.loads(json.dumps({**PAIR, **changes}))
    assert find_problem(value, Pair) == problem
    below = problem and f"rows[0].{problem}"
    assert find_problem({"rows": [value]}, dict[str, list[Pair]]) == below


def test_a_missing_key_and_another_document_are_named() -> None:
    assert find_problem({}, Pair, "pair") == "pair.name is missing"
    assert find_problem([], Pair) == "the document is [], and must be an object"
    assert find_problem("x", int | float | None, "x") == (
        "x is 'x', and must be an integer, a number or null"
    )
