"""Says whether `python -m NAME` would find NAME, without importing anything on the way.

`runpy` imports the parent packages to look for a submodule; here each finder is asked step by step
instead, with the search path that the program will have. Where only running a package could tell
(its `__init__` edits `__path__` or sys.modules) the answer is yes, and python has the last word.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder

# Words in the source of an __init__ that makes submodules by itself.
DYNAMIC_MARKS = ("__path__", "sys.modules", "meta_path")


def find_module(name: str) -> str:
    """The reason why `python -m NAME` would fail; "" if NAME is found."""
    parts = name.split(".")
    if not all(parts) or "/" in name:
        return "not a module name"
    path: Sequence[str] | None = None
    for depth in range(len(parts)):
        full_name = ".".join(parts[: depth + 1])
        try:
            spec = _find_spec(full_name, path)
        except (KeyError, ImportError):
            return ""  # as below, where the finder asks for the loaded parent at once
        if spec is None:
            return f"no module named {full_name!r}"
        path = spec.submodule_search_locations
        if depth and path is not None and spec.origin is None:
            return ""  # a namespace package in a package: its path depends on its loaded parent's
        is_last = depth == len(parts) - 1
        if path is None and not is_last:
            # os.path is in sys.modules, where no finder knows it.
            if _makes_submodules(spec) or name in sys.modules:
                return ""
            return f"no module named {name!r}: {full_name!r} is not a package"
        if path is not None:
            if _makes_submodules(spec):
                return ""
            if is_last and _find_spec(f"{full_name}.__main__", path) is None:
                return "is a package without a __main__ module"
    return ""


def _find_spec(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        if finder is PathFinder:
            found = PathFinder.find_spec(name, _program_path() if path is None else path)
        else:
            found = finder.find_spec(name, path)
        if found is not None:
            return found
    return None


def _program_path() -> list[str]:
    """sys.path as the program will see it: python -m puts the current directory first, in place of
    the directory that this command was found in, unless -P or -I says otherwise."""
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
        return sys.path
    return [os.getcwd(), *sys.path[1:]]


def _makes_submodules(spec: ModuleSpec) -> bool:
    get_source = getattr(spec.loader, "get_source", None)
    if get_source is None:
        # A namespace package has no code of its own; of other loaders nothing is known.
        return spec.loader is not None and spec.origin is not None
    try:
        source = get_source(spec.name)
    except (ImportError, UnicodeError, SyntaxError):
        return True
    if source is None:
        return spec.origin not in ("built-in", "frozen")
    return any(mark in source for mark in DYNAMIC_MARKS)
