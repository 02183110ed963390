"""Experiments as one HTML page that needs nothing else: no network, no script, no other file.

Everything that comes from elsewhere is escaped. The same results give the same bytes. This
module does not know how charts are drawn, or how results arise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

from headway import json_file
from headway.errors import CommandError, reason_of
from headway.output import charts
from headway.output.claim import Statement
from headway.output.drawing import mark_reasons, number
from headway.output.metadata import STOCK, Metadata, doubts, interpreters_in
from headway.output.results import Result, Results, describe
from headway.output.table import Cell, Chart, Table
from headway.report import columns, units

DASH = "\N{EN DASH}"
MAX_TEXT = 4_000  # characters of one piece, whoever wrote it


class Introduction(NamedTuple):
    """The title of a page, and the text before its sections. `origin` is HTML. `beside` is the end
    of the sentence that names the interpreters."""

    title: str
    origin: str
    how_to_read: str
    beside: str = ""
    #: Whether the sections are listed before the first, each with a count of its statements.
    lists_sections: bool = False


class Section(NamedTuple):
    """An experiment on a page: a heading of `name` and `summary`, and the paragraph `shows`; then
    its statements, charts and tables."""

    name: str
    summary: str
    shows: str
    results: Results
    tables: Sequence[Table]
    charts: Sequence[Chart] = ()
    statements: Sequence[Statement] = ()


def write(
    path: str, metadata: Metadata, sections: Sequence[Section], introduction: Introduction
) -> None:
    """Writes the page. `path` is as `json_file.check_path` returns it. Raises CommandError."""
    drawn = draw(metadata, sections, introduction).encode()
    try:
        json_file.write(drawn, path)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"--html {path}: {reason_of(error)}") from error


def draw(metadata: Metadata, sections: Sequence[Section], introduction: Introduction) -> str:
    style = files("headway.output").joinpath("page.css").read_text("utf-8")
    interpreters = _text(interpreters_in(metadata))
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(introduction.title)}: {interpreters}</title>",
            f"<style>\n{style}</style></head>",
            f"<body><header><h1>{_text(introduction.title)}</h1>",
            f'<p class="muted">{introduction.origin} on {interpreters}{introduction.beside}.</p>'
            "</header>",
            "<main>",
            *_circumstances(metadata, introduction.how_to_read),
            *(_overview(sections) if introduction.lists_sections else ()),
            *(line for section in sections for line in _section(section)),
            "</main></body></html>\n",
        ]
    )


def _circumstances(metadata: Metadata, how_to_read: str) -> list[str]:
    facts = [f"<dt>{_text(name)}</dt><dd>{_text(words)}</dd>" for name, words in in_words(metadata)]
    doubtful = [
        f'<p class="differs"><strong>Doubtful</strong>: {_text(each)}</p>'
        for each in doubts(metadata)
    ]
    return [
        "<section><h2>What was measured where</h2>",
        f"<dl>{''.join(facts)}</dl>",
        *doubtful,
        f"<h3>How to read this</h3><p>{_text(how_to_read)}</p></section>",
    ]


def in_words(metadata: Metadata) -> list[tuple[str, str]]:
    """The results' metadata for readers; what is not known is left out, what this does not know
    stands as it is."""
    rest: dict[str, Any] = {**metadata}

    def take(name: str, text: str = "{}") -> str:
        value = rest.pop(name, None)
        return "" if value in (None, "", []) else text.format(value)

    # `build` is sys.version, which begins with the other.
    version = take("python")
    version = take("build") or version
    kind = "a free-threaded build" if rest.pop("free_threading", False) else ""
    debug = "a debug build" if rest.pop("debug", False) else ""
    processors = rest.pop("cpus", None)
    policies = [
        f"{each} (plain python)" if each == STOCK else str(each)
        for each in rest.pop("policies", [])
    ]
    seconds, steal = rest.pop("seconds", None), rest.pop("steal", None)
    quick = "in a hurry (--quick)" if rest.pop("quick", False) else ""
    simulated = rest.pop("simulated", {})
    facts = [
        ("Interpreter", [f"CPython {version}" if version else "", kind, debug]),
        ("Built with", [take("compiler"), take("build_options", "options {}")]),
        (
            "Machine",
            [
                take("cpu"),
                "" if processors is None else units.number(processors, "processor"),
                take("machine"),
                take("kernel", "Linux {}"),
                take("governor", "frequency governor {}"),
            ],
        ),
        ("Policies", policies),
        (
            "Measured",
            [
                take("time"),
                "" if seconds is None else f"for {_duration(seconds)}",
                take("headway", "by Headway {}"),
                quick,
            ],
        ),
        (
            "Others on the machine",
            [
                take("load", "a load of {:.2f} before"),
                "" if steal is None else f"{100 * steal:.1f} % of the time taken by a hypervisor",
            ],
        ),
        ("Simulated", _constants(simulated)),
        *((name.replace("_", " "), [str(value)]) for name, value in rest.items()),
    ]
    return [(name, ", ".join(filter(None, words))) for name, words in facts if any(words)]


def _constants(simulated: Mapping[str, object]) -> list[str]:
    """The constants of a simulation, name by name."""
    found = []
    for name, value in simulated.items():
        within = value if isinstance(value, dict) else {name: value}
        found += [f"{each.replace('_', ' ')} {constant}" for each, constant in within.items()]
    return found


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"


def _overview(sections: Sequence[Section]) -> list[str]:
    lines = []
    for section in sections:
        agree, count = sum(each.agrees for each in section.statements), len(section.statements)
        verdict = f"{agree} of {count} statements agree" if count else "no statement"
        name = _text(section.name)
        lines.append(
            f'<li><a href="#{_anchor(section)}">{name}</a>: {_text(section.summary)} '
            f'<span class="muted">({verdict})</span></li>'
        )
    return ["<nav aria-label='Experiments'><h2>Experiments</h2>", "<ul>", *lines, "</ul></nav>"]


def _anchor(section: Section) -> str:
    """The beginning of ids: the name without characters that ids cannot have. The name in a file
    may be any text."""
    return re.sub(r"[^\w-]", "-", section.name)


def _section(section: Section) -> list[str]:
    anchor, marks = _anchor(section), mark_reasons(section.results)
    lines = [
        f'<section id="{anchor}" aria-labelledby="{anchor}-name">',
        f'<h2 id="{anchor}-name">{_text(section.name)}: {_text(section.summary)}</h2>',
        f"<p>{_text(section.shows)}</p>",
        *_statements(section.statements),
    ]
    for place, chart in enumerate(section.charts):
        svg = charts.draw(chart, f"{anchor}-chart-{place}")
        if svg:
            caption = f"<figcaption>{_text(chart.title)}</figcaption>"
            lines.append(f"<figure>{caption}{_scrolling(svg, chart.title)}</figure>")
    for table in section.tables:
        lines += _table(table, marks, anchor)
    reasons = _reasons(section.results, marks, anchor)
    return [*lines, *reasons, *_calibration(section.results), "</section>"]


def _statements(statements: Sequence[Statement]) -> list[str]:
    if not statements:
        return []
    lines = []
    for each in statements:
        verdict = "agrees" if each.agrees else "differs"
        why = f"<span>Why: {_text(each.why)}</span>" if each.why and not each.agrees else ""
        lines.append(
            f'<li class="{verdict}"><strong>{verdict}</strong> {_text(each.text)}: '
            f"{_number(each.value)}<span>Allowed: {_text(each.allowed)}</span>{why}</li>"
        )
    return ["<h3>Statements</h3>", '<ul class="statements">', *lines, "</ul>"]


def _table(table: Table, marks: Mapping[str, str], section: str) -> list[str]:
    """`marks` replace reasons, which stand at the end of the section."""
    heads = [
        f'<th scope="col"{_name_class(place, table)}>{_text(heading)}</th>'
        for place, heading in enumerate(table.headings)
    ]
    rows = [
        "".join(
            f'<th scope="row" class="name">{_text(cell.text)}</th>'
            if place < table.names
            else _figure(cell, _reference(cell.text, marks, section))
            for place, cell in enumerate(row)
        )
        for row in table.rows
    ]
    drawn = [
        f"<table><caption>{_text(table.title)}</caption>",
        f"<thead><tr>{''.join(heads)}</tr></thead>",
        "<tbody>",
        *(f"<tr>{row}</tr>" for row in rows),
        "</tbody></table>",
    ]
    note = [f'<p class="muted">{_text(table.note)}</p>'] if table.note else []
    return [_scrolling("\n".join(drawn), table.title), *note]


def _name_class(place: int, table: Table) -> str:
    return ' class="name"' if place < table.names else ""


def _reference(text: str, marks: Mapping[str, str], section: str) -> str:
    if text not in marks:
        return _text(text)
    target = f"{section}-{list(marks).index(text)}"
    return f'not measured <a href="#{target}">{marks[text]}</a>'


def _figure(cell: Cell, text: str) -> str:
    """A median, its interval, and what was published, below each other; or a text."""
    published = (
        ""
        if cell.published is None
        else f'<span class="published">published {_number(cell.published)}</span>'
    )
    if cell.value is None:
        return f'<td class="text">{text}{published}</td>'
    unstable = ' <em class="unstable">unstable</em>' if cell.unstable else ""
    interval = ""
    if cell.low is not None and cell.high is not None and cell.low < cell.high:
        words = f"{_number(cell.low)} {DASH} {_number(cell.high)}"
        interval = f'<span class="interval">{words}</span>'
    return f"<td><span>{_number(cell.value)}{unstable}</span>{interval}{published}</td>"


def _reasons(results: Results, marks: Mapping[str, str], section: str) -> list[str]:
    """Rows that have no values, and why; and those that have lost some."""
    lines = [
        f'<li id="{section}-{place}">{mark} {_text(reason)}'
        f"{_rows(each for each in results if each.reason == reason)}</li>"
        for place, (reason, mark) in enumerate(marks.items())
    ]
    lines += [
        f"<li>{units.number(len(each.failures), 'measurement')} of "
        f"{_text(describe(each.parameters))} failed: {_text(each.failures[-1])}</li>"
        for each in results
        if each.values and each.failures
    ]
    return ["<h3>Not measured</h3>", '<ul class="reasons">', *lines, "</ul>"] if lines else []


def _rows(results: Iterable[Result]) -> str:
    named = (f"<li>{_text(describe(each.parameters))}</li>" for each in results)
    return f'<ul class="muted">{"".join(named)}</ul>'


def _calibration(results: Results) -> list[str]:
    """The calibration before the rounds, if there was one."""
    facts = _facts(results.calibration)
    return [f'<p class="muted">Calibrated before all rounds: {_text(facts)}.</p>'] if facts else []


def _facts(calibration: Mapping[str, Any]) -> str:
    words = []
    for name, value in calibration.items():
        known = isinstance(value, (int, float)) and not isinstance(value, bool)
        text = f"({_facts(value)})" if isinstance(value, dict) else str(value)
        words.append(f"{name.replace('_', ' ')} {number(value) if known else text}")
    return ", ".join(words)


def _scrolling(element: str, title: str) -> str:
    """In a box that scrolls by itself, with keys too."""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{_text(title)}">'
        f"{element}</div>"
    )


def _number(value: float) -> str:
    return escape(number(value))


def _text(text: object) -> str:
    """Escapes for HTML; characters that are not printable are escaped as in a Python string."""
    return escape(columns.name(text, MAX_TEXT))
