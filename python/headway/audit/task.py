"""The tasks of an audit's child processes.

The parent passes a task on the child's command line. The child runs inside the audited application,
so this module imports nothing there.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal, TypedDict

    class Inventory(TypedDict):
        """Import the application and list the extension modules that are loaded then.
        `python_path` goes before the child's own `sys.path`."""

        kind: Literal["inventory"]
        application: str
        python_path: Sequence[str]

    class Interpreters(TypedDict, total=False):
        """Import modules, or the application, in two sub-interpreters. `gil` is "own" or "shared",
        or "main" for no sub-interpreter. `path` replaces `sys.path`; `python_path` goes before it.
        """

        kind: Literal["interpreters"]
        gil: str
        names: Sequence[str]
        application: str | None
        path: Sequence[str]
        python_path: Sequence[str]

    class FreeThreading(TypedDict):
        """Import modules one after another until one switches the GIL on."""

        kind: Literal["free-threading"]
        names: Sequence[str]
        path: Sequence[str]

    Task = Inventory | Interpreters | FreeThreading
