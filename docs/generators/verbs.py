"""The page of the command line: what `headway VERB --help` prints."""

from __future__ import annotations

import contextlib
import io
from importlib import import_module

from headway import cli
from headway.verbs import VERBS, added_verbs

INTRODUCTION = """\
# The command line

This page is generated from the commands themselves.
"""


def page() -> str:
    parts = [INTRODUCTION]
    for verb in (*VERBS, *added_verbs()):
        forms = getattr(import_module(verb.module), "FORMS", ())
        for words in ([verb.name], *([verb.name, form] for form in forms)):
            heading = "#" * (len(words) + 1)
            parts.append(
                f"{heading} headway {' '.join(words)}\n\n```text\n{_help(*words).rstrip()}\n```\n"
            )
    return "\n".join(parts)


def _help(*words: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        cli.main([*words, "--help"])
    return output.getvalue()
