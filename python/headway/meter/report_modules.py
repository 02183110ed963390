"""Loads the modules of the report after the measured program has ended.

They are imported at the end, not before the program's first line, so that the program starts
sooner. At its end a program may be unable to read files: after setuid or chroot, without free
descriptors, or with a modified import system. For that case the extension module, which has been
mapped since the start, contains the sources of the same modules.
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
        # Up to CPython 3.12, running code from a string makes the interpreter forget an uncaught
        # KeyboardInterrupt (json_file.py); running a code object does not.
        exec(compile(source, f"<{name}>", "exec"), module.__dict__)
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        setattr(sys.modules[parent], last, module)
