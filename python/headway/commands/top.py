"""`headway top`: the command line, and the choice between a screen and text."""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from headway.errors import CommandError
from headway.extras import how_to_install
from headway.options import Seconds, SocketPath, argument, refusal
from headway.programs import signals
from headway.top import once, tables
from headway.top.source import DEFAULT_URL, NoAnswer, Recorder, Source, ask_now

TOKEN = "HEADWAY_TELEMETRY_TOKEN"
MAX_WINDOW_S = 600

DESCRIPTION = f"""\
Shows in a terminal what a recorder (headway telemetry) shows in a browser: a verdict with its
evidence and advice; the throughput, response times, application time, exact waits for the GIL, CPU
use, memory and busy threads of each process group and process; the threads that hold the GIL; slow
requests with their stacks; garbage collections; starts and ends of processes.

SOURCE is the recorder's URL (default: {DEFAULT_URL}). With unix:PATH no recorder is
needed: while headway top runs, it receives the reports that processes send to PATH (headway serve
--telemetry unix:PATH, mod_wsgi's WSGITelemetryService), and stores nothing; with --once it first
receives reports for --window seconds.

The terminal needs Textual (make build EXTRAS=top); --once does not.
"""

EPILOG = """\
keys: ? lists them all; 1 to 7 choose the page, g filters by group, p pauses, q quits.

exit status:
  0  done
  1  no recorder answered, or no process reported
  2  bad usage
  130 after Ctrl-C with --once, 143 after SIGTERM, 129 after SIGHUP

examples:
  headway top
  headway top unix:/run/site/telemetry.sock
  headway top --once | awk '$1 == "total" {print $6}'       requests per second
  headway top --once --view slow
  headway top --once --json | jq .total.verdict.name
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [options] [SOURCE]"
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.add_argument(
        "source", metavar="SOURCE", nargs="?", default=DEFAULT_URL, help="a URL, or unix:PATH"
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="write the figures to stdout once, as text for scripts, and end",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="with --once: write the answer of the recorder's API, as JSON",
    )
    parser.add_argument(
        "--view",
        choices=[view.name for view in tables.VIEWS],
        default=tables.VIEWS[0].name,
        help="the page to show first, or to write (default: %(default)s)",
    )
    parser.add_argument(
        "--group", metavar="NAME", help="show the processes of this process group only"
    )
    parser.add_argument(
        "--window",
        metavar="S",
        type=argument(Seconds(1, MAX_WINDOW_S)),
        default=10.0,
        help=f"show figures of the last S seconds, 1 to {MAX_WINDOW_S} (default: 10)",
    )
    parser.add_argument(
        "--interval",
        metavar="S",
        type=argument(Seconds(0.2, 3600)),
        default=1.0,
        help="seconds between two requests to the recorder, 0.2 or more (default: 1)",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help=f"a file with the token of the recorder (default: the environment variable {TOKEN})",
    )


def run(arguments: argparse.Namespace) -> int:
    check(arguments)
    if not arguments.once:
        check_terminal()
    signals.watch()
    source: Source | None = None
    try:
        # The socket of `unix:PATH` has to be removed whenever a signal comes.
        with signals.held():
            source = open_source(arguments)
        if arguments.once:
            source.wait(arguments.window)
            return show_once(source, arguments)
        from headway.top.app import Top

        # A missing recorder is reported in one line, rather than on a screen that stays empty.
        source.ask("now")
        ended = Top(
            source,
            interval_s=arguments.interval,
            window_s=arguments.window,
            view=arguments.view,
            group=arguments.group,
        ).run()
        return ended or 0
    except NoAnswer as error:
        raise CommandError(str(error)) from error
    finally:
        if source is not None:
            with signals.held():
                source.close()


def check(arguments: argparse.Namespace) -> None:
    """Raises CommandError for what argparse lets through."""
    if arguments.json and not arguments.once:
        raise CommandError("--json: allowed with --once only", 2)


def check_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError(
            "stdout is no terminal: use --once, which writes text to a pipe or a file", 2
        )
    if os.environ.get("TERM") in (None, "", "dumb"):
        raise CommandError("the terminal (TERM) cannot move its cursor: use --once", 2)
    if find_spec("textual") is None:
        raise CommandError(f"Textual is not installed: use --once, or {how_to_install('top')}")


def open_source(arguments: argparse.Namespace) -> Source:
    if arguments.source.startswith(SocketPath.PREFIX):
        from headway.top.socket_source import SocketSource

        try:
            path = SocketPath().parse(arguments.source)
        except ValueError:
            raise CommandError(refusal(repr(arguments.source), SocketPath()), 2) from None
        return SocketSource(path)
    return Recorder(arguments.source, token_of(arguments.token_file))


def token_of(path: str | None) -> str | None:
    if path is None:
        return os.environ.get(TOKEN) or None
    try:
        token = Path(path).read_text().strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise CommandError(f"--token-file {path!r}: {why}", 2) from error
    if not token.isascii() or not token.isprintable() or not token:
        raise CommandError(f"--token-file {path!r}: found no token of printable ASCII", 2)
    return token


def show_once(source: Source, arguments: argparse.Namespace) -> int:
    now = ask_now(source, arguments.window, arguments.group)
    view = next(each for each in tables.VIEWS if each.name == arguments.view)
    more = view.name not in ("overview", "processes")
    query = view.query(arguments.window, arguments.group)
    answer = source.ask(view.path, query) if more else {}
    if arguments.json:
        print(json.dumps(answer if more else now))
    else:
        sys.stdout.write(once.draw(source.name, now, view.name, answer))
    return 0
