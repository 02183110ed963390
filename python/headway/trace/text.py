"""A timeline as text for a terminal. Pure.

The drawing has one row for each thread, one column for each stretch of time, and arrows between the
rows. A span that is shorter than a column is a thin bar in it. Below the drawing, one wait is
magnified, described step by step, and summed up in words. The drawing is plain ASCII if the
encoding has no block elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from headway.report import columns, units
from headway.report.terminal import Style
from headway.trace import axis, caption, window
from headway.trace.handoffs import passes
from headway.trace.timeline import FORCED_WAIT, HOLD, REQUEST, RUNNING, Span, Timeline
from headway.trace.tracks import Lane, lanes, shares
from headway.trace.walk_through import Step, episode, magnified, name_of
from headway.trace.window import sums

MOST_LANES, MOST_MAGNIFIED = 20, 5
MOST_NAME, SHARE_COLUMNS, MARK_COLUMNS = 18, 9, 10
# The smallest mean distance of arrows between the same two lanes, in columns.
ARROWS_APART = 2
NUMBERS = "①②③④⑤⑥⑦⑧⑨"
TIMES = "\N{MULTIPLICATION SIGN}"


class Signs(NamedTuple):
    """The characters of a drawing. `slivers` show holds that fill part of a column, in order of
    that part. An arrow to another column has a corner where it starts (`from_above`,
    `from_below`), and a second one (`then_up`, `then_down`) unless it ends in the same gap."""

    hold: str
    slivers: str
    wait: str
    forced_wait: str
    running: str
    ask_up: str
    ask_down: str
    asking: str
    up: str
    down: str
    up_and_down: str
    passing: str
    level: str
    from_above: str
    from_below: str
    then_up: str
    then_down: str
    mark: str
    request: tuple[str, str, str]


BLOCKS = Signs(
    hold="█",
    slivers="▎▎▍▌▋▊▉",
    wait="░",
    forced_wait="▒",
    running="▁",
    ask_up="⇡",
    ask_down="⇣",
    asking="┊",
    up="↑",
    down="↓",
    up_and_down="↕",
    passing="│",
    level="─",
    from_above="╰",
    from_below="╭",
    then_up="╯",
    then_down="╮",
    mark="┬",
    request=("├", "┤", "═"),
)
ASCII = Signs(
    hold="#",
    slivers="|",
    wait=".",
    forced_wait=":",
    running="_",
    ask_up="!",
    ask_down="!",
    asking="!",
    up="^",
    down="v",
    up_and_down="x",
    passing="|",
    level="-",
    from_above="`",
    from_below=",",
    then_up="'",
    then_down=".",
    mark="+",
    request=("[", "]", "="),
)

PLAIN = Style()


def draw(timeline: Timeline, style: Style = PLAIN, *, whole: bool = False) -> str:
    """Returns the drawing, with a newline at its end. Unless `whole` is true, a long timeline is
    reduced to a representative window."""
    shown = window.all_of(timeline) if whole else window.telling(timeline)
    signs = BLOCKS if style.blocks else ASCII
    steps = episode(shown)
    numbers = NUMBERS if style.blocks else "123456789"
    numbered = list(zip(numbers, steps, strict=False))
    threads = {step.thread for step in steps}
    drawn, left_out = lanes(shown.timeline, MOST_LANES, threads)
    title = columns.name(timeline.title, 2 * style.width)
    lines = [style.bold(line) for line in _wrap(title, style)]
    lines += [*_wrap(caption.heading(shown), style), ""]
    panel = _Panel(shown.timeline, drawn, shown.zero_ns, numbered, style, signs)
    lines += panel.lines()
    part = magnified(shown.timeline, steps)
    if part is not None:
        inner, others = lanes(part, MOST_MAGNIFIED, threads)
        badges = [each for each in numbered if part.begin_ns <= each[1].at_ns <= part.end_ns]
        ratio = (shown.timeline.end_ns - shown.timeline.begin_ns) / (part.end_ns - part.begin_ns)
        also = f"; {units.number(others, 'other thread')} not drawn" if others else ""
        lines += ["", f"{badges[0][0]} to {badges[-1][0]}, magnified {ratio:,.0f} times{also}", ""]
        lines += _Panel(part, inner, badges[0][1].at_ns, badges, style, signs).lines()
    lines += ["", *_wrap(_legend(shown.timeline, signs), style), ""]
    for number, step in numbered:
        first, *rest = _wrap(step.text, style, 4)
        lines += [f" {style.bold(number)}  {first}", *(f"    {line}" for line in rest)]
    lines += [""] if numbered else []
    lines += _wrap(" ".join(caption.sentences(shown)), style)
    notes = _notes(shown.timeline, left_out, panel.arrows_left_out)
    lines += ["", *map(style.dim, _wrap(notes, style))] if notes else []
    said = "\n".join(line.rstrip() for line in lines) + "\n"
    return said if style.blocks else said.replace("µ", "u").replace(TIMES, "x")


class _Panel:
    def __init__(
        self,
        timeline: Timeline,
        drawn: Sequence[Lane],
        zero_ns: int,
        badges: Sequence[tuple[str, Step]],
        style: Style,
        signs: Signs,
    ) -> None:
        self.timeline, self.lanes, self.zero_ns = timeline, drawn, zero_ns
        self.badges, self.style, self.signs = badges, style, signs
        names = [columns.width(name_of(timeline, lane.thread)) for lane in drawn]
        self.names = min(MOST_NAME, max([6, *names]))
        self.columns = style.width - self.names - SHARE_COLUMNS - 1
        self.lasts_ns = max(1, timeline.end_ns - timeline.begin_ns)
        self.column_ns = self.lasts_ns / self.columns
        self.rows = {lane.thread: row for row, lane in enumerate(drawn)}
        self.arrows_left_out = 0

    def lines(self) -> Iterable[str]:
        if not self.lanes:
            yield "Nothing was seen of any thread."
            return
        yield from self._axis()
        if self.badges:
            yield self._beside("") + self.style.bold(self._badges())
        held = sums(self.timeline, HOLD)
        gaps = self._gaps()
        for row, lane in enumerate(self.lanes):
            if row:
                yield self._beside("") + self._coloured(gaps[row - 1])
            if lane.requests:
                yield self._beside("") + self.style.dim(
                    self._spans(lane.requests, self.signs.request)
                )
            gil = self.timeline.threads[lane.thread].gil
            share = units.share(held.get(lane.thread, 0), self.lasts_ns) if gil else ""
            name = name_of(self.timeline, lane.thread)
            yield self._beside(name, share) + self._coloured(self._states(lane))

    def _beside(self, name: str, share: str = "") -> str:
        return columns.pad(name, self.names) + share.rjust(SHARE_COLUMNS - 1) + "  "

    def column(self, at_ns: float) -> int:
        place = int((at_ns - self.timeline.begin_ns) / self.column_ns)
        return min(max(0, place), self.columns - 1)

    def _axis(self) -> Iterable[str]:
        """The times, and below them a line with a mark at each. Labels that would overlap are left
        out."""
        timeline = self.timeline
        most = max(2, self.columns // MARK_COLUMNS)
        found = axis.marks(
            timeline.begin_ns, timeline.end_ns, self.zero_ns, most, timeline.switch_interval_ns
        )
        times, multiples = [" "] * self.columns, [" "] * self.columns
        level = [self.signs.level] * self.columns
        for mark in found:
            place = self.column(mark.at_ns)
            level[place] = self.signs.mark
            _write(times, place, mark.label)
            if mark.multiple:
                _write(multiples, place, f"{mark.multiple:,} {TIMES}")
        if any(mark.multiple for mark in found):
            beside = self._beside("")
            yield beside + self.style.dim("".join(multiples))
        yield self._beside("thread", "held") + "".join(times)
        yield self._beside("") + self.style.dim("".join(level))

    def _badges(self) -> str:
        """The step numbers at their columns. A number whose column is taken moves to the right."""
        row = [" "] * self.columns
        place = 0
        for number, step in self.badges:
            place = max(place, self.column(step.at_ns))
            if place < self.columns:
                row[place] = number
            place += 1
        return "".join(row)

    def _states(self, lane: Lane) -> str:
        begin_ns = self.timeline.begin_ns
        found = shares(lane.states, begin_ns, self.column_ns, self.columns)
        ends = {self.column(span.to_ns) for span in lane.states if span.kind == HOLD}
        brief = {self.column(span.from_ns) for span in lane.states if span.kind == HOLD}
        drawn = [" "] * self.columns
        for span in lane.running:
            for place in range(self.column(span.from_ns), self.column(span.to_ns) + 1):
                drawn[place] = self.signs.running
        for place, (held, waited, forced) in enumerate(found):
            if held > 1 - 1e-6 or (held > 0.9 and place not in ends):
                drawn[place] = self.signs.hold
            elif held > 0 or place in brief & ends:
                part = min(int(held * 8), 7) * len(self.signs.slivers) // 8
                drawn[place] = self.signs.slivers[part]
            elif waited or forced:
                drawn[place] = self.signs.wait if waited >= forced else self.signs.forced_wait
        return "".join(drawn)

    def _spans(self, spans: Sequence[Span], look: tuple[str, str, str]) -> str:
        """Draws begins, ends and middles of spans. A column that several spans share has a sign of
        its own."""
        begin, end, many = look
        row = [" "] * self.columns
        for span in spans:
            first, last = self.column(span.from_ns), self.column(span.to_ns)
            for place in range(first, last + 1):
                sign = begin if place == first else end if place == last else self.signs.level
                row[place] = many if row[place] != " " or first == last else sign
        return "".join(row)

    def _gaps(self) -> list[str]:
        """The rows between the lanes: arrows of drop requests, and over them those of handoffs."""
        ways: dict[tuple[bool, int, int], list[tuple[int, int]]] = {}
        for each in self.timeline.drop_requests:
            place = self.column(each.at_ns)
            ways.setdefault((True, each.waiter, each.holder), []).append((place, place))
        for way in passes(self.timeline):
            from_to = (self.column(way.from_ns), self.column(way.to_ns))
            ways.setdefault((False, way.dropper, way.taker), []).append(from_to)
        gaps = [[" "] * self.columns for _ in self.lanes[1:]]
        for (asks, source, target), places in sorted(ways.items(), reverse=True):
            if source == target or not {source, target} <= self.rows.keys():
                continue
            apart = (places[-1][0] - places[0][0]) / max(1, len(places) - 1)
            if len(places) > 2 and apart < ARROWS_APART:
                self.arrows_left_out += len(places)
                continue
            for left, right in places:
                self._connect(gaps, source, target, left, right, asks=asks)
        return ["".join(gap) for gap in gaps]

    def _connect(
        self, gaps: list[list[str]], source: int, target: int, left: int, right: int, *, asks: bool
    ) -> None:
        signs = self.signs
        first, last = self.rows[source], self.rows[target]
        down = last > first
        if right - left == 1:
            left = right
        # From the gap next to the source to the gap next to the target.
        way = range(first, last) if down else range(first - 1, last - 1, -1)
        head = signs.down if down else signs.up
        if asks:
            head = signs.ask_down if down else signs.ask_up
        for place in way:
            row, ends = gaps[place], place == way[-1]
            if place == way[0] and left < right:
                if row[left] in (signs.ask_up, signs.ask_down, signs.asking) and right - left > 2:
                    # Keep the arrow of the drop request visible.
                    left += 1
                row[left] = signs.from_above if down else signs.from_below
                row[left + 1 : right] = signs.level * (right - left - 1)
                row[right] = head if ends else signs.then_down if down else signs.then_up
            elif not ends:
                row[right] = signs.asking if asks else signs.passing
            elif row[right] in (signs.up, signs.down, signs.up_and_down) and row[right] != head:
                row[right] = signs.up_and_down
            else:
                row[right] = head

    def _coloured(self, row: str) -> str:
        if not self.style.colour:
            return row
        signs, style = self.signs, self.style
        holds = {signs.hold, *signs.slivers}
        dim = {signs.wait, signs.forced_wait, signs.running}

        def look(sign: str) -> int:
            return 1 if sign in holds else 2 if sign in dim else 0

        paints = (str, style.marked, style.dim)
        return "".join(paints[kind]("".join(run)) for kind, run in groupby(row, look))


def _write(row: list[str], middle: int, said: str) -> None:
    """Writes `said` centred at `middle`, if it fits and hides nothing."""
    left = min(max(0, middle - len(said) // 2), len(row) - len(said))
    place = slice(max(0, left - 1), left + len(said) + 1)
    if left >= 0 and not "".join(row[place]).strip():
        row[left : left + len(said)] = said


def _legend(timeline: Timeline, signs: Signs) -> str:
    kinds = {span.kind for span in timeline.spans}
    told = [f"{signs.hold}\xa0holds the GIL", f"{signs.wait}\xa0waits for it"]
    if FORCED_WAIT in kinds:
        told.append(f"{signs.forced_wait}\xa0forced wait")
    told.append(f"{signs.slivers[0]}\xa0for less than a column")
    if timeline.drop_requests:
        told.append(f"{signs.ask_up}\xa0drop request")
    told.append(f"{signs.up}\xa0handoff")
    if REQUEST in kinds:
        told.append(f"{signs.request[0]}{signs.level}{signs.request[1]}\xa0request")
    if RUNNING in kinds:
        told.append(f"{signs.running}\xa0on a core without the GIL")
    return " ".join(each.replace(" ", "\xa0") + "\xa0\xa0" for each in told)


def _notes(timeline: Timeline, left_out: int, arrows: int) -> str:
    told = []
    if arrows:
        told.append(f"{units.number(arrows, 'arrow')} had no room.")
    if left_out:
        told.append(f"{units.number(left_out, 'thread')} that held and waited least are not drawn.")
    if timeline.lost:
        told.append(f"{units.number(timeline.lost, 'event')} had been lost.")
    return " ".join(told)


def _wrap(said: str, style: Style, indent: int = 0) -> list[str]:
    return caption.paragraph(said, style.width - indent)
