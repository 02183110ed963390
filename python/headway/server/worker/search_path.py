"""The directories before sys.path in an interpreter of a process group.

As in mod_wsgi, the directories of `python-path` are site directories: their .pth files are
processed, so that editable installs are found. The application's own directory is not a site
directory, because a .pth file there may be anything.
"""

from __future__ import annotations

import contextlib
import os
import site
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headway.server.stderr import say

if TYPE_CHECKING:
    # Sub-interpreters import this module and do not need these classes.
    from headway.server.settings import ApplicationGroup, ProcessGroup


def extend(group: ProcessGroup, of_group: ApplicationGroup | None) -> None:
    """Extends sys.path for one application group; `None` if the interpreter has none."""
    extend_by(*parts(group, of_group))


def parts(
    group: ProcessGroup, of_group: ApplicationGroup | None
) -> tuple[tuple[str, ...], str | None, tuple[str, ...]]:
    """The arguments of `extend_by`, in types that JSON can carry to a sub-interpreter."""
    own = () if of_group is None else of_group.python_path
    return group.python_path, group.app_dir, own


def extend_by(python_path: Iterable[str], app_dir: str | None, own_path: Iterable[str]) -> None:
    """Puts the application group's own directories first, then the application's directory, then
    the directories of the process group."""
    _put_first(python_path)
    if app_dir is not None:
        sys.path.insert(0, app_dir)
    _put_first(own_path)


def _put_first(directories: Iterable[str]) -> None:
    """Puts the directories first, each followed by the directories that its .pth files add."""
    place = 0
    for directory in dict.fromkeys(directories):
        sys.path.insert(place, directory)
        before = list(sys.path)
        _heed_pth_files(directory)
        added = [each for each in sys.path if each not in before]
        sys.path[:] = before
        sys.path[place + 1 : place + 1] = added
        place += 1 + len(added)


def _heed_pth_files(directory: str) -> None:
    """Processes .pth files as `site.addsitedir` does, except that after a file that cannot be read,
    such as a binary file, the others are still processed."""
    if sys.version_info >= (3, 15):
        # This version reads all files before it runs any, and also processes .start files.
        with contextlib.suppress(Exception):
            site.addsitedir(directory)
            return
    with contextlib.suppress(OSError):
        names = [name for name in os.listdir(directory) if name.endswith(".pth")]
        for name in sorted(name for name in names if not name.startswith(".")):
            try:
                site.addpackage(directory, name, None)
            except Exception as error:
                say(f"python-path {directory}: {name}: {type(error).__name__}: {error}")
