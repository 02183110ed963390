"""Writes a report as a JSON file, whole or not at all where that can be had.

Runs at the end of other people's programs, and does without the `json` package for their sake: up
to CPython 3.12, code that is compiled from a string after an uncaught KeyboardInterrupt (as
`functools`, which `json` imports, does when it is loaded) makes the interpreter forget that it was
interrupted: it exits with 1 instead of dying of SIGINT (`unhandled_keyboard_interrupt`,
Python/pythonrun.c).
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def is_special(path: str) -> bool:
    """Whether `path` must be written in place, not replaced: a terminal, a pipe, /dev/stdout."""
    if path.startswith(("/dev/", "/proc/")):
        return os.path.exists(path) and not os.path.isdir(path)
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def write_json(report: dict[str, Any], path: str) -> None:
    """Writes `report` to `path`. Raises OSError; TypeError for what JSON has no word for."""
    data = (to_json(report) + "\n").encode("ascii")
    if is_special(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        with open(descriptor, "wb") as stream:
            stream.write(data)
        return
    trial = f"{path}.{os.getpid()}.tmp"
    try:
        with open(trial, "wb") as stream:
            stream.write(data)
        os.replace(trial, path)
    except OSError:
        if os.path.isfile(trial):
            os.unlink(trial)
        raise


def to_json(value: Any) -> str:
    """`value` as `json.dumps` with the narrowest separators has it; numbers must be finite."""
    # CPython's own C code for the hard part.
    from _json import encode_basestring_ascii

    def encode(value: Any) -> str:
        if value is None or value is True or value is False:
            return {None: "null", True: "true", False: "false"}[value]
        if isinstance(value, str):
            return str(encode_basestring_ascii(value))
        if isinstance(value, (int, float)):
            return repr(value)
        if isinstance(value, (list, tuple)):
            return f"[{','.join(map(encode, value))}]"
        if isinstance(value, dict):
            pairs = (f"{encode(str(key))}:{encode(each)}" for key, each in value.items())
            return f"{{{','.join(pairs)}}}"
        raise TypeError(f"{type(value).__name__} is not for JSON")

    return encode(value)
