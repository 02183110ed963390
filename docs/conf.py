"""The site of the documents: `make docs` builds it into site/."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from headway import __version__

project = "Headway"
version = release = __version__
copyright = "the Headway authors"
# Not index, so that no page of Markdown needs a directive.
root_doc = "contents"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["requirements.txt", "generators"]
html_theme = "furo"
html_title = f"Headway {release}"
html_show_sourcelink = False
# Help texts and reports are 100 columns wide, and have to fit into the column of text.
html_theme_options = {
    "light_css_variables": {"code-font-size": "72%"},
    "dark_css_variables": {"code-font-size": "72%"},
}
default_role = "literal"
# Typographic dashes would change the names of flags.
smartquotes = False
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_preserve_defaults = True

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from generators import generated, public_names  # noqa: E402


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
    public_names.check()
    generated.write()
    app.connect("autodoc-process-docstring", mark_examples)


assert sys.version_info >= (3, 13), "the site is built by CPython 3.13"
