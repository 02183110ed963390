"""Watches the files that the application consists of (`--reload`), by the library watchfiles.

A thread of the supervisor's process waits for changes and makes `fileno()` readable; it does
nothing else. Directories are watched, since editors replace files.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from headway.errors import CommandError
from headway.extras import how_to_install
from headway.server.file_state import MISSING, FileState, state_of

# A change is told when nothing more has changed for so long.
QUIET_MS = 100
# How often the thread looks whether there is more to watch.
LOOK_UP_MS = 500


class Watcher:
    def __init__(self, paths: Iterable[str]) -> None:
        """Raises `CommandError` if watchfiles is not installed."""
        try:
            watchfiles: Any = importlib.import_module("watchfiles")
        except ImportError:
            raise CommandError(
                f"--reload needs the package watchfiles: {how_to_install('reload')}",
                exit_code=2,
            ) from None
        self._watch = watchfiles.watch
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        # As each was when it was added or told. Read by the thread while the supervisor adds to
        # it: only whole dicts are assigned, with the lock held.
        self._paths: dict[str, FileState] = {}
        self._paths_lock = threading.Lock()
        self._changed: str | None = None
        self._outdated = threading.Event()
        self._is_over = False
        self.add(paths)
        self._thread = threading.Thread(target=self._run, name="headway-watcher", daemon=True)
        self._thread.start()

    def add(self, paths: Iterable[str]) -> None:
        """From now on these too."""
        self.add_imported({path: state_of(path) for path in map(os.path.abspath, paths)})

    def add_imported(self, states: Mapping[str, FileState]) -> None:
        """The same from the time on that they were as is said."""
        with self._paths_lock:
            before = self._paths
            self._paths = {**states, **before}
        if _folders(before) != _folders(self._paths):
            self._outdated.set()
        # Who has imported it and who has told of it before need not have seen the same. Of a file
        # that cannot be seen from here nothing is known.
        changed = {path for path in states if state_of(path) not in (MISSING, states[path])}
        if changed:
            self._tell(changed)

    def fileno(self) -> int:
        return self._read_fd

    def changed(self) -> str | None:
        """A file that changed since the last call."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_fd, 4096)
        changed, self._changed = self._changed, None
        return changed

    def close(self) -> None:
        self._is_over = True
        self._outdated.set()
        self._thread.join()
        os.close(self._read_fd)
        os.close(self._write_fd)

    def _run(self) -> None:
        while not self._is_over:
            self._outdated.clear()
            is_first = True
            for changes in self._watch(
                *_folders(self._paths),
                watch_filter=lambda _, path: path in self._paths,
                step=QUIET_MS,
                stop_event=self._outdated,
                recursive=False,
                raise_interrupt=False,
                rust_timeout=LOOK_UP_MS,
                yield_on_timeout=True,
            ):
                # Any may have changed before it was watched.
                looked_at = self._paths.keys() if is_first else {path for _, path in changes}
                is_first = False
                if changed := {path for path in looked_at if self._is_newer(path)}:
                    self._tell(changed)

    def _is_newer(self, path: str) -> bool:
        return state_of(path) != self._paths[path]

    def _tell(self, changed: set[str]) -> None:
        with self._paths_lock:
            self._paths = self._paths | {path: state_of(path) for path in changed}
        self._changed = min(changed)
        with contextlib.suppress(BlockingIOError):
            os.write(self._write_fd, b"!")


def _folders(paths: Iterable[str]) -> list[str]:
    return sorted({os.path.dirname(path) for path in paths if os.path.exists(path)})
