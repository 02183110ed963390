"""The project's addresses in the pages that name them. Their one place is `project.urls` of
pyproject.toml. A page has them between two comments, and nothing there while none is set.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = ("README.md", "SECURITY.md", "docs/index.md", "docs/installation.md")
# The names of pyproject.toml, in the order of the pages.
NAMES = ("Repository", "Documentation", "Issues", "Security")
# Markdown would take a line that begins with a comment as HTML, and show its links as text.
PLACE = re.compile(r"(?<=\S)(<!-- addresses -->).*?(<!-- end -->)")


def addresses() -> dict[str, str]:
    """Raises KeyError for a name that no page would show."""
    # mypy checks for 3.10, whose library lacks it.
    tomllib = import_module("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    urls: dict[str, str] = project.get("urls", {})
    for name in urls:
        if name not in NAMES:
            raise KeyError(f"pyproject.toml, project.urls: found {name}; allowed: {NAMES}")
    return urls


def fill(page: str, urls: dict[str, str]) -> str:
    """Raises ValueError for a page without a place for addresses."""
    links = ", ".join(f"[{name}]({urls[name]})" for name in NAMES if name in urls)
    filled, places = PLACE.subn(rf"\g<1>{f' {links}.' if links else ''}\g<2>", page)
    if not places:
        raise ValueError("the page has no place for addresses")
    return filled
