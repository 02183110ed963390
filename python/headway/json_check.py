"""Checks of JSON documents that Headway reads: an object's fields, and a histogram of results.

Only the fields that Headway reads are checked, so that a later version may add others.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NUMBER = (int, float)
OPTIONAL_NUMBER = (int, float, type(None))
HISTOGRAM_FIELDS: dict[str, tuple[type, ...]] = {
    "count": (int,),
    "sum": NUMBER,
    **dict.fromkeys(("min", "max", "p50", "p90", "p99"), OPTIONAL_NUMBER),
    "buckets": (list,),
}


def find_field_problem(row: Any, fields: dict[str, tuple[type, ...]], place: str) -> str:
    """The first of `fields` that the object lacks or has with another type; "" if there is
    none. `place` is the object's path: an empty text, or names with a dot at the end."""
    if not isinstance(row, dict):
        return f"{place.rstrip('.')} is {row!r:.40}, and must be an object"
    for name, types in fields.items():
        if name not in row:
            return f"{place}{name} is missing"
        value = row[name]
        if not isinstance(value, types) or isinstance(value, bool):
            return f"{place}{name} is {value!r:.40}, and must be {_type_names(types)}"
    return ""


def find_histogram_problem(histogram: Any, place: str) -> str:
    """The first problem of a histogram of benchmark results, as `find_field_problem` returns it."""
    problem = find_field_problem(histogram, HISTOGRAM_FIELDS, place)
    for index, bucket in enumerate(() if problem else histogram["buckets"]):
        pair = isinstance(bucket, list) and len(bucket) == 2
        if not pair or not all(isinstance(number, NUMBER) for number in bucket):
            return f"{place}buckets[{index}] is {bucket!r:.40}, and must be [seconds, count]"
    return problem


def _type_names(types: tuple[type, ...]) -> str:
    names = {
        int: "an integer",
        float: "a number",
        str: "a string",
        dict: "an object",
        list: "a list",
        type(None): "null",
    }
    shown = types[1:] if types[:2] == NUMBER else types
    return " or ".join(names[each] for each in shown)
