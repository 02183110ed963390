"""The site of the documents: `make docs` builds it into site/."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from headway import __version__

project = "Headway"
version = release = __version__
copyright = "the Headway authors"
# Not index, so that no page of Markdown needs a directive.
root_doc = "contents"
extensions = ["myst_parser"]
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

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from generators import addresses, generated  # noqa: E402

html_baseurl = addresses.addresses().get("Documentation", "")


def setup(app: Any) -> None:
    generated.write()


assert sys.version_info >= (3, 13), "the site is built by CPython 3.13"
