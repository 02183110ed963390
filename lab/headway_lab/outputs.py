"""Where results go: the terminal, a file of JSON, a page of HTML.

Where one of the files is stdout, the text goes to stderr. This module does not know how results
arise.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from headway import json_file
from headway.errors import CommandError
from headway.output.metadata import Metadata
from headway.output.outputs import check_apart, say, terminal
from headway_lab import results_file
from headway_lab.experiment import Shown


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


def _page_writer() -> Callable[[str, Metadata, Shown], None]:
    from headway_lab import page

    return page.write
