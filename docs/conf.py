"""The site of the documents: `make docs` builds it into site/."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headway import __version__

project = "Headway"
version = release = __version__
copyright = "the Headway authors"
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

from generators import (  # noqa: E402
    curves,
    drawings,
    json_documents,
    metrics,
    options,
    public_names,
    verbs,
)

PAGES = {
    "reference/cli.md": verbs.page,
    "reference/options.md": options.page,
    "reference/json.md": json_documents.page,
    "reference/metrics.md": metrics.page,
}
DRAWINGS = ROOT / "explanation" / "drawings"
CURVES = ROOT / "drawings"


def write_generated() -> None:
    """Writes the pages and drawings that the code is the source of, where they changed."""
    for name, page in PAGES.items():
        _write(ROOT / name, page().encode())
    DRAWINGS.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        for name in drawings.DRAWINGS:
            _write(DRAWINGS / name, drawings.draw(name, Path(folder)))
    CURVES.mkdir(exist_ok=True)
    for curve in curves.curves():
        _write(CURVES / curve.file, curves.draw(curve))


def _write(file: Path, content: bytes) -> None:
    if not file.exists() or file.read_bytes() != content:
        file.write_bytes(content)


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
    public_names.check()
    write_generated()
    app.connect("autodoc-process-docstring", mark_examples)


assert sys.version_info >= (3, 13), "the site is built by CPython 3.13"
