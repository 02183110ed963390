"""Prepares the reading of Python stacks by native threads that do not hold the GIL.

On a real-time signal, faulthandler writes the stack of a thread into a pipe, which `_native` reads:
see `crates/reporter/src/stacks.rs`.
"""

from __future__ import annotations

import atexit

from headway import _native


def prepare() -> bool:
    """Makes the stacks of this process and its forked children readable. Must be called in the main
    interpreter. Returns False if stacks cannot be read; reports then lack only the stacks."""
    try:
        # Imported here, because sub-interpreters with their own GIL cannot import it.
        import faulthandler

        signal, fd = _native.stacks_open()
        faulthandler.register(signal, file=fd, all_threads=False, chain=False)
    except (ImportError, OSError, RuntimeError, ValueError):
        return False
    if not _native.stacks_register():
        return False
    # A second call replaces the first.
    atexit.unregister(_native.stacks_end)
    atexit.register(_native.stacks_end)
    return True
