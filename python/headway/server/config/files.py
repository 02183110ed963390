"""Reads the files of a configuration."""

from __future__ import annotations

import os
import stat

from headway.errors import CommandError

MAX_BYTES = 4 * 2**20
KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


class ConfigurationFiles:
    """`paths` has every file that was to be read, including the files of an attempt that failed,
    since a change of one of them may correct the error."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def read(self, path: str, errors: str = "strict") -> str:
        """Returns the file's text. Raises `CommandError` if it is larger than `MAX_BYTES` or no
        regular file, since SIGHUP reads it again; `OSError`; and `UnicodeDecodeError`, unless
        `errors` prevents it."""
        if path not in self.paths:
            self.paths.append(path)
        # Only a line feed ends a line, as in httpd; a carriage return may be within a comment.
        with open(
            path, encoding="utf-8", errors=errors, newline="\n", opener=_open_at_once
        ) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) and path != os.devnull:
                found = KINDS.get(stat.S_IFMT(status.st_mode), "something else")
                raise CommandError(f"{path}: found {found}; allowed: a file", exit_code=2)
            if status.st_size > MAX_BYTES:
                raise CommandError(
                    f"{path}: found {status.st_size} bytes; allowed: up to {MAX_BYTES}",
                    exit_code=2,
                )
            return file.read(MAX_BYTES)


def _open_at_once(path: str, flags: int) -> int:
    """Opens without blocking: opening a pipe would otherwise wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)
