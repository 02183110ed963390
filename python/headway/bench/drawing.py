"""Tables for a terminal. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headway import columns
from headway.bench.table import Cell, Table


def number(value: float) -> str:
    """Three significant digits, and no more than a reader needs; - for what is not known."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "inf"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    digits = min(6, max(0, 2 - math.floor(math.log10(abs(value)))))
    return f"{value:.{digits}f}"


def cell_text(cell: Cell) -> str:
    """A median, how far its confidence interval goes to either side, and what was published."""
    mark = "!" if cell.unstable else ""
    text = cell.text if cell.value is None else f"{number(cell.value)}{mark}"
    if cell.published is not None:
        text += f" ({number(cell.published)})"
    return text


def draw(table: Table) -> str:
    """Aligned columns: the first `names` to the left, figures to the right."""
    lines = [list(table.headings), *([cell_text(cell) for cell in row] for row in table.rows)]
    widths = [max(map(columns.width, column)) for column in zip(*lines, strict=True)]
    text = [table.title, *(aligned(line, widths, table.names) for line in lines)]
    return "\n".join([*text, table.note] if table.note else text)


def aligned(cells: Sequence[str], widths: Sequence[int], names: int) -> str:
    padded = [
        columns.pad(cell, width) if place < names else " " * (width - columns.width(cell)) + cell
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  " + "  ".join(padded).rstrip()
