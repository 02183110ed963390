"""The report of examples/convoy.py in README.md, as a terminal shows it.

The text is the one that `headway.report.terminal` writes, coloured, of the report that
docs/reports/convoy.json has: `headway run --json docs/reports/convoy.json examples/convoy.py`. The
escape sequences become classes of SVG, and bars become rectangles, since fonts differ in how they
draw blocks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

from headway.report import terminal
from headway.report.model import GilReport

REPORT = Path(__file__).resolve().parent.parent / "reports" / "convoy.json"
COMMAND = "headway run examples/convoy.py"
COLUMNS = 100
CHARACTER, LINE, MARGIN, TITLE = 8.4, 19, 18, 34
# By the parameter of the escape sequence.
CLASSES = {"1": "bold", "2": "dim", "36": "marked"}
ESCAPE = re.compile(r"\x1b\[(\d+)m")
RUN = re.compile(rf"[{terminal.BLOCKS}]+|[^\s{terminal.BLOCKS}]+(?: [^\s{terminal.BLOCKS}]+)*")
STYLE = """
text { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
font-size: 14px; fill: #17211f; }
.page { fill: #fbfcfc; stroke: #c9d3d0; } .bar { fill: #00694f; } .bar.marked { fill: #b4462a; }
.bold { font-weight: 700; } .dim { fill: #52605c; } text.marked { fill: #a33a1e; }
.cause { font-weight: 700; } .prompt { fill: #00694f; font-weight: 700; } .dot { fill: #c9d3d0; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edea; } .page { fill: #0d1117; stroke: #36423f; } .bar { fill: #3fbf93; }
.bar.marked { fill: #e0805f; } .dim { fill: #9fb0aa; } text.marked { fill: #f0a285; }
.prompt { fill: #3fbf93; } .dot { fill: #36423f; }
}
"""


def draw() -> bytes:
    report = GilReport.decode(json.loads(REPORT.read_text()))
    lines = terminal.draw(report, terminal.Style(COLUMNS, colour=True)).splitlines()
    last = max(number for number, each in enumerate(lines) if not each)
    width = 2 * MARGIN + COLUMNS * CHARACTER
    height = TITLE + (len(lines) + 1) * LINE + MARGIN + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width:.0f} {height}" '
        f'aria-labelledby="title"><title id="title">{escape(" ".join(lines[last + 1 :]))}</title>'
        f"<style>{STYLE}</style>"
        f'<rect class="page" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1}" '
        'rx="8"/>',
        *(f'<circle class="dot" cx="{MARGIN + 4 + 18 * n}" cy="17" r="5"/>' for n in range(3)),
        _text(0, TITLE + 12, "$", "prompt"),
        _text(2, TITLE + 12, COMMAND, "bold"),
    ]
    for number, each in enumerate(lines):
        parts += _line(each, TITLE + 12 + (number + 1) * LINE, "cause" if number > last else "")
    return "\n".join([*parts, "</svg>\n"]).encode()


def _line(line: str, y: float, kind: str) -> Iterator[str]:
    column = 0
    # Odd parts are parameters of escape sequences.
    for number, part in enumerate(ESCAPE.split(line)):
        if number % 2:
            kind = CLASSES.get(part, "")
            continue
        for run in RUN.finditer(part):
            start = column + run.start()
            if run[0][0] in terminal.BLOCKS:
                eighths = sum(8 - terminal.BLOCKS.index(each) for each in run[0])
                yield (
                    f'<rect class="bar {kind}" x="{_x(start):.1f}" y="{y - 13}" '
                    f'width="{eighths * CHARACTER / 8:.1f}" height="15"/>'
                )
            else:
                yield _text(start, y, run[0], kind)
        column += len(part)


def _x(column: float) -> float:
    return MARGIN + column * CHARACTER


def _text(column: float, y: float, text: str, kind: str) -> str:
    """As wide as its columns, whatever the font."""
    return (
        f'<text x="{_x(column):.1f}" y="{y}" class="{kind}" '
        f'textLength="{len(text) * CHARACTER:.1f}" lengthAdjust="spacingAndGlyphs">'
        f"{escape(text)}</text>"
    )
