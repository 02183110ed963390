"""Headway makes threaded Python make headway.

`headway.gil` measures the GIL; the `headway` command (`headway.cli`) does the rest. Importing this
package imports nothing else and works on every platform: whether the meter can work is told by
`headway.gil.install()`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["__version__", "gil"]


def __getattr__(name: str) -> ModuleType | str:
    if name == "__version__":
        from importlib.metadata import version

        return version("headway")
    if name == "gil":
        from importlib import import_module

        return import_module("headway.gil")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
