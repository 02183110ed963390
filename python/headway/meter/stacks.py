"""Python stacks of threads for who watches them without the GIL: `_native` reads them.

What writes a stack is faulthandler, on a real-time signal and into a pipe: see
`crates/reporter/src/stacks.rs`.
"""

from __future__ import annotations

from headway import _native


def prepare() -> bool:
    """From now on stacks can be read in this process and in those that are forked from it. Called
    in the main interpreter. False where they cannot be, which costs a report its stacks and nothing
    else."""
    try:
        # Not at the top: in own-GIL sub-interpreters it cannot be imported.
        import faulthandler

        signal, fd = _native.stacks_open()
        faulthandler.register(signal, file=fd, all_threads=False, chain=False)
    except (ImportError, OSError, RuntimeError, ValueError):
        return False
    return _native.stacks_register()
