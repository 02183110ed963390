"""Watches the application's files for `--reload` with the library watchfiles.

A thread of the supervisor's process only waits for changes and makes `fileno()` readable. It
watches directories, since editors replace files.
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
from headway.server.stderr import say

# A change is reported when no further change follows for this long.
QUIET_MS = 100
# Far more than an application imports. What an application reports is not to be trusted.
MAX_FILES = 50_000
# How often the thread checks whether the set of directories has changed.
LOOK_UP_MS = 500
# The pause after the watch failed, which it may do for long.
RETRY_S = 1.0


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
        # The state of each file when it was added or last reported. The thread reads the dict while
        # the supervisor adds files, so a dict is never modified, only replaced with the lock held.
        self._paths: dict[str, FileState] = {}
        self._paths_lock = threading.Lock()
        self._changed: str | None = None
        self._outdated = threading.Event()
        self._is_over = False
        self.add(paths)
        self._thread = threading.Thread(target=self._run, name="headway-watcher", daemon=True)
        self._thread.start()

    def add(self, paths: Iterable[str]) -> None:
        """Also watches `paths` from now on."""
        self.add_imported({path: state_of(path) for path in map(os.path.abspath, paths)})

    def add_imported(self, states: Mapping[str, FileState]) -> None:
        """Also watches the files in `states`, and reports those that no longer have the state that
        is given for them."""
        if self._is_over or len(self._paths) >= MAX_FILES:
            return
        with self._paths_lock:
            before = self._paths
            self._paths = {**states, **before}
        new = {os.path.dirname(path) for path in states.keys() - before.keys()}
        if not new <= {os.path.dirname(path) for path in before}:
            self._outdated.set()
        # `states` is compared even for a known file, since each process may have imported another
        # state of it. A file that is missing here is not compared.
        changed = {path for path in states if state_of(path) not in (MISSING, states[path])}
        if changed:
            self._tell(changed)

    def fileno(self) -> int:
        return self._read_fd

    def changed(self) -> str | None:
        """A file that changed since the last call, or `None`."""
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
        has_failed = False
        while not self._is_over:
            self._outdated.clear()
            try:
                self._watch_files()
                has_failed = False
            except Exception as error:
                # Such as the kernel's limit of watches.
                if not has_failed:
                    say(f"--reload: files cannot be watched: {error}; it is tried again")
                has_failed = True
                self._outdated.wait(RETRY_S)

    def _watch_files(self) -> None:
        """Reports changed files until the set of folders is outdated."""
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
            # Any file may have changed before the watch began.
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
