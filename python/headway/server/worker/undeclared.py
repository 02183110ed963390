"""Extension modules that do not declare that they can run without a GIL (PEP 703).

CPython turns the GIL on when it loads the first such module, and warns about that module only;
after `-X gil=0` it does neither. This module therefore reports each such module at its import,
before the code of that module runs, in the importing thread. It does not depend on processes and
their supervisor.
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
    """The names of the undeclared modules that are already imported, in the order of import."""
    return [name for module in list(sys.modules.values()) if (name := _undeclared(module))]


class Watch:
    """Calls `tell` with the name of each undeclared module that this interpreter imports, from
    construction until `end`. The attribute `tell` may be replaced."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell
        self._former = former = ExtensionFileLoader.exec_module
        watch = self

        # CPython calls this for modules with single-phase initialization too, which have nothing to
        # execute.
        def exec_module(self: ExtensionFileLoader, module: ModuleType) -> None:
            # A failed report does not make the import fail.
            with contextlib.suppress(Exception):
                if name := _undeclared(module):
                    watch.tell(name)
            former(self, module)

        self._own = exec_module
        ExtensionFileLoader.exec_module = exec_module  # type: ignore[method-assign]

    def end(self) -> None:
        self.tell = lambda _: None
        # If another replacement was installed over this one, it stays in place.
        if ExtensionFileLoader.exec_module is self._own:
            ExtensionFileLoader.exec_module = self._former  # type: ignore[method-assign]


@contextmanager
def told(tell: Tell) -> Iterator[None]:
    """Calls `tell` with the names of all undeclared modules, those already imported and those
    imported within the context, if the GIL is off or was turned on for such a module."""
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
    """The name of the module if it is undeclared, else "". A module whose declaration is unknown
    counts as undeclared."""
    # Not by getattr: a module may have its own `__getattr__`, which imports further modules.
    spec = vars(module).get("__spec__") if isinstance(module, ModuleType) else None
    if not isinstance(spec, ModuleSpec) or not isinstance(spec.loader, ExtensionFileLoader):
        return ""
    return "" if _native.declares_no_gil(cast(ModuleType, module)) else spec.name
