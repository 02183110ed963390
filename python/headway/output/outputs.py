"""Where text goes: to stdout, or to stderr where stdout takes a file; and files apart."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from headway.errors import CommandError, reason_of
from headway.report.terminal import Style


def terminal(is_stdout_taken: bool) -> tuple[TextIO, Style]:
    """Where text goes, and how: stderr if a file goes to stdout. Raises CommandError (exit code 2)
    if that was closed before the interpreter began, as by `>&-` in a shell."""
    name, stream = ("stderr", sys.stderr) if is_stdout_taken else ("stdout", sys.stdout)
    if stream is None:
        raise CommandError(f"{name}: it is closed", exit_code=2)
    return stream, Style.of_stream(stream.fileno(), stream.encoding or "ascii")


def say(stream: TextIO, style: Style, *lines: str) -> None:
    """Prints lines; characters that `stream` cannot encode are escaped. Raises CommandError."""
    if not lines:
        return
    text = "\n".join(lines)
    encoding = stream.encoding or "ascii"
    plain = text if style.blocks else text.replace("µ", "u")
    try:
        print(plain.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        # The interpreter would try once more at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise CommandError(f"{stream.name.strip('<>')}: {reason_of(error)}") from error


def check_apart(written: dict[str, str | None], read: dict[str, str | None]) -> None:
    """Raises CommandError (exit code 2) if two options name one file that one of them writes.
    `written` are paths that json_file.check_path() found."""
    places = {name: os.path.realpath(file) for name, file in read.items() if file is not None}
    for name, path in written.items():
        if path is None:
            continue
        for other, place in places.items():
            if place == path:
                raise CommandError(f"{name} {path!r}: that is the file of {other}", exit_code=2)
        places[name] = path
