"""What goes before sys.path in an interpreter of a process group.

Directories of `python-path` are places where packages are installed, as in mod_wsgi: their .pth
files are heeded, by which editable installs are found. The application's own directory is none:
what has the name of a .pth file there may be anything.
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
    # Sub-interpreters import this module, and need none of that.
    from headway.server.settings import ApplicationGroup, ProcessGroup


def extend(group: ProcessGroup, of_group: ApplicationGroup | None) -> None:
    """For one application group; `None` if the interpreter has none."""
    extend_by(*parts(group, of_group))


def parts(
    group: ProcessGroup, of_group: ApplicationGroup | None
) -> tuple[tuple[str, ...], str | None, tuple[str, ...]]:
    """What `extend_by` takes: as JSON would have it, for an interpreter that is told by text."""
    own = () if of_group is None else of_group.python_path
    return group.python_path, group.app_dir, own


def extend_by(python_path: Iterable[str], app_dir: str | None, own_path: Iterable[str]) -> None:
    """The application group's own directories go first, then the application's, then those of the
    process group."""
    _put_first(python_path)
    if app_dir is not None:
        sys.path.insert(0, app_dir)
    _put_first(own_path)


def _put_first(directories: Iterable[str]) -> None:
    """Each with what its .pth files add behind it."""
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
    """As `site.addsitedir` does, but that a file that cannot be read, such as one that is no text,
    keeps no other from being heeded."""
    if sys.version_info >= (3, 15):
        # It reads all before it runs any, and .start files too.
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
