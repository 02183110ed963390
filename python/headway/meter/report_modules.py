"""Loads the modules of the report after the measured program has ended.

They are imported then, not before the program's first line, so that the program starts sooner. A
program may end where no file can be read: after setuid or chroot, without descriptors, or with an
import system that it has changed. The extension module, which is mapped since the start, has the
sources of the same modules for that case.
"""

from __future__ import annotations

import sys


def load() -> None:
    """Makes `headway.report.terminal`, `headway.meter.snapshot` and `headway.json_file` importable.
    Leaves no module of the report half loaded."""
    before = set(sys.modules)
    try:
        import headway.json_file
        import headway.meter.snapshot
        import headway.report.terminal  # noqa: F401
    except (ImportError, OSError):
        for name in set(sys.modules) - before:
            if name.startswith("headway."):
                del sys.modules[name]
        _load_sources()


def _load_sources() -> None:
    from headway import _native

    for name, source in _native.report_sources():
        if name in sys.modules:
            continue
        module = type(sys)(name)
        module.__package__ = name.rpartition(".")[0]
        if name == "headway.report":
            module.__package__, module.__path__ = name, []
        # Up to CPython 3.12 code that runs from a string would make the interpreter forget an
        # uncaught KeyboardInterrupt (json_file.py); code that is compiled first does not.
        exec(compile(source, f"<{name}>", "exec"), module.__dict__)
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        setattr(sys.modules[parent], last, module)
