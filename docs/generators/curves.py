"""The curves of `docs/scaling.md` and `docs/site.md`, drawn from their tables.

A table has a curve if `<!-- curve: FILE | LABEL -->` stands before it. The first column is the x
axis, every other column a line, and LABEL is the label of the y axis. Both axes are logarithmic.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from matplotlib import rc_context
from matplotlib.figure import Figure

DOCS = Path(__file__).resolve().parent.parent
PAGES = (DOCS / "scaling.md", DOCS / "site.md")
TABLE = re.compile(r"^<!-- curve: (\S+) \| (.+) -->\n+((?:\|.*\n)+)", re.MULTILINE)
NUMBER = re.compile(r"[\d,.]+")
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "headway", "font.size": 9.0}
MARKERS = "osD^vxP*<>+d"
WIDTH_INCHES, HEIGHT_INCHES = 6.4, 3.0
# With more lines the legend stands beside the axes.
LINES_BELOW_LEGEND = 6


class Curve(NamedTuple):
    file: str
    x_label: str
    y_label: str
    # By the heading of the column: its points.
    lines: dict[str, list[tuple[float, float]]]


def curves() -> Iterator[Curve]:
    for page in PAGES:
        yield from curves_of(page)


def curves_of(page: Path) -> Iterator[Curve]:
    """Raises ValueError for a table whose first column has a cell without a number."""
    for file, y_label, text in TABLE.findall(page.read_text()):
        headings, _, *rows = (cells(line) for line in text.splitlines())
        lines: dict[str, list[tuple[float, float]]] = {name: [] for name in headings[1:]}
        for place, *values in rows:
            x = number(place)
            if x is None:
                raise ValueError(f"{page.name}, curve {file}: {place!r} is no number")
            for name, value in zip(headings[1:], values, strict=True):
                y = number(value)
                # A logarithmic axis has no 0.
                if y and x:
                    lines[name].append((x, y))
        yield Curve(file, headings[0], y_label, lines)


def cells(line: str) -> list[str]:
    return [cell.strip(" `") for cell in line.strip().strip("|").split("|")]


def number(cell: str) -> float | None:
    """The first number of a cell."""
    found = NUMBER.search(cell)
    return float(found[0].replace(",", "")) if found else None


def draw(curve: Curve) -> bytes:
    file = io.BytesIO()
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained")
        axes = figure.add_subplot(
            xscale="log", yscale="log", xlabel=curve.x_label, ylabel=curve.y_label
        )
        for marker, (name, points) in zip(MARKERS, curve.lines.items(), strict=False):
            if points:
                axes.plot(*zip(*points, strict=True), marker=marker, label=name, markersize=4)
        axes.grid(visible=True, linewidth=0.5)
        beside = len(curve.lines) > LINES_BELOW_LEGEND
        place = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if beside else {}
        axes.legend(frameon=False, **place)
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()
