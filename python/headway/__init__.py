"""Headway makes threaded Python make headway.

`headway.gil` measures the GIL; `headway.serve` serves a WSGI application; the `headway` command
(`headway.cli`) does the rest. Importing this package imports nothing else and works on every
platform; `headway.gil.install()` raises an error if the platform does not support the meter.
`pytest -p headway` reports on a run of tests (`headway.pytest_plugin`).

PYTEST_DONT_REWRITE: with the variable HEADWAY this package is imported before pytest, which would
otherwise warn that it cannot rewrite its assertions.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["__version__", "gil", "serve"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("headway")
    if name == "gil":
        from importlib import import_module

        return import_module("headway.gil")
    if name == "pytest_plugins":
        # pytest asks for it in a module that is loaded by `-p headway`.
        return ("headway.pytest_plugin",)
    if name == "serve":
        from importlib import import_module

        return import_module("headway.server.worker.program").serve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
