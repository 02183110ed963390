"""Checks a JSON value against a type: a `TypedDict`, and what its fields are made of.

Keys that the type does not have are allowed, so that a later version may add some.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

NAMES = {
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
    NoneType: "null",
}


def find_problem(value: Any, allowed: Any, place: str = "") -> str:
    """Describes the first part of `value` that is missing or of another type, with its path below
    `place`; "" if there is none. `object` allows any value."""
    if allowed is object:
        return ""
    for plain, kind in _kinds(allowed):
        if _is_of(value, plain):
            return next((each for each in _problems(value, kind, place) if each), "")
    *names, last = [NAMES[plain] for plain, _ in _kinds(allowed)]
    others = f"{', '.join(names)} or " if names else ""
    return f"{place or 'the document'} is {value!r:.40}, and must be {others}{last}"


def _problems(value: Any, kind: Any, place: str) -> Iterator[str]:
    prefix = f"{place}." if place else ""
    if isinstance(value, float):
        if not math.isfinite(value):
            yield f"{place} is {value}, and must be a number"
    elif kind is float and isinstance(value, int):
        if abs(value) > sys.float_info.max:
            yield f"{place} is {value!r:.40}, and must be a number"
    elif isinstance(value, list):
        hints = get_args(kind)
        if get_origin(kind) is tuple and len(value) != len(hints):
            yield f"{place} is {value!r:.40}, and must have {len(hints)} items"
        hints = hints if get_origin(kind) is tuple else hints * len(value)
        for index, (each, hint) in enumerate(zip(value, hints, strict=True)):
            yield find_problem(each, hint, f"{place}[{index}]")
    elif is_typeddict(kind):
        for name, hint in _hints(kind).items():
            if name in value:
                yield find_problem(value[name], hint, f"{prefix}{name}")
            elif name in kind.__required_keys__:
                yield f"{prefix}{name} is missing"
    elif isinstance(value, dict):
        _, of_values = get_args(kind)
        for name, each in value.items():
            yield find_problem(each, of_values, f"{prefix}{name}")


def _is_of(value: Any, plain: type) -> bool:
    if isinstance(value, bool):
        return plain is bool
    return isinstance(value, (int, float) if plain is float else plain)


@lru_cache
def _kinds(allowed: Any) -> list[tuple[type, Any]]:
    """The alternatives of a type, each with the type that `json.loads` makes for it."""
    kinds = get_args(allowed) if get_origin(allowed) is UnionType else (allowed,)
    return [(_plain(kind), kind) for kind in kinds]


def _plain(kind: Any) -> type:
    origin = dict if is_typeddict(kind) else get_origin(kind) or kind
    return list if origin in (tuple, Sequence) else origin


@lru_cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
