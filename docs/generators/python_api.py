"""The page of the public names of the package, from their docstrings."""

from __future__ import annotations

import ast
import inspect
import textwrap
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
    """As the source has it: the values of defaults are long, or differ from run to run."""
    if not inspect.isfunction(thing):
        return ""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(thing))).body
    assert isinstance(function, ast.FunctionDef)
    arguments = ast.unparse(function.args).removeprefix("self").removeprefix(", ")
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    text = f"{name.rpartition('.')[2]}({arguments}){returns}"
    return f"```python\n{textwrap.fill(text, 98, subsequent_indent='    ')}\n```\n\n"
