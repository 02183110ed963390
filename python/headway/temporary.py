"""Files and folders that a command of Headway needs while it runs. Where none can be made, as on a
read-only file system, one line says so."""

from __future__ import annotations

import tempfile
from typing import IO

from headway.errors import CommandError, reason_of

INSTEAD = "the environment variable TMPDIR may name a folder that can be written to"


def temporary_file() -> IO[bytes]:
    """A file without a name. Raises `CommandError`."""
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise CommandError(f"no temporary file: {reason_of(error)}; {INSTEAD}") from None


def temporary_folder(verb: str) -> tempfile.TemporaryDirectory[str]:
    """A folder that is removed at the end of a `with` block, and whose name has the verb that it is
    for. Raises `CommandError`."""
    try:
        return tempfile.TemporaryDirectory(prefix=f"headway-{verb}-")
    except OSError as error:
        raise CommandError(f"no temporary folder: {reason_of(error)}; {INSTEAD}") from None
