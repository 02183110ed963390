"""Charts as SVG, to stand in an HTML page. Drawn by matplotlib, which only this module imports:
where it is missing, importing this raises CommandError.

Colours are those of the page's style sheet (`--series-0` and so on, `--line`, and the text's own),
so one drawing does for light and dark. The same chart gives the same bytes, and no two charts of a
page share an `id`. It knows nothing of experiments.
"""

from __future__ import annotations

import io
import logging
import math
import warnings
from collections.abc import Sequence
from typing import Any

from headway.errors import CommandError
from headway.extras import how_to_install
from headway.output import inline_svg
from headway.output.drawing import number
from headway.output.table import Chart, Series
from headway.report import columns, units

try:
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FixedLocator, LogLocator, NullLocator
except ImportError as error:
    raise CommandError(
        f"--html draws its charts with matplotlib, and {error.name} is missing: "
        f"{how_to_install('bench')}",
        exit_code=2,
    ) from error

TIMES = "\N{MULTIPLICATION SIGN}"
SERIES_COLOURS = 7
MARKERS = "osD^vPX"
WIDTH_INCHES, HEIGHT_INCHES = 7.2, 3.9
# Colours for matplotlib that no other part of the page has, so that variables can replace them.
TEXT, LINE = "#010203", "#040506"
SERIES = [f"#0708{place:02x}" for place in range(SERIES_COLOURS)]
PAGE_COLOURS = {
    TEXT: "currentColor",
    LINE: "var(--line)",
    **{colour: f"var(--series-{place})" for place, colour in enumerate(SERIES)},
}
STYLE: dict[str, Any] = {
    # Text stays text, in the page's font: smaller, and readable by machines.
    "svg.fonttype": "none",
    # A name from elsewhere is no formula.
    "text.parse_math": False,
    "font.size": 9.5,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.5,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": LINE,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": TEXT,
    "ytick.labelcolor": TEXT,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.0,
}
PUBLISHED: dict[str, Any] = {"linestyle": "--", "linewidth": 1, "fillstyle": "none"}
INTERVALS: dict[str, Any] = {"capsize": 3, "elinewidth": 1.2}
# Up to this number, each measured place on the x axis has a label.
MOST_NAMED = 12
SHORT_RANGE = 100
# Points that are less than this share of an axis apart cannot both be named on it.
LEAST_APART = 1 / 14
MOST_MULTIPLES = 12
# Characters; names may be anybody's.
MAX_TITLE, MAX_NAME = 120, 60
# About as many fit on a line.
LEGEND_CHARACTERS = 84
# Decades outside of these are written as powers of ten.
PLAIN_DECADES = range(-3, 6)
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def draw(chart: Chart, name: str) -> str:
    """An `svg` element; `name` makes its ids differ from those of others. Empty if there is nothing
    to draw."""
    chart = chart._replace(
        title=columns.name(chart.title, MAX_TITLE),
        x_label=columns.name(chart.x_label, MAX_TITLE),
        y_label=columns.name(chart.y_label, MAX_TITLE),
    )
    lines = [_drawable(each, chart) for each in chart.series]
    lines = [each for each in lines if each.points or each.published]
    if not lines:
        return ""
    file = io.StringIO()
    with rc_context({**STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # The page's font has the characters that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        logging.getLogger("matplotlib").setLevel(logging.ERROR)
        figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained")
        axes = figure.add_subplot()
        _set_scales(axes, chart, lines)
        for place, line in enumerate(lines):
            _draw_series(axes, line, place)
        if chart.multiples_of:
            _mark_multiples(axes, chart)
        _draw_legend(figure, chart, lines)
        figure.savefig(file, format="svg", metadata={"Date": None}, transparent=True)
    description = _describe(chart, lines)
    return inline_svg.element(file.getvalue(), name, chart.title, description, PAGE_COLOURS)


def _drawable(line: Series, chart: Chart) -> Series:
    """Without what has no place on the axes, such as nothing on a logarithmic one."""

    def has_place(x: float, y: float) -> bool:
        return (
            math.isfinite(x)
            and math.isfinite(y)
            and (x > 0 or not chart.log_x)
            and (y > 0 or not chart.log_y)
        )

    points = [point for point in line.points if has_place(point[0], point[1])]
    return Series(
        columns.name(line.name, MAX_NAME),
        points,
        [each for each in line.published if has_place(*each)],
    )


def _set_scales(axes: Axes, chart: Chart, lines: Sequence[Series]) -> None:
    """Axes that all points and their intervals have room on."""
    xs = sorted({x for line in lines for x, *_ in [*line.points, *line.published]})
    ys = [y for line in lines for _, *some in [*line.points, *line.published] for y in some]
    ys = [y for y in ys if math.isfinite(y) and (y > 0 or not chart.log_y)]
    axes.set_xscale("log" if chart.log_x else "linear")
    axes.set_yscale("log" if chart.log_y else "linear")
    if chart.log_y:
        axes.set_ylim(min(ys) / 1.6, max(ys) * 1.6)
    elif min(ys) >= 0:
        axes.set_ylim(0, 1.06 * max(ys) or 1)
    axes.set_xlabel(_label(axes.xaxis, chart.x_label))
    axes.set_ylabel(_label(axes.yaxis, chart.y_label))
    if len(xs) <= MOST_NAMED:
        axes.xaxis.set_major_locator(FixedLocator(_apart(xs, chart.log_x, (xs[0], xs[-1]))))
    elif chart.log_x:
        axes.xaxis.set_major_locator(_logarithmic(xs))
    if chart.log_y:
        axes.yaxis.set_major_locator(_logarithmic(ys))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())


def _logarithmic(places: Sequence[float]) -> LogLocator:
    """Powers of ten, and steps between them where there would be few."""
    is_short = max(places) < SHORT_RANGE * min(places)
    return LogLocator(subs=(1.0, 2.0, 5.0) if is_short else (1.0,), numticks=MOST_NAMED)


def _draw_series(axes: Axes, line: Series, place: int) -> None:
    """Measured: filled, with intervals, which are a band where there are many (of the points
    every so many has a marker then); published: hollow and dashed."""
    colour, marker = _look(place)
    if line.published:
        x, y = zip(*line.published, strict=True)
        axes.plot(x, y, color=colour, marker=marker, clip_on=False, **PUBLISHED)
    if line.points:
        x, y, low, high = zip(*line.points, strict=True)
        if len(x) > MOST_NAMED:
            every = (len(x) // MOST_NAMED, len(x) // MOST_NAMED)
            axes.plot(x, y, color=colour, marker=marker, markevery=every)
            axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
            return
        below = [max(0.0, middle - least) for middle, least in zip(y, low, strict=True)]
        above = [max(0.0, most - middle) for middle, most in zip(y, high, strict=True)]
        drawn = axes.errorbar(x, y, (below, above), color=colour, marker=marker, **INTERVALS)
        # Markers on the axis are whole; an interval may end beyond a logarithmic one.
        drawn[0].set_clip_on(False)


def _look(place: int) -> tuple[str, str]:
    """Colour and marker; where colours come round again, the markers are others."""
    turn = place // len(SERIES)
    return SERIES[place % len(SERIES)], MARKERS[(place + turn) % len(MARKERS)]


def _mark_multiples(axes: Axes, chart: Chart) -> None:
    assert chart.multiples_of is not None
    first, last = limits = axes.get_xlim()
    places = [chart.multiples_of * count for count in range(1, MOST_MULTIPLES + 1)]
    places = [place for place in places if first <= place <= last]
    named = _apart(places, chart.log_x, limits)
    for place in places:
        axes.axvline(place, color=TEXT, linestyle=":", linewidth=1, zorder=0.5)
        if place in named:
            text = f"{round(place / chart.multiples_of)} {TIMES}"
            axes.text(place, 1.01, text, ha="center", transform=axes.get_xaxis_transform())
    axes.set_xlim(limits)


def _apart(places: Sequence[float], log: bool, limits: tuple[float, float]) -> list[float]:
    """Those of the sorted places that can be named on an axis without hiding each other."""

    def scaled(place: float) -> float:
        return math.log(place) if log else place

    first, last = map(scaled, limits)
    kept: list[float] = []
    for place in places:
        if not kept or scaled(place) - scaled(kept[-1]) >= (last - first) * LEAST_APART:
            kept.append(place)
    return kept


def _draw_legend(figure: Figure, chart: Chart, lines: Sequence[Series]) -> None:
    handles = [
        Line2D([], [], color=colour, marker=marker)
        for colour, marker in map(_look, range(len(lines)))
    ]
    names = [line.name for line in lines]
    if any(line.published for line in lines):
        handles.append(Line2D([], [], color=TEXT, marker=MARKERS[0], **PUBLISHED))
        names.append("published")
    if chart.multiples_of:
        handles.append(Line2D([], [], color=TEXT, linestyle=":", linewidth=1))
        names.append(f"multiples of {units.seconds(chart.multiples_of)}")
    beside = max(1, LEGEND_CHARACTERS // (max(map(len, names)) + 6))
    figure.legend(handles, names, loc="outside lower center", ncols=min(beside, len(names)))


def _label(axis: Axis, label: str) -> str:
    """The label without "(s)", if the axis' numbers say it themselves."""
    text = label.removesuffix("(s)").rstrip()
    axis.set_major_formatter(_as_time if text != label else _as_number)
    return text


def _as_time(value: float, _: object = None) -> str:
    return units.seconds(value) if value >= 0 else f"-{units.seconds(-value)}"


def _as_number(value: float, _: object = None) -> str:
    """Without zeros that tell nothing."""
    decade = math.log10(abs(value)) if value else 0
    if float(decade).is_integer() and decade not in PLAIN_DECADES:
        return "10" + f"{decade:.0f}".translate(SUPERSCRIPTS)
    text = number(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _describe(chart: Chart, lines: Sequence[Series]) -> str:
    """The lines in words, for who does not see them."""
    x_text = _as_time if chart.x_label.endswith("(s)") else _as_number
    y_text = _as_time if chart.y_label.endswith("(s)") else _as_number
    told = [f"{chart.y_label} by {chart.x_label}.".replace(" (s)", "")]
    for line in lines:
        for what, points in (("measured", line.points), ("published", line.published)):
            if not points:
                continue
            places = [(x, y) for x, y, *_ in points]
            if len(places) > MOST_NAMED:
                what = f"{what}, at its highest"
                places = [max(places, key=lambda place: place[1])]
            ends = dict.fromkeys((places[0], places[-1]))
            words = ", ".join(f"{y_text(y)} at {x_text(x)}" for x, y in ends)
            told.append(f"{line.name}, {what}: {words}.")
    return " ".join(told)
