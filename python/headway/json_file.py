"""Writes a report as a JSON file, atomically if possible.

This module is loaded before the user's program and used at its end, so it imports nothing that
could disturb the program, in particular not `json`. Up to CPython 3.12, running code from a string
after an uncaught KeyboardInterrupt (as `functools`, which `json` imports, does when it is loaded)
makes the interpreter forget the interrupt: it exits with 1 instead of dying of SIGINT
(`unhandled_keyboard_interrupt`, Python/pythonrun.c).
"""

from __future__ import annotations

import os
import stat

from headway.errors import CommandError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

# Descriptors of files that were opened early, by path, in case the process cannot open them later.
kept_open: dict[str, int] = {}
# `to_blocks` makes blocks of this length or a little more.
BLOCK_CHARACTERS = 1 << 16
# Stands for the process's stdout in place of a path.
STDOUT = "-"
ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\b": "\\b",
    "\f": "\\f",
}


def check_path(file: str, option: str = "--json") -> str:
    """Returns the absolute path that `option` FILE names, or STDOUT. Raises CommandError (exit code
    2) if it cannot be written. Does not change an existing file."""
    path = os.path.abspath(file)
    trial = ""
    try:
        if file == STDOUT:
            os.fstat(1)
            return STDOUT
        if path in kept_open:
            return path
        if not file or file.endswith("/"):
            raise IsADirectoryError(0, "not a file name")
        if is_special(path):
            writable = os.access(path, os.W_OK)
        else:
            path = os.path.realpath(path)
            if os.path.isdir(path):
                raise IsADirectoryError(0, "is a directory")
            writable = not os.path.exists(path) or os.access(path, os.W_OK)
            # Permissions do not cover all cases (read-only file systems, long names): try to write.
            trial = f"{path}.{os.getpid()}.tmp"
            os.close(os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            os.unlink(trial)
        if not writable:
            raise PermissionError(0, "Permission denied")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CommandError(f"{option} {file!r} cannot be written: {reason}", exit_code=2) from error
    return path


def is_special(path: str) -> bool:
    """Whether `path` must be written in place instead of replaced: a terminal, a pipe,
    /dev/stdout."""
    if path == STDOUT:
        return True
    if path.startswith(("/dev/", "/proc/")):
        return os.path.exists(path) and not os.path.isdir(path)
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def write_json(report: dict[str, Any] | list[dict[str, Any]], path: str) -> None:
    """Writes `report` to `path`. Raises OSError, and TypeError for a value without a JSON
    representation."""
    write(f"{to_json(report)}\n".encode("ascii"), path)


def write(data: bytes, path: str) -> None:
    """Writes `data` to `path`. Raises OSError."""
    write_blocks((data,), path)


def write_blocks(blocks: Iterable[bytes], path: str) -> None:
    """Writes `blocks` to `path` without holding all of them in memory. Raises OSError."""
    if is_special(path):
        to_stdout = path == STDOUT
        descriptor = 1 if to_stdout else os.open(path, os.O_WRONLY | os.O_APPEND)
        with open(descriptor, "wb", closefd=not to_stdout) as stream:
            stream.writelines(blocks)
        return
    if path in kept_open and _is_elsewhere(path, kept_open[path]):
        os.ftruncate(kept_open[path], 0)
        with open(kept_open[path], "wb", closefd=False) as stream:
            stream.writelines(blocks)
        return
    trial = f"{path}.{os.getpid()}.tmp"
    # Others can guess the name, so the file has to be new. One of a process that had the same pid
    # and was killed goes; one of another user stays, and the folder's sticky bit says so.
    if os.path.lexists(trial):
        os.unlink(trial)
    descriptor = os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with open(descriptor, "wb") as stream:
            stream.writelines(blocks)
        os.replace(trial, path)
    except BaseException:
        if os.path.isfile(trial):
            os.unlink(trial)
        raise


def to_blocks(pieces: Iterable[str]) -> Iterator[bytes]:
    """Joins pieces of ASCII to larger blocks, for `write_blocks`."""
    gathered: list[str] = []
    characters = 0
    for piece in pieces:
        gathered.append(piece)
        characters += len(piece)
        if characters >= BLOCK_CHARACTERS:
            yield "".join(gathered).encode("ascii")
            gathered, characters = [], 0
    yield "".join(gathered).encode("ascii")


def _is_elsewhere(path: str, descriptor: int) -> bool:
    """Whether the file open at `descriptor` still has a name, but `path` either names another file
    or can no longer be replaced."""
    status = os.fstat(descriptor)
    try:
        same = os.path.samestat(os.stat(path), status)
    except OSError:
        same = False
    return status.st_nlink > 0 and not (same and os.access(os.path.dirname(path), os.W_OK))


def to_json(value: Any) -> str:
    """Returns `value` as `json.dumps` with the shortest separators does. Numbers must be finite."""

    def encode(value: Any) -> str:
        if value is None or value is True or value is False:
            return {None: "null", True: "true", False: "false"}[value]
        if isinstance(value, str):
            return _quoted(value)
        if isinstance(value, (int, float)):
            return repr(value)
        if isinstance(value, (list, tuple)):
            return f"[{','.join(map(encode, value))}]"
        if isinstance(value, dict):
            pairs = (f"{encode(str(key))}:{encode(each)}" for key, each in value.items())
            return f"{{{','.join(pairs)}}}"
        raise TypeError(f"{type(value).__name__} is not for JSON")

    return encode(value)


def _quoted(text: str) -> str:
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in ESCAPES:
        return ESCAPES[character]
    code = ord(character)
    if 0x20 <= code < 0x7F:
        return character
    if code < 0x10000:
        return f"\\u{code:04x}"
    # A surrogate pair (RFC 8259, section 7).
    return f"\\u{0xD800 + (code - 0x10000 >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
