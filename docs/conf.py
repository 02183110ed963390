"""The site of the documents: `make docs` builds it into site/."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from headway import __version__, cli

project = "Headway"
version = release = __version__
copyright = "the Headway authors"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["requirements.txt"]
html_theme = "furo"
html_title = f"Headway {release}"
html_show_sourcelink = False
# Help texts and reports are 100 columns wide, and have to fit into the column of text.
html_theme_options = {
    "light_css_variables": {"code-font-size": "72%"},
    "dark_css_variables": {"code-font-size": "72%"},
}
default_role = "literal"
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_preserve_defaults = True

ROOT = Path(__file__).resolve().parent
VERBS = ROOT / "reference" / "cli.md"


def help_of(name: str) -> str:
    """The output of `headway NAME --help`, 100 columns wide."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        cli.main([name, "--help"])
    return output.getvalue()


def write_verbs() -> None:
    """Writes the page of the command line from the parsers, where it changed."""
    parts = ["# The command line\n\nThis page is generated from the commands themselves.\n"]
    for verb in cli.VERBS:
        import_module(verb.module)
        parts.append(f"## headway {verb.name}\n\n```text\n{help_of(verb.name).rstrip()}\n```\n")
    text = "\n".join(parts)
    if not VERBS.exists() or VERBS.read_text() != text:
        VERBS.write_text(text)


def mark_examples(
    app: object, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Makes indented examples of docstrings code blocks of reStructuredText."""
    found: list[str] = []
    for line in lines:
        if re.match(r" {4}\S", line) and found and not found[-1].strip():
            before = next((each for each in reversed(found) if each.strip()), "")
            if not before.startswith("    ") and not before.endswith("::"):
                found += ["::", ""]
        found.append(line)
    lines[:] = found


def setup(app: Any) -> None:
    # argparse reads the width of help texts from here.
    os.environ["COLUMNS"] = "100"
    write_verbs()
    app.connect("autodoc-process-docstring", mark_examples)


assert sys.version_info >= (3, 13), "the site is built by CPython 3.13"
