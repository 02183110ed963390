"""The callback by which the meter knows when the garbage collector keeps the GIL.

A pass of the collector cannot be preempted, and no counter of the engine tells it from a call into
C code. CPython reports passes to `gc.callbacks` of each interpreter alone. A program that empties
that list loses the figures of its passes, and nothing else.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def follow(callback: Callable[..., None]) -> None:
    """Adds the callback to this interpreter, once."""
    import gc

    # Callbacks of the program may have an `__eq__` of their own.
    if not any(each is callback for each in gc.callbacks):
        gc.callbacks.append(callback)


def unfollow(callback: Callable[..., None]) -> None:
    """Removes the callback from this interpreter, if it is there."""
    import gc

    gc.callbacks[:] = [each for each in gc.callbacks if each is not callback]
