"""A timeline as a drawing: a self-contained SVG file with a light and a dark theme.

The drawing has one lane for each thread; below the lanes one wait is magnified, described step by
step, and summed up in words. Pure: the same timeline gives the same bytes. `panel` draws the lanes;
this module arranges the parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from headway.report import columns, units
from headway.trace import caption, window
from headway.trace.panel import Panel, badge, line, n, rect, text
from headway.trace.timeline import REQUEST, RUNNING, Timeline
from headway.trace.tracks import lanes
from headway.trace.walk_through import episode, magnified, time
from headway.trace.window import TimelineWindow

STYLE = resources.files("headway.trace").joinpath("drawing.css").read_text("utf-8")

WIDTH, MARGIN = 1000, 14
# The height of a line of text in px, and the number of characters that fit on one.
LINE, CHARACTERS = 21, 132
MOST_LANES, MOST_MAGNIFIED = 40, 5


def draw(timeline: Timeline, *, whole: bool = False, name: str = "timeline") -> str:
    """Returns the file's text. Unless `whole` is true, a long timeline is reduced to a
    representative window. `name` is the prefix of the ids of the elements, so that several
    drawings can stand in one page."""
    shown = window.all_of(timeline) if whole else window.telling(timeline)
    steps = episode(shown)
    numbered = [(str(place), step) for place, step in enumerate(steps, start=1)]
    threads = {step.thread for step in steps}
    drawn, left_out = lanes(shown.timeline, MOST_LANES, threads)
    title = columns.name(timeline.title, 90)
    told = caption.sentences(shown)
    parts = [text("title", MARGIN, 32, title), text("muted", MARGIN, 55, caption.heading(shown))]
    signs, y = _legend(shown.timeline, name, 80)
    parts += signs
    panel = Panel(shown.timeline, drawn, WIDTH, y, name, zero_ns=shown.zero_ns, badges=numbered)
    parts += panel.draw()
    panels, y = [panel], panel.bottom + 16
    if not drawn:
        parts.append(text("muted", MARGIN, y, "Nothing was seen of any thread."))
        y += LINE
    part = magnified(shown.timeline, steps)
    if part is not None:
        inner, others = lanes(part, MOST_MAGNIFIED, threads)
        ratio = (shown.timeline.end_ns - shown.timeline.begin_ns) / (part.end_ns - part.begin_ns)
        badges = [each for each in numbered if part.begin_ns <= each[1].at_ns <= part.end_ns]
        lens = Panel(
            part,
            inner,
            WIDTH,
            y + 34,
            name,
            zero_ns=badges[0][1].at_ns,
            badges=badges,
            figures=False,
        )
        parts += [*_lens(panel, lens, part), *lens.draw()]
        beside = [f"{badges[0][0]} to {badges[-1][0]}", f"magnified {ratio:,.0f} times"]
        beside += [f"{units.number(others, 'other thread')}", "not drawn"] if others else []
        # Four lines end above the name of the first lane if they begin higher than two.
        parts += _lines("muted small", MARGIN, lens.top + (14 if others else 30), beside, 16)
        panels.append(lens)
        y = lens.bottom + 16
    for number, step in numbered:
        lines = caption.paragraph(step.text, CHARACTERS)
        parts += [badge(MARGIN + 10, y + 12, number)]
        parts += _lines("", MARGIN + 30, y + 16, lines)
        y += LINE * len(lines) + 3
    y += 12 if numbered else 0
    lines = caption.paragraph(" ".join(told), CHARACTERS - 8)
    parts += _lines("caption", MARGIN, y + 14, lines)
    y += LINE * len(lines) + 8
    lines = caption.paragraph(" ".join(_notes(shown, panels, left_out)), CHARACTERS + 12)
    parts += _lines("muted small", MARGIN, y + 10, lines, 16)
    height = y + 16 * len(lines) + 14
    return _file(name, title, " ".join(told + [step.text for step in steps]), parts, height)


def _file(name: str, title: str, told: str, parts: Iterable[str], height: float) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="timeline" role="img" '
            f'viewBox="0 0 {WIDTH} {n(height)}" width="{WIDTH}" height="{n(height)}" '
            f'aria-labelledby="{name}-title {name}-description">',
            f'<title id="{name}-title">{escape(title, quote=False)}</title>',
            f'<desc id="{name}-description">{escape(told, quote=False)}</desc>',
            f"<style>\n{STYLE}</style>",
            _definitions(name),
            rect("page", 0, 0, WIDTH, height),
            *parts,
            "</svg>\n",
        ]
    )


def _definitions(name: str) -> str:
    """Hatching, dots and arrowheads, which distinguish the kinds of spans without colours."""
    heads = "".join(
        f'<marker id="{name}-{kind}-head" class="{kind}-head" viewBox="0 0 8 8" refX="6" refY="4" '
        'markerWidth="7" markerHeight="7" markerUnits="userSpaceOnUse" orient="auto">'
        f'<path d="{shape}"/></marker>'
        for kind, shape in (("ask", "M0 0 8 4 0 8 2 4z"), ("pass", "M0 0 8 4 0 8z"))
    )
    return (
        f'<defs><pattern id="{name}-wait" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><path class="wait-ground" d="M0 0h6v6H0z"/>'
        '<path class="wait-line" d="M0 0v6"/></pattern>'
        f'<pattern id="{name}-forced-wait" width="5" height="5" patternUnits="userSpaceOnUse">'
        '<path class="forced-wait-ground" d="M0 0h5v5H0z"/>'
        f'<circle class="forced-wait-dot" cx="2.5" cy="2.5" r="1.1"/></pattern>{heads}</defs>'
    )


def _legend(timeline: Timeline, name: str, y: float) -> tuple[list[str], float]:
    """Returns the legend of the kinds that occur, and the y coordinate below it."""
    parts: list[str] = []
    kinds = {span.kind for span in timeline.spans}
    x = float(MARGIN)
    for sign, said, is_there in (
        (rect("hold", 0, -9, 22, 12, radius=2), "holds the GIL", True),
        (
            rect("hold", 0, -9, 22, 12, radius=2) + rect("forced", 20, -12, 3, 18),
            "was made to drop it",
            True,
        ),
        (rect("wait", 0, -7, 22, 8, f'fill="url(#{name}-wait)"'), "waits for it", True),
        (
            rect("forced-wait", 0, -7, 22, 8, f'fill="url(#{name}-forced-wait)"'),
            "forced wait",
            "forced wait" in kinds,
        ),
        (
            line("ask", 0, -3, 20, -3, f'marker-end="url(#{name}-ask-head)"'),
            "drop request",
            bool(timeline.drop_requests),
        ),
        (
            line("pass", 0, -3, 20, -3, f'marker-end="url(#{name}-pass-head)"'),
            "handoff",
            True,
        ),
        ('<path class="request" d="M0 2v-5h22v5"/>', "request", REQUEST in kinds),
        (rect("running", 0, -4, 22, 2.5), "on a core", RUNNING in kinds),
    ):
        if not is_there:
            continue
        width = 46 + 6.2 * len(said)
        if x + width > WIDTH:
            x, y = float(MARGIN), y + LINE
        parts.append(f'<g transform="translate({n(x)} {n(y)})">{sign}</g>')
        parts.append(text("small", x + 30, y, said))
        x += width
    return parts, y + 16


def _lens(panel: Panel, lens: Panel, part: Timeline) -> Iterable[str]:
    """Connects a part of the panel with its magnified panel."""
    left, right = panel.x(part.begin_ns), panel.x(part.end_ns)
    if right - left < 4:
        left, right = (left + right) / 2 - 2, (left + right) / 2 + 2
    top, y = panel.bottom, lens.top
    yield rect("lens", left, panel.first, right - left, top - panel.first)
    yield (
        f'<path class="lens" d="M{n(left)} {n(top)}H{n(right)}L{n(lens.right)} {n(y)}'
        f'H{n(lens.left)}z"/>'
    )
    yield rect("lens-edge", lens.left, y, lens.right - lens.left, lens.bottom - y + 4, radius=3)


def _notes(shown: TimelineWindow, panels: Sequence[Panel], left_out: int) -> Iterable[str]:
    """Sentences on what the drawing leaves out or does not show to scale."""
    timeline = shown.timeline
    panel = panels[0]
    if panel.widened:
        least_ns = 2 * panel.lasts_ns / (panel.right - panel.left)
        yield f"What lasts less than {time(least_ns)} is drawn that wide."
    if any(each.smeared for each in panels):
        yield "Where short spans crowd, they are as high as the share of the time that they take."
    arrows = sum(each.arrows_left_out for each in panels)
    if arrows:
        yield f"{units.number(arrows, 'arrow')} had no room."
    if left_out:
        yield f"{units.number(left_out, 'thread')} that held and waited least are not drawn."
    if timeline.lost:
        yield f"{units.number(timeline.lost, 'event')} had been lost."


def _lines(
    kind: str, x: float, y: float, lines: Sequence[str], height: float = LINE
) -> Iterable[str]:
    return (text(kind, x, y + place * height, said) for place, said in enumerate(lines))
