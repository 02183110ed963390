"""The page of the command line: what `headway VERB --help` prints."""

from __future__ import annotations

import contextlib
import io
from importlib import import_module

from headway import cli

INTRODUCTION = """\
# The command line

This page is generated from the commands themselves.
"""


def page() -> str:
    parts = [INTRODUCTION]
    for verb in cli.VERBS:
        import_module(verb.module)
        parts.append(f"## headway {verb.name}\n\n```text\n{_help(verb.name).rstrip()}\n```\n")
    return "\n".join(parts)


def _help(name: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        cli.main([name, "--help"])
    return output.getvalue()
