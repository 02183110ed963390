"""The files that a configuration is read from."""

from __future__ import annotations


class ConfigurationFiles:
    """`paths` has all that were ever to be read, also those of a reading that failed: it may be one
    of them whose change mends it."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def read(self, path: str, errors: str = "strict") -> str:
        """The file's text. Raises `OSError`, and `UnicodeDecodeError` unless `errors` says how to
        go on."""
        if path not in self.paths:
            self.paths.append(path)
        with open(path, encoding="utf-8", errors=errors) as file:
            return file.read()
