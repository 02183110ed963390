"""`headway top` beside a real recorder: the terminal by Textual's own Pilot, and --once."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import io
import json
import os
import pty
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from answers import EVIL
from launch import HEADWAY, environment, run_main
from recorded import Recorded
from served import FREE_THREADING, Served

from headway import _native
from headway.commands import top
from headway.errors import CommandError
from headway.top import socket_source, tables
from headway.top.source import Recorder

textual = pytest.importorskip("textual", reason="Textual is not installed: headway[top]")

from headway.top.app import Rows, Sheet, Top  # noqa: E402

TIMEOUT_S = 30
INTERVAL = ("--telemetry-interval", "0.5")
TICK, SLOW_REQUEST, PROCESS_STOPPED = 2, 4, 7


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A recorder that a server reports to, and somebody hostile too."""
    recorder = Recorded(tmp_path_factory.mktemp("top"))
    try:
        options = ("--telemetry", f"unix:{recorder.socket}", *INTERVAL, "--slow-requests", "0.1")
        with Served("telemetry_pages:app", *options, "--threads", "2") as server:
            for page in ("/", "/deadline", "/slow", "/collect"):
                assert server.get(page).status == 200
            send_hostile(recorder.socket)
            wait_for(lambda: recorder.ask("slow?from=-600")["events"][1:])
            yield recorder
    finally:
        recorder.stop()


def send_hostile(path: str) -> None:
    now = time.time()
    identity = {"hostname": EVIL, "process_group": EVIL, "process_name": EVIL}
    tick = {**identity, "sample_period": 1.0, "request_count": 1, "policy": EVIL}
    slow = {**identity, "slow_duration": 1.5, "slow_path_info": f"/{EVIL}", "slow_stack": EVIL}
    end = {**identity, "shutdown_reason": EVIL, "death": EVIL}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for number, (kind, fields) in enumerate(
            ((TICK, tick), (SLOW_REQUEST, slow), (PROCESS_STOPPED, end)), 1
        ):
            sender.sendto(_native.telemetry_encode(kind, 99_999, number, now, fields), path)


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def watch(recorded: Recorded, use: Callable[[Top, object], Awaitable[None]], **options: object):
    """Runs the terminal on a screen in memory, with `use` at its keys."""
    size = options.pop("size", (160, 50))

    async def run() -> None:
        settings = {"interval_s": 0.2, "window_s": 600.0, "view": "overview", "group": None}
        app = Top(Recorder(recorded.url), **{**settings, **options})
        # Each key that is pressed would wait for the line below the tabs to have moved.
        app.animation_level = "none"
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.latest is not None)
            await use(app, pilot)

    asyncio.run(run())


async def until(pilot, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        await pilot.pause(0.05)


def screen(app: Top) -> str:
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)


def assert_nothing_hostile(text: str) -> None:
    assert all(line.isprintable() for line in text.split("\n"))
    assert "[bold]evil[/bold]" in text


@pytest.mark.slow("draws screens beside a recorder")
def test_the_overview_tells_totals_verdict_and_groups(recorded: Recorded) -> None:
    async def use(app: Top, pilot) -> None:
        await until(pilot, lambda: app.query_one("#table-overview-groups", Rows).row_count >= 2)
        await until(pilot, lambda: "response p50" in screen(app))
        shown = screen(app)
        assert recorded.url in shown
        gil = () if FREE_THREADING else ("GIL wait p50", "held", "handoff", "idle")
        for words in ("requests", "response p50", *gil):
            assert words in shown
        assert "main" in shown
        assert_nothing_hostile(shown)

    watch(recorded, use)


def test_every_page_shows_its_rows_and_their_details(recorded: Recorded) -> None:
    async def use(app: Top, pilot) -> None:
        for view in tables.VIEWS:
            await pilot.press(view.key)
            await until(
                pilot, lambda view=view: app.latest and app.latest.request.view == view.name
            )
            await pilot.pause()
            shown = screen(app)
            assert all(line.isprintable() for line in shown.split("\n"))
        await pilot.press("3")
        rows = app.query_one("#table-slow-slow", Rows)
        await until(pilot, lambda: rows.row_count >= 2)
        assert {"/slow", f"/{EVIL}"} <= {row["url"] for row in rows.rows_shown}
        assert_nothing_hostile(screen(app))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Sheet))
        assert "slow_duration" in screen(app)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, Sheet))

    watch(recorded, use)


@pytest.mark.slow("draws screens beside a recorder")
def test_processes_and_their_figures(recorded: Recorded) -> None:
    async def use(app: Top, pilot) -> None:
        rows = app.query_one("#table-processes", Rows)
        await until(pilot, lambda: rows.row_count >= 2)
        titles = [str(column.label) for column in rows.columns.values()]
        assert {"pid", "req/s", "GIL wait p95", "handoff", "CPU cores", "verdict"} <= set(titles)
        before = app.sort
        await pilot.press("s")
        assert app.sort == before + 1
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Sheet))
        assert "process" in screen(app)

    watch(recorded, use, view="processes")


def test_a_narrow_terminal_leaves_columns_out(recorded: Recorded) -> None:
    async def use(app: Top, pilot) -> None:
        rows = app.query_one("#table-processes", Rows)
        await until(pilot, lambda: rows.row_count >= 2)
        titles = [str(column.label) for column in rows.columns.values()]
        assert "pid" in titles
        assert "handoff" not in titles

    watch(recorded, use, view="processes", size=(60, 20))


def test_the_filter_goes_through_the_groups_and_back(recorded: Recorded) -> None:
    async def use(app: Top, pilot) -> None:
        await until(pilot, lambda: "main" in app.groups)
        while app.group != "main":
            await pilot.press("g")
        await until(
            pilot,
            lambda: (
                app.latest.request.group == "main"
                and {row["group"] for row in tables.rows_of(app.latest.now, "groups")} == {"main"}
            ),
        )
        await until(pilot, lambda: "group main" in screen(app))
        assert EVIL.encode("unicode_escape").decode()[:4] not in screen(app)
        while app.group is not None:
            await pilot.press("g")

    watch(recorded, use)


def test_while_paused_nothing_is_asked(recorded: Recorded) -> None:
    async def use(app: Top, pilot) -> None:
        await pilot.press("p")
        # Earlier answers still arrive. Only time shows that no further request follows.
        await pilot.pause(0.2)
        shown = app.latest
        await pilot.pause(0.4)
        assert app.latest is shown
        assert "paused" in screen(app)
        await pilot.press("p")
        await until(pilot, lambda: app.latest is not shown)

    watch(recorded, use, interval_s=0.05)


@pytest.mark.slow("draws screens beside a recorder")
def test_the_keys_are_listed(recorded: Recorded) -> None:
    async def use(app: Top, pilot) -> None:
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, Sheet))
        shown = screen(app)
        for words in ("filter by group", "pause", "quit", "endpoints", "lifecycle"):
            assert words in shown

    watch(recorded, use)


@pytest.mark.slow("draws screens beside a recorder")
def test_a_recorder_that_goes_away_is_said_and_the_figures_stay(tmp_path: Path) -> None:
    recorder = Recorded(tmp_path)
    send_hostile(recorder.socket)
    wait_for(lambda: recorder.ask("now")["groups"])

    async def use(app: Top, pilot) -> None:
        await until(pilot, lambda: app.query_one("#table-overview-groups", Rows).row_count == 1)
        recorder.stop()
        await until(pilot, lambda: "does not answer" in screen(app))
        assert app.query_one("#table-overview-groups", Rows).row_count == 1

    try:
        watch(recorder, use)
    finally:
        recorder.stop()


def test_once_agrees_with_the_api(recorded: Recorded) -> None:
    ended = run_main("top", recorded.url, "--once", "--window", "600")
    assert ended.returncode == 0, ended.stderr
    assert "\x1b" not in ended.stdout
    assert_nothing_hostile(ended.stdout)
    rows = [line.split() for line in ended.stdout.splitlines() if not line.startswith("#")]
    total = dict(zip(rows[0], rows[1], strict=True))
    asked = recorded.ask("now?window=600")
    assert total["scope"] == "total"
    response_s = asked["total"]["summary"]["response"]["p95"]
    assert float(total["response_p95_ms"]) == pytest.approx(1e3 * response_s, rel=0.1)
    pids = {row[3] for row in rows[1:] if row[0] == "process"}
    assert pids == {str(process["pid"]) for process in asked["processes"]}


@pytest.mark.parametrize("view", [view.name for view in tables.VIEWS])
def test_once_writes_each_page(recorded: Recorded, view: str) -> None:
    ended = run_main("top", recorded.url, "--once", "--view", view)
    assert ended.returncode == 0, ended.stderr
    assert all(line.isprintable() for line in ended.stdout.split("\n"))
    if view == "slow":
        assert "/slow" in ended.stdout
    if view == "lifecycle":
        assert "process_started" in ended.stdout


def test_once_of_one_group(recorded: Recorded) -> None:
    ended = run_main("top", recorded.url, "--once", "--json", "--group", "main")
    answer = json.loads(ended.stdout)
    assert {row["group"] for row in answer["processes"]} == {"main"}
    assert answer["total"]["summary"]["processes"] == pytest.approx(1, abs=0.5)


def test_a_socket_needs_no_recorder(tmp_path: Path) -> None:
    """`top unix:PATH` shows the reports of a server while it listens."""
    path = tmp_path / "t.sock"
    ended = threading.Event()
    with Served(
        "telemetry_pages:app", "--telemetry", f"unix:{path}", *INTERVAL, "--threads", "2"
    ) as server:

        def ask() -> None:
            while not ended.is_set():
                server.get("/")

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            done = run_main("top", f"unix:{path}", "--once", "--json", "--window", "1")
        finally:
            ended.set()
            asking.join()
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [row["group"] for row in answer["processes"]] == ["main"]
    assert answer["total"]["summary"]["requests"] > 0
    assert not path.exists()


class Clock:
    """Stands in for `time`: sleeping takes no time, and is seen on the clock."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_a_socket_that_nobody_reports_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(socket_source, "time", clock)
    path = tmp_path / "t.sock"
    done = run_main("top", f"unix:{path}", "--once", "--window", "1")
    assert done.returncode == 1
    assert done.stderr == f"headway top: no process reported to unix:{path} within 2 s\n"
    assert clock.now_s == pytest.approx(2, abs=0.1)
    assert not path.exists()


def test_a_socket_where_a_recorder_listens(recorded: Recorded) -> None:
    done = run_main("top", f"unix:{recorded.socket}", "--once")
    assert done.returncode == 2
    assert "somebody listens there already" in done.stderr
    assert done.stderr.count("\n") == 1
    assert recorded.ask("now")["recorder"]["received"] > 0


class Terminal:
    """`headway top` on a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self.said = b""
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 40, 120, 0, 0))
        self.process = subprocess.Popen(
            [*HEADWAY, "top", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(TERM="xterm-256color"),
            start_new_session=True,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        # The end of the last process on a terminal is an error to who reads it.
        with contextlib.suppress(OSError):
            while data := os.read(self._ours, 65536):
                self.said += data

    def press(self, keys: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._ours, keys)

    def wait(self) -> int:
        try:
            return self.process.wait(TIMEOUT_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self._reader.join()
            os.close(self._ours)


@pytest.mark.parametrize("keys", [b"q", b"\x03"])
def test_a_real_terminal_is_left_as_it_was(recorded: Recorded, keys: bytes) -> None:
    # However long ago the last request was by now.
    terminal = Terminal(recorded.url, "--window", "600")
    try:
        wait_for(lambda: b"response p50" in terminal.said)
        # On a busy machine, keys may be lost while the screen changes; a user would press again.
        wait_for(lambda: terminal.press(keys) or terminal.process.poll() is not None)
    finally:
        code = terminal.wait()
    assert code == 0
    # The alternate screen is left, and the cursor shown.
    assert terminal.said.rindex(b"\x1b[?1049l") > terminal.said.rindex(b"\x1b[?1049h")
    assert b"\x1b[2J[bold]" not in terminal.said
    assert b"Traceback" not in terminal.said


def test_a_terminal_where_nobody_answers_is_told_in_one_line() -> None:
    terminal = Terminal("http://127.0.0.1:1")
    assert terminal.wait() == 1
    line = b"headway top: http://127.0.0.1:1 does not answer: connection refused\r\n"
    assert terminal.said == line


def test_without_textual_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(top, "find_spec", lambda name: None)
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(sys, stream, TerminalStream())
    with pytest.raises(CommandError) as told:
        top.check_terminal()
    assert str(told.value) == (
        "Textual is not installed: use --once, or in Headway's source tree run "
        "`make build EXTRAS=top`, or `pip install '.[top]'` in an environment of your own"
    )
    assert told.value.exit_code == 1


class TerminalStream(io.StringIO):
    def isatty(self) -> bool:
        return True
