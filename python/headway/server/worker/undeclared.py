"""Extension modules that do not declare that they can run without a GIL (PEP 703).

CPython turns the GIL on when it loads the first of them, and warns of that one; after `-X gil=0` it
does neither. So each is told here, at its import, before its own code runs. Whoever imports runs
this. Knows nothing of processes and their supervisor.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import ModuleType
from typing import cast

from headway import _native
from headway.server.free_threading import OF_THIS_PYTHON, gil_enabled

Tell = Callable[[str], None]


def imported() -> list[str]:
    """The names of those that are imported already, in that order."""
    return [name for module in list(sys.modules.values()) if (name := _undeclared(module))]


class Watch:
    """From now on, in this interpreter, until `end`: `tell` gets the name of each that is imported,
    and may be replaced."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell
        self._former = former = ExtensionFileLoader.exec_module
        watch = self

        # Modules of one phase come by here too, and have nothing to execute.
        def exec_module(self: ExtensionFileLoader, module: ModuleType) -> None:
            # No import fails for what can be told of it.
            with contextlib.suppress(Exception):
                if name := _undeclared(module):
                    watch.tell(name)
            former(self, module)

        self._own = exec_module
        ExtensionFileLoader.exec_module = exec_module  # type: ignore[method-assign]

    def end(self) -> None:
        self.tell = lambda _: None
        # Not from under one that was put over it.
        if ExtensionFileLoader.exec_module is self._own:
            ExtensionFileLoader.exec_module = self._former  # type: ignore[method-assign]


@contextmanager
def told(tell: Tell) -> Iterator[None]:
    """Tells all of them, those that are imported already and those that come meanwhile, where the
    GIL is off or was turned on for one of them."""
    if not OF_THIS_PYTHON or (gil_enabled() and getattr(sys.flags, "gil", 1) is not None):
        yield
        return
    watch = Watch(tell)
    try:
        for name in imported():
            tell(name)
        yield
    finally:
        watch.end()


def _undeclared(module: object) -> str:
    """Its name if it is one of them, else "". What cannot be told counts as undeclared."""
    # Not by getattr: a module may have one of its own, which imports more.
    spec = vars(module).get("__spec__") if isinstance(module, ModuleType) else None
    if not isinstance(spec, ModuleSpec) or not isinstance(spec.loader, ExtensionFileLoader):
        return ""
    return "" if _native.declares_no_gil(cast(ModuleType, module)) else spec.name
