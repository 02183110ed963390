"""Stops the threads of Headway for each fork: see `crates/native/src/forks.rs`."""

from __future__ import annotations

import os

_are_followed = False


def follow() -> None:
    """Applies to all later forks of this process and of its forked children."""
    global _are_followed
    if _are_followed:
        return
    _are_followed = True
    # `functools` is not loaded in every program. A partial, too, is called without Python code.
    from _functools import partial  # type: ignore[import-not-found]

    from headway import _native

    ends = _native.fork_ends_in_parent
    _native.fork_follow(partial(os.register_at_fork, after_in_parent=ends))
    # Built-in functions: CPython runs no Python between them, and so no signal handler.
    os.register_at_fork(
        before=_native.fork_begins,
        after_in_parent=ends,
        after_in_child=_native.fork_ends_in_child,
    )
