"""Lanes of a timeline as SVG: bars, arrows between them, a time axis, the numbers of the steps.

Pure. A panel knows its position in the drawing; `svg` arranges panels and does not draw lanes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from headway.report import columns, units
from headway.trace import axis, tracks
from headway.trace.handoffs import passes
from headway.trace.timeline import FORCED, FORCED_WAIT, HOLD, REQUEST, WAIT, Span, Timeline
from headway.trace.tracks import Bar, Lane
from headway.trace.walk_through import Step, name_of, time
from headway.trace.window import sums

NAMES_WIDTH, RIGHT = 178, 22
# The smallest width of a bar, and the smallest mean distance of arrows between the same two lanes,
# in px.
LEAST_WIDTH, ARROWS_APART = 2.0, 10.0
AXIS_HEIGHT, BADGES_HEIGHT = 34, 26
# The height of a lane in px by the number of lanes: (most lanes, height).
PITCHES = ((8, 48), (16, 32), (1000, 21))
# The widths in px that a bar needs for a short and for a long label.
NARROW_LABEL, WIDE_LABEL = 58, 150
LABELS = {HOLD: "holds the GIL", WAIT: "waits", FORCED_WAIT: "forced wait", REQUEST: "request"}
CLASSES = {HOLD: "hold", WAIT: "wait", FORCED_WAIT: "forced-wait"}
SMEARS = ("hold", "wait-smear", "forced-wait-dot")
BADGE, MOST_BESIDE = 9, 3
MARKS = 11


class Panel:
    """A panel of lanes. `top` is its upper edge, `bottom` the lower edge of its lanes; `ids` is the
    prefix of the ids of patterns and arrowheads. After drawing, `widened` is true if a bar is
    wider than its span, `smeared` if several spans share a bar, and `arrows_left_out` counts the
    arrows that had no room."""

    def __init__(
        self,
        timeline: Timeline,
        drawn: Sequence[Lane],
        width: float,
        top: float,
        ids: str,
        *,
        zero_ns: int,
        badges: Sequence[tuple[str, Step]] = (),
        figures: bool = True,
    ) -> None:
        self.timeline = timeline
        self.lanes = drawn
        self.left, self.right = float(NAMES_WIDTH), width - RIGHT
        self.ids = ids
        self.zero_ns = zero_ns
        self.badges = badges
        self.figures = figures
        self.lasts_ns = max(1, timeline.end_ns - timeline.begin_ns)
        self.pitch = next(pitch for most, pitch in PITCHES if len(drawn) <= most)
        self.top = top
        self.first = top + AXIS_HEIGHT + (BADGES_HEIGHT if badges else 0)
        self.bottom = self.first + self.pitch * len(drawn)
        self.rows = {lane.thread: row for row, lane in enumerate(drawn)}
        self.widened = self.smeared = False
        self.arrows_left_out = 0

    def x(self, at_ns: float) -> float:
        share = (at_ns - self.timeline.begin_ns) / self.lasts_ns
        return self.left + share * (self.right - self.left)

    def middle(self, thread: int) -> float:
        return self.first + self.pitch * (self.rows[thread] + 0.5)

    @property
    def bar_height(self) -> float:
        return round(self.pitch * 0.52)

    def draw(self) -> list[str]:
        parts = [*self._axis(), *self._names()]
        for lane in self.lanes:
            parts += self._beside(lane)
            parts += self._states(lane)
        return [*parts, *self._arrows(), *self._badges()]

    def _axis(self) -> Iterable[str]:
        timeline = self.timeline
        found = axis.marks(
            timeline.begin_ns, timeline.end_ns, self.zero_ns, MARKS, timeline.switch_interval_ns
        )
        for lane in self.lanes:
            y = self.first + self.pitch * self.rows[lane.thread]
            yield rect("lane", self.left, y + 2, self.right - self.left, self.pitch - 4, radius=3)
        bottom = self.first + self.pitch * len(self.lanes)
        for mark in found:
            x = self.x(mark.at_ns)
            kind = "grid interval" if mark.multiple else "grid"
            yield line(kind, x, self.top + AXIS_HEIGHT - 5, x, bottom)
            yield text("muted small middle", x, self.top + AXIS_HEIGHT - 10, mark.label)
            if mark.multiple:
                said = f"{mark.multiple:,} \N{MULTIPLICATION SIGN}"
                yield text("muted small middle", x, self.top + AXIS_HEIGHT - 24, said)
        if any(mark.multiple for mark in found):
            said = "switch intervals"
            yield text("muted small right", self.left - 14, self.top + AXIS_HEIGHT - 24, said)

    def _names(self) -> Iterable[str]:
        held, waited = (sums(self.timeline, kind) for kind in (HOLD, WAIT))
        several = len({thread.gil for thread in self.timeline.threads if thread.gil}) > 1
        for lane in self.lanes:
            thread = self.timeline.threads[lane.thread]
            middle, said = self.middle(lane.thread), name_of(self.timeline, lane.thread)
            if several and thread.gil:
                said += f" ({columns.name(thread.gil, 12)})"
            figures = (
                f"held {units.share(held.get(lane.thread, 0), self.lasts_ns)}, "
                f"waited {units.share(waited.get(lane.thread, 0), self.lasts_ns)}"
            )
            figures = figures if thread.gil else "no GIL"
            below = self.figures and self.pitch >= PITCHES[0][1]
            name = text("name", 14, middle + (-2 if below else 4), columns.shorten(said, 22))
            yield grouped(name, f"{said}: {figures}")
            if below:
                yield text("muted small", 14, middle + 13, figures)

    def _beside(self, lane: Lane) -> Iterable[str]:
        """Requests above the bars, and the time on a core below them."""
        above = self.middle(lane.thread) - self.bar_height / 2 - 3
        below = self.middle(lane.thread) + self.bar_height / 2 + 2
        path, last = "", self.left - 9
        for span in lane.requests:
            left, right = max(self.x(span.from_ns), last + 3), self.x(span.to_ns)
            if right - left < 1:
                continue
            path += f"M{n(left)} {n(above + 4)}v-4H{n(right)}v4"
            last = right
            if not lane.states and (said := self._label(span, right - left)):
                yield text("small middle", (left + right) / 2, above + 17, said)
        if path:
            yield f'<path class="request" d="{path}"/>'
        path, last = "", self.left - 9
        for span in lane.running:
            left, right = max(self.x(span.from_ns), last), self.x(span.to_ns)
            if right - last >= 0.5:
                path += f"M{n(left)} {n(below)}H{n(right)}v2.5H{n(left)}z"
                last = right
        if path:
            yield f'<path class="running" d="{path}"/>'

    def _states(self, lane: Lane) -> Iterable[str]:
        column_ns = self.lasts_ns / (self.right - self.left)
        found = tracks.bars(lane.states, self.timeline.begin_ns, column_ns, LEAST_WIDTH)
        # Widened bars are drawn last, so that their neighbours do not cover them.
        for bar in sorted(found, key=lambda bar: bar.widened):
            if bar.shares:
                self.smeared = True
                yield self._smear(bar, lane.thread)
            else:
                self.widened |= bar.widened
                yield self._bar(bar, lane.thread)

    def _bar(self, bar: Bar, thread: int) -> str:
        span, kind = bar.spans[0], bar.kind
        height = self.bar_height if kind == HOLD else round(self.bar_height * 0.62)
        x, width = self.left + bar.left, bar.right - bar.left
        # A widened bar must still lie within the panel.
        x = min(max(x, self.left), self.right - width)
        y = self.middle(thread) - height / 2
        fill = "" if kind == HOLD else f'fill="url(#{self.ids}-{CLASSES[kind]})"'
        drawn = rect(CLASSES[kind], x, y, width, height, fill, radius=2 if width > 6 else 0)
        if kind == HOLD and span.how == FORCED and width > 12:
            drawn += rect("forced", x + width - 3, y - 3, 3, height + 6)
        label = self._label(span, width) if not bar.widened else ""
        middle = x + width / 2
        if label and kind != HOLD:
            room = 6.6 * len(label) + 8
            drawn += rect("label", middle - room / 2, y + 1, room, height - 2)
        if label:
            kinds = "small middle on-hold" if kind == HOLD else "small middle"
            drawn += text(kinds, middle, self.middle(thread) + 4, label)
        return grouped(drawn, self._told(bar))

    def _label(self, span: Span, width: float) -> str:
        if width < NARROW_LABEL or self.bar_height < 15:
            return ""
        said = time(span.to_ns - span.from_ns)
        if span.from_ns <= self.timeline.begin_ns or span.to_ns >= self.timeline.end_ns:
            # The span is cut at the panel's edge, so its length is unknown here.
            return LABELS[span.kind] if width >= WIDE_LABEL else ""
        return f"{LABELS[span.kind]} {said}" if width >= WIDE_LABEL else said

    def _smear(self, bar: Bar, thread: int) -> str:
        """A stacked area: for each column, the shares of time held and waited as heights."""
        height, floor = self.bar_height, self.middle(thread) + self.bar_height / 2
        drawn, bases = "", [0.0] * len(bar.shares)
        for state, kind in enumerate(SMEARS):
            if not any(share[state] for share in bar.shares):
                continue
            tops = [base + share[state] for base, share in zip(bases, bar.shares, strict=True)]
            path = f"M{n(self.left + bar.left)} {n(floor - bases[0] * height)}"
            for top in tops:
                path += f"V{n(floor - top * height)}h1"
            for base in reversed(bases):
                path += f"V{n(floor - base * height)}h-1"
            drawn += f'<path class="{kind}" d="{path}z"/>'
            bases = tops
        return grouped(drawn, self._told(bar))

    def _told(self, bar: Bar) -> str:
        """The tooltip of a bar."""
        if len(bar.spans) > 1:
            kinds = [(kind, [s for s in bar.spans if s.kind == kind]) for kind in tracks.STATES]
            return "; ".join(
                f"{units.number(len(spans), kind)}, {time(sum(s.to_ns - s.from_ns for s in spans))}"
                for kind, spans in kinds
                if spans
            )
        (span,) = bar.spans
        how = f", ended {span.how}" if span.how else ""
        return (
            f"{name_of(self.timeline, span.thread)}: {span.kind} of "
            f"{time(span.to_ns - span.from_ns)}{how}"
        )

    def _arrows(self) -> Iterable[str]:
        """Arrows from each drop request to the holder, and for each handoff of the GIL."""
        ways = [
            ("ask", each.at_ns, each.at_ns, each.waiter, each.holder)
            for each in self.timeline.drop_requests
        ]
        ways += [
            ("pass", each.from_ns, each.to_ns, each.dropper, each.taker)
            for each in passes(self.timeline)
        ]
        drawn: dict[tuple[str, int, int], list[tuple[float, float, str]]] = {}
        for kind, from_ns, to_ns, source, target in sorted(ways, key=lambda way: way[1]):
            if source in self.rows and target in self.rows and source != target:
                lasts = "" if kind == "ask" else f": {time(to_ns - from_ns)}"
                arrow = (self.x(from_ns), self.x(to_ns), lasts)
                drawn.setdefault((kind, source, target), []).append(arrow)
        for (kind, source, target), arrows in drawn.items():
            apart = (arrows[-1][0] - arrows[0][0]) / max(1, len(arrows) - 1)
            if len(arrows) > 2 and apart < ARROWS_APART:
                self.arrows_left_out += len(arrows)
                continue
            down = 1 if self.rows[target] > self.rows[source] else -1
            start = self.middle(source) + down * self.bar_height * (0.31 if kind == "ask" else 0.5)
            end = self.middle(target) - down * (self.bar_height * 0.5 + 2)
            head = f'marker-end="url(#{self.ids}-{kind}-head)"'
            said = f"{name_of(self.timeline, source)} {'asks' if kind == 'ask' else 'to'} "
            said += name_of(self.timeline, target)
            for x, to_x, lasts in arrows:
                yield grouped(line(kind, x, start, to_x, end, head), said + lasts)

    def _badges(self) -> Iterable[str]:
        """The numbers of the steps. Numbers that would overlap stand side by side, or become one
        range."""
        y = self.top + AXIS_HEIGHT + BADGES_HEIGHT / 2 - 2
        groups: list[list[tuple[str, Step]]] = []
        for each in self.badges:
            x = self.x(each[1].at_ns)
            if groups and x - self.x(groups[-1][-1][1].at_ns) < 2 * BADGE + 3:
                groups[-1].append(each)
            else:
                groups.append([each])
        for group in groups:
            xs = [self.x(step.at_ns) for _, step in group]
            if len(group) > MOST_BESIDE:
                said = f"{group[0][0]}\N{EN DASH}{group[-1][0]}"
                yield line("leader", xs[0], y + BADGE, xs[0], self._head(group[0][1]))
                yield badge(xs[0], y, said)
                continue
            wide = (2 * BADGE + 2) * (len(group) - 1)
            place = max(sum(xs) / len(xs) - wide / 2, self.left)
            for (number, step), x in zip(group, xs, strict=True):
                yield line("leader", place, y + BADGE, x, y + BADGE + 6)
                yield line("leader", x, y + BADGE + 6, x, self._head(step))
                yield badge(place, y, number)
                place += 2 * BADGE + 2

    def _head(self, step: Step) -> float:
        """The upper edge of the bars in the lane of a step."""
        return self.middle(step.thread) - self.bar_height / 2


def n(value: float) -> str:
    """`value` rounded to a tenth, in as few characters as possible."""
    return f"{value:.1f}".removesuffix(".0").replace("-0.0", "0")


def rect(
    kind: str, x: float, y: float, width: float, height: float, more: str = "", radius: float = 0
) -> str:
    round_ = f' rx="{n(radius)}"' if radius else ""
    more = f" {more}" if more else ""
    return (
        f'<rect class="{kind}" x="{n(x)}" y="{n(y)}" width="{n(width)}" '
        f'height="{n(height)}"{round_}{more}/>'
    )


def line(kind: str, x1: float, y1: float, x2: float, y2: float, more: str = "") -> str:
    more = f" {more}" if more else ""
    return f'<line class="{kind}" x1="{n(x1)}" y1="{n(y1)}" x2="{n(x2)}" y2="{n(y2)}"{more}/>'


def text(kind: str, x: float, y: float, said: str) -> str:
    return f'<text class="{kind}" x="{n(x)}" y="{n(y)}">{escape(said, quote=False)}</text>'


def badge(x: float, y: float, said: str) -> str:
    wide = 2 * BADGE + 6.5 * (len(said) - 1)
    return rect("badge", x - wide / 2, y - BADGE, wide, 2 * BADGE, radius=BADGE) + text(
        "on-badge", x, y + 4, said
    )


def grouped(drawn: str, told: str) -> str:
    return f"<g><title>{escape(told, quote=False)}</title>{drawn}</g>"
