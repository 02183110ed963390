"""The page of the public names of the package, from their docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import headway
from headway import gil

INTRODUCTION = """\
# The Python API

This page is generated from the docstrings of `headway.gil` and `headway.serve`.
"""


def page() -> str:
    parts = [INTRODUCTION]
    for name, thing in names():
        text = inspect.getdoc(thing)
        if not text:
            raise ValueError(f"{name} has no docstring")
        level = 2 + (name.count(".") > 1) + (name.count(".") > 2)
        # Indented lines of a docstring are code in Markdown, too.
        parts.append(f"{'#' * level} {name}\n\n{_signature(name, thing)}{text}\n")
    return "\n".join(parts)


def names() -> Iterator[tuple[str, object]]:
    """The public names, each with what it is; members of a class after it."""
    yield "headway.gil", gil
    for name in gil.__all__:
        thing = getattr(gil, name)
        yield f"headway.gil.{name}", thing
        if inspect.isclass(thing):
            for attribute, value in vars(thing).items():
                if not attribute.startswith("_") and callable(value):
                    yield f"headway.gil.{name}.{attribute}", value
    yield "headway.serve", headway.serve


def _signature(name: str, thing: object) -> str:
    if inspect.isclass(thing) or not callable(thing):
        return ""
    signature = str(inspect.signature(thing)).replace("(self, ", "(").replace("(self)", "()")
    return f"```python\n{name.rpartition('.')[2]}{signature}\n```\n\n"
