"""`headway top --once`: one answer as text or JSON, for scripts. It needs no Textual.

The columns and their order do not change from version to version; new columns come last. A cell is
one word, "-" if the value is unknown, and the title of its column has the unit.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from headway.report import columns
from headway.top import figures, page, tables
from headway.top.tables import GAP, Row, ViewTable

WIDTH = 100


def draw(source: str, now: Row, view: str, answer: Row) -> str:
    """All tables of one view, with a newline at the end. Lines outside of tables begin with "#"."""
    lines = [f"# headway top {figures.text(source)} {figures.moment(now.get('time'))}"]
    trouble = page.health(now.get("recorder"))
    if trouble:
        lines.append(f"# recorder: {trouble}")
    if view in ("overview", "processes"):
        lines += [*plain(tables.scopes(now)), *verdicts(now)]
    else:
        shown = next(each for each in tables.VIEWS if each.name == view)
        for number, make in enumerate(shown.tables):
            table = make(answer)
            lines += [*([""] if number else []), f"# {table.title}", *plain(table)]
            lines += stacks(table)
    return "\n".join(lines) + "\n"


def plain(table: ViewTable) -> Iterator[str]:
    titles = [f"{column.name}{column.kind.unit}" for column in table.columns]
    rows = [
        [column.kind.plain(tables.value_at(row, column.path)) for column in table.columns]
        for row in table.rows
    ]
    widths = [max(map(columns.width, cells)) for cells in zip(titles, *rows, strict=True)]
    for cells in (titles, *rows):
        shown = []
        for cell, width, column in zip(cells, widths, table.columns, strict=True):
            space = " " * (width - columns.width(cell))
            shown.append(space + cell if column.kind.is_number else cell + space)
        yield GAP.join(shown).rstrip()


def verdicts(now: Row) -> Iterator[str]:
    """The verdict on the total in full, and those of processes that have a worse one."""
    scopes = [now["total"]] if isinstance(now.get("total"), dict) else []
    scopes += [
        row
        for row in tables.rows_of(now, "processes")
        if page.severity(row.get("verdict")) in ("warning", "critical")
    ]
    for scope in scopes:
        for number, line in enumerate(page.verdict_lines(scope.get("verdict"))):
            text = line if number else f"{page.scope_name(scope)}: {line}"
            if not number:
                yield "#"
            indent = " " * (len(line) - len(line.lstrip()) + 4 if number else 0)
            yield from textwrap.wrap(
                text, WIDTH, initial_indent="# ", subsequent_indent=f"# {indent}"
            )


def stacks(table: ViewTable) -> Iterator[str]:
    for row in table.rows:
        stack = figures.lines(stack_of(row))
        if stack:
            yield f"# stack of {figures.text(row.get('url') or row.get('endpoint'))}"
            yield from (f"#   {line}" for line in stack)


def stack_of(row: Row) -> object:
    return row.get("stack") or row.get("slow_stack")
