"""The public names of the package: each has a docstring, or the build fails."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from sphinx.errors import ExtensionError

import headway
from headway import gil


def check() -> None:
    lacking = [name for name, thing in _public() if not inspect.getdoc(thing)]
    if lacking:
        raise ExtensionError(f"no docstring: {', '.join(lacking)}")


def _public() -> Iterator[tuple[str, object]]:
    yield "headway.gil", gil
    yield "headway.serve", headway.serve
    for name in gil.__all__:
        thing = getattr(gil, name)
        yield f"headway.gil.{name}", thing
        if inspect.isclass(thing):
            for attribute, value in vars(thing).items():
                if not attribute.startswith("_") and callable(value):
                    yield f"headway.gil.{name}.{attribute}", value
