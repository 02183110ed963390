"""Where results go: the terminal, a file of JSON, a page of HTML.

Where one of the files is stdout, the text goes to stderr. It knows nothing of how results came
about.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TextIO

from headway import json_file
from headway.errors import CommandError, reason_of
from headway.experiments import results_file
from headway.experiments.experiment import Experiment
from headway.experiments.metadata import Metadata
from headway.experiments.results import Results
from headway.report.terminal import Style

Shown = Sequence[tuple[Experiment, Results]]


class Outputs:
    """`json` and `html` are the files of these options, if they were given; `source` is one that is
    read. Raises CommandError (exit code 2) for what cannot be written, for two things in one place,
    and where matplotlib is missing: nobody but the page needs it."""

    def __init__(
        self, *, json: str | None = None, html: str | None = None, source: str | None = None
    ) -> None:
        self._json = None if json is None else json_file.check_path(json)
        self._html = None if html is None else json_file.check_path(html, "--html")
        self._write_page = None if self._html is None else _page_writer()
        check_apart({"--json": self._json, "--html": self._html}, {"--from": source})
        self._stream, self.style = terminal(json_file.STDOUT in (self._json, self._html))

    def say(self, *lines: str) -> None:
        """On the terminal. Raises CommandError."""
        say(self._stream, self.style, *lines)

    def secure(self, metadata: Metadata, shown: Shown) -> None:
        """Writes the results so far, in case the measurement does not end well. A failure is left
        to `write`, which reports it."""
        if self._json is not None and not json_file.is_special(self._json):
            with suppress(CommandError):
                results_file.write(self._json, metadata, shown)

    def write(self, metadata: Metadata, shown: Shown) -> None:
        """All that is to be written. Raises CommandError."""
        try:
            if self._json is not None:
                results_file.write(self._json, metadata, shown)
        finally:
            if self._html is not None and self._write_page is not None:
                self._write_page(self._html, metadata, shown)


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


def _page_writer() -> Callable[[str, Metadata, Shown], None]:
    from headway.experiments.output import page

    return page.write
