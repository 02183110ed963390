"""The terminal of `headway top`, in Textual: the screen and the keys.

Runs on the main thread. The poller's thread passes answers to it as messages. `figures` makes all
text from the wire printable, and the screen shows it as plain text objects, so no text is read as
markup.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Footer, Static, TabbedContent, TabPane

from headway.top import figures, page, tables
from headway.top.poller import Figures, Poller, Trouble, ViewRequest
from headway.top.source import Source
from headway.top.tables import SORTS, VIEWS, Row, View, ViewTable

WINDOWS_S = (10.0, 60.0, 300.0)
# The columns to the left and right of a pane's tables.
MARGIN = 4
STYLES = {"ok": "green", "note": "", "warning": "yellow", "critical": "bold red"}

ABOUT = """\
GIL wait is the time that a request waited for the GIL in all; it is exact for Headway's own
processes, and a lower bound for mod_wsgi's. held, handoff and idle are shares of the GIL's time: a
thread holds it; it is free while threads wait for it; it is free and no thread waits. CPU is in
cores: 1 is one core busy all the time. busy is the share of the time in which worker threads were
in a request; slots shows each thread. Percentiles are those of all requests, not means of
percentiles; they are interpolated in histograms whose buckets are at most 6.25 % wide, and max is
exact. Columns without room are left out: a wider terminal shows them, and Enter shows all details
of a row.
"""


def plain(text: str, style: str = "") -> Text:
    return Text(text, style=style, end="")


class Arrived(Message):
    def __init__(self, found: Figures | Trouble) -> None:
        super().__init__()
        self.found = found


class Sheet(ModalScreen[None]):
    """Lines of text over the screen: the details of a row, or the help."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,question_mark", "dismiss", "close"),
    ]

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__()
        self.text = "\n".join(lines)

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(plain(self.text), markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()


class Rows(DataTable[Text]):
    """A table that keeps its place: the same row stays under the cursor while rows come and go."""

    def __init__(self, name: str) -> None:
        super().__init__(id=f"table-{name}", cursor_type="row", zebra_stripes=True)
        self.rows_shown: list[Row] = []
        self._drawn: object = None
        self._titles: list[str] = []

    def show(self, table: ViewTable, width: int) -> None:
        table = table.fitted(width)
        cells = [table.cells(row) for row in table.rows]
        titles = [column.title for column in table.columns]
        self.rows_shown = list(table.rows)
        if self._drawn == (titles, cells):
            return
        self._drawn = (titles, cells)
        key, at = self._key_under_cursor(), self.scroll_offset
        self.clear(columns=titles != self._titles)
        if titles != self._titles:
            for column in table.columns:
                self.add_column(plain(column.title), key=column.name)
            self._titles = titles
        seen: dict[str, int] = {}
        for row, texts in zip(table.rows, cells, strict=True):
            name = identity(row)
            seen[name] = seen.get(name, 0) + 1
            style = STYLES[page.severity(row["verdict"])] if "verdict" in row else ""
            styled = [
                plain(text, style if column.name == "verdict" else "")
                for column, text in zip(table.columns, texts, strict=True)
            ]
            for column, text in zip(table.columns, styled, strict=True):
                text.justify = "right" if column.kind.is_number else "left"
            self.add_row(*styled, key=f"{name}/{seen[name]}")
        self._restore(key, at.y)

    def _key_under_cursor(self) -> str | None:
        if not self.row_count:
            return None
        return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value

    def _restore(self, key: str | None, top: int) -> None:
        keys = [each.value for each in self.rows]
        if key in keys:
            self.move_cursor(row=keys.index(key), scroll=False)
            self.scroll_to(y=top, animate=False)


def identity(row: Row) -> str:
    """The key that identifies a row from one refresh to the next."""
    names = ("host", "group", "pid", "name", "thread", "gil", "time", "started")
    return "/".join(str(row.get(name, "")) for name in names)


class Top(App[int]):
    """Its result is the exit code, unless a key has ended it."""

    TITLE = "headway top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #totals { padding: 0 1; }
    #verdict { padding: 0 1; text-style: bold; }
    #trouble { padding: 0 1; color: $text-warning; }
    #trouble.quiet { display: none; }
    .words { padding: 0 1 1 1; }
    .heading { padding: 1 1 0 1; text-style: bold; }
    DataTable { height: auto; max-height: 100%; }
    Sheet { align: center middle; }
    Sheet > VerticalScroll {
        width: 94%; height: 90%; padding: 1 2; border: round $primary; background: $surface;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(view.key, f"view({view.name!r})", view.name, show=False) for view in VIEWS),
        Binding("question_mark", "help", "keys"),
        Binding("g", "group", "filter by group"),
        Binding("p,space", "pause", "pause"),
        Binding("w", "window", "time: 10 s, 1 min, 5 min"),
        Binding("s", "sort", "sort processes"),
        Binding("q,ctrl+c", "quit", "quit", priority=False),
    ]

    def __init__(
        self, source: Source, *, interval_s: float, window_s: float, view: str, group: str | None
    ) -> None:
        super().__init__()
        self._source = source
        self.window_s = window_s
        self.group = group
        self.groups: list[str] = [group] if group else []
        self.view = next(each for each in VIEWS if each.name == view)
        self.sort = 0
        self.is_paused = False
        self.latest: Figures | None = None
        self._answered_s = time.time()
        self._poller = Poller(source, self.request(), interval_s, self._deliver)

    def _deliver(self, found: Figures | Trouble) -> None:
        self.post_message(Arrived(found))

    def request(self) -> ViewRequest:
        query = self.view.query(self.window_s, self.group)
        return ViewRequest(self.view.name, self.window_s, self.group, self.view.path, query)

    def compose(self) -> ComposeResult:
        yield Static(plain("asking ..."), id="totals", markup=False)
        yield Static(plain(""), id="verdict", markup=False)
        yield Static(plain(""), id="trouble", classes="quiet", markup=False)
        with TabbedContent(initial=f"pane-{self.view.name}"):
            for view in VIEWS:
                with TabPane(f"{view.key} {view.name}", id=f"pane-{view.name}"):
                    yield from self._pane(view)
        yield Footer()

    @property
    def board(self) -> Screen[object]:
        """The screen below a sheet."""
        return self.screen_stack[0]

    def _pane(self, view: View) -> ComposeResult:
        with VerticalScroll():
            if view.name == "overview":
                yield Static(plain(""), id="history", classes="words", markup=False)
                yield Static(plain(""), id="words", classes="words", markup=False)
            if view.name == "processes":
                yield Rows("processes")
            for make in view.tables:
                title = make({}).title
                yield Static(plain(title), classes="heading", markup=False)
                yield Rows(f"{view.name}-{make.__name__}")

    def on_ready(self) -> None:
        # So that the terminal is left as it was, and the socket of `unix:PATH` is removed.
        for number in (signal.SIGTERM, signal.SIGHUP):
            # As under `nohup`.
            if signal.getsignal(number) is not signal.SIG_IGN:
                end = partial(self.exit, 128 + number)
                asyncio.get_running_loop().add_signal_handler(number, end)
        self._poller.start()

    def on_unmount(self) -> None:
        self._poller.end()

    def on_resize(self) -> None:
        if self.latest is not None:
            self.call_after_refresh(self.draw, self.latest)

    def on_arrived(self, message: Arrived) -> None:
        found = message.found
        if not self.is_running:
            return
        if isinstance(found, Trouble):
            since = figures.clock(self._answered_s)
            self.say(f"{figures.text(found.reason)}; the figures are of {since}")
            return
        if found.request.view != self.view.name:
            return
        self._answered_s = time.time()
        self.latest = found
        if not self.group:
            rows = tables.rows_of(found.now, "groups")
            names = {row["group"] for row in rows if isinstance(row.get("group"), str)}
            self.groups = sorted(names - {""})
        self.say(page.health(found.now.get("recorder")))
        self.draw(found)

    def say(self, trouble: str) -> None:
        line = self.board.query_one("#trouble", Static)
        line.set_class(not trouble, "quiet")
        line.update(plain(trouble))

    def draw(self, found: Figures) -> None:
        total = found.now.get("total")
        self.board.query_one("#totals", Static).update(
            plain("\n".join(self.heading(found.now, total)))
        )
        verdict = tables.value_at(total, "verdict")
        style = STYLES[page.severity(verdict)]
        self.board.query_one("#verdict", Static).update(plain(page.headline(verdict), style))
        width = self.size.width - MARGIN
        if self.view.name == "overview":
            self.board.query_one("#history", Static).update(
                plain("\n".join(page.history(found.answer, width)))
            )
            words = list(page.verdict_lines(verdict))[1:]
            self.board.query_one("#words", Static).update(plain("\n".join(words)))
        if self.view.name == "processes":
            shown = tables.processes(found.now, found.answer, SORTS[self.sort][1])
            self.board.query_one("#table-processes", Rows).show(shown, width)
        for make in self.view.tables:
            answer = found.now if self.view.name == "overview" else found.answer
            rows = self.board.query_one(f"#table-{self.view.name}-{make.__name__}", Rows)
            rows.show(make(answer), width)

    def heading(self, now: Row, total: object) -> list[str]:
        facts = [
            figures.text(self._source.name),
            f"last {figures.age(self.window_s)}",
            figures.clock(now.get("time")),
        ]
        facts += [f"group {figures.text(self.group)}"] if self.group else []
        facts += ["paused"] if self.is_paused else []
        facts += [f"by {SORTS[self.sort][0]}"] if self.view.name == "processes" else []
        return [
            "   ".join(facts),
            *page.totals(total),
            page.configuration(tables.value_at(total, "config")),
        ]

    def ask(self) -> None:
        self._poller.ask(self.request())

    def action_view(self, name: str) -> None:
        self.board.query_one(TabbedContent).active = f"pane-{name}"

    def on_tabbed_content_tab_activated(self, event: TabbedContent.TabActivated) -> None:
        name = (event.pane.id or "").removeprefix("pane-")
        self.view = next(each for each in VIEWS if each.name == name)
        found = event.pane.query(Rows)
        if found:
            found.first().focus()
        self.ask()

    def action_group(self) -> None:
        """Shows the next process group; after the last one, all."""
        every = [None, *self.groups]
        at = every.index(self.group) if self.group in every else 0
        self.group = every[(at + 1) % len(every)]
        self.ask()

    def action_window(self) -> None:
        longer = [each for each in WINDOWS_S if each > self.window_s]
        self.window_s = longer[0] if longer else WINDOWS_S[0]
        self.ask()

    def action_sort(self) -> None:
        self.sort = (self.sort + 1) % len(SORTS)
        if self.latest is not None and self.view.name == "processes":
            self.draw(self.latest)

    def action_pause(self) -> None:
        self.is_paused = not self.is_paused
        self._poller.pause(self.is_paused)
        if self.latest is not None:
            self.draw(self.latest)

    def action_help(self) -> None:
        self.push_screen(Sheet(help_lines()))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        if isinstance(event.data_table, Rows) and event.cursor_row < len(
            event.data_table.rows_shown
        ):
            self.push_screen(Sheet(page.details(event.data_table.rows_shown[event.cursor_row])))


def help_lines() -> list[str]:
    lines = ["keys", ""]
    for binding in Top.BINDINGS:
        assert isinstance(binding, Binding)
        keys = binding.key.replace("question_mark", "?").replace(",", ", ")
        lines.append(f"  {keys:12}{binding.description}")
    lines += [
        "  enter       all details of the row under the cursor",
        "  escape      close this",
        "",
    ]
    return [*lines, *ABOUT.splitlines()]
