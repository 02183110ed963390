"""`headway audit`: the command line, its progress on a terminal, and the exit status."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from typing import Any, NoReturn

from headway.audit.drawing import draw
from headway.audit.examination import Examination, Refused
from headway.audit.findings import SUPPORTS, Audit
from headway.errors import CommandError
from headway.json_file import STDOUT, check_path, write_json
from headway.report.terminal import Style

TIMEOUT_S = 60.0
# Before that nobody wonders.
PROGRESS_AFTER_S = 1.0

DESCRIPTION = """\
Lists each extension module that a WSGI application imports, and whether it works in an own-GIL
sub-interpreter, in a sub-interpreter that shares the GIL, and without a GIL. Run it before headway
serve gets --per-interpreter-gil, --interpreters or --free-threading.

headway audit imports the application in child processes: in a main interpreter, and in two
sub-interpreters of each kind, because some modules load in one sub-interpreter of a process only.
It imports each extension module too, and alone if it fails with the others. A crash or a
hang is a finding, not an error. Only a free-threaded build can show whether a module works without
the GIL, because importing a module that does not turns the GIL on; other builds show what the
module declares. The application is not called, so modules that it imports at its first request
are missing.
"""

EPILOG = """\
Each answer is yes, no or unknown, with the reason. The columns "own GIL" and "shared GIL" are
tried. The column "free-threaded" is tried on a free-threaded build, and is a declaration on
other builds.

exit status:
  0  the audit is finished, whatever it found, and what --require asks for is there
  1  something that --require asks for is not known to work, or importing the application failed
  2  bad usage, or there is no such application; nothing was imported

examples:
  headway audit shop.wsgi:application
  headway audit --app-dir src shop:app --json audit.json
  headway audit shop:app --require own-gil  in CI, before the workers get GILs of their own
  python3.13t -m headway audit shop:app     what the application does without a GIL
"""

REQUIREMENTS = {support.replace("_", "-"): support for support in SUPPORTS}


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [options] APP"
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.add_argument(
        "application",
        metavar="APP",
        help="module:callable, module:factory(), or the path of a script file with an application "
        "in it",
    )
    parser.add_argument(
        "--app-dir", metavar="DIR", help="look for APP here instead of in the current directory"
    )
    parser.add_argument(
        "--python-path",
        metavar="DIR[:...]",
        action="append",
        default=[],
        help="directories to put before sys.path, after --app-dir; may be given several times",
    )
    parser.add_argument(
        "--require",
        metavar="WHAT[,...]",
        default="",
        help="exit with 1 unless the application and all of its extension modules support it: "
        f"{', '.join(REQUIREMENTS)}",
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        default=f"{TIMEOUT_S:g}",
        help="seconds after which an import counts as hanging (default: %(default)s)",
    )
    parser.add_argument(
        "--json", metavar="FILE", help="also write the findings as JSON; - writes them alone"
    )


def run(arguments: argparse.Namespace) -> int:
    required = _requirements(arguments.require)
    path = _path(arguments)
    timeout_s = _seconds(arguments.timeout)
    json_path = check_path(arguments.json) if arguments.json is not None else None
    progress = Progress()
    before = signal.signal(signal.SIGTERM, _end)
    try:
        audit = Examination(arguments.application, path, timeout_s, progress.show).run()
    except Refused as error:
        progress.clear()
        if error.details:
            print(error.details, file=sys.stderr)
        raise
    finally:
        progress.clear()
        signal.signal(signal.SIGTERM, before)
    if json_path is not None:
        _write(audit, json_path)
    if json_path != STDOUT:
        style = Style.of_stream(sys.stdout.fileno(), sys.stdout.encoding)
        sys.stdout.write(draw(audit, style))
        sys.stdout.flush()
    return _status(audit, required)


def _end(*_: Any) -> NoReturn:
    """SIGTERM ends the child too, which is in a session of its own."""
    raise SystemExit(128 + signal.SIGTERM)


def _requirements(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")] if text else []
    for word in words:
        if word not in REQUIREMENTS:
            raise CommandError(
                f"--require: found {word!r}; allowed: {', '.join(REQUIREMENTS)} (with commas)",
                exit_code=2,
            )
    return words


def _path(arguments: argparse.Namespace) -> list[str]:
    """The directories before `sys.path`, as in `headway serve` with the same flags, but without
    .pth files."""
    path = []
    given = [("--python-path", each) for each in ":".join(arguments.python_path).split(":") if each]
    if arguments.app_dir is not None:
        given.insert(0, ("--app-dir", arguments.app_dir))
    else:
        path.append(os.getcwd())
    for flag, directory in given:
        if not os.path.isdir(directory):
            raise CommandError(
                f"{flag}: found {directory}; it must be a directory that exists", exit_code=2
            )
        path.append(os.path.abspath(directory))
    return list(dict.fromkeys(path))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 86_400:
        raise CommandError(
            f"--timeout: found {text}; allowed: a number of seconds from 0.1 to 86400", exit_code=2
        )
    return seconds


def _write(audit: Audit, path: str) -> None:
    try:
        write_json(audit.to_dict(), path)
    except OSError as error:
        raise CommandError(f"--json {path!r} cannot be written: {error.strerror}") from None


def _status(audit: Audit, required: list[str]) -> int:
    status = 0
    for word in required:
        subjects = [(audit.application.name, audit.application)]
        subjects += [(module.name, module) for module in audit.modules]  # type: ignore[misc]
        lacking = [
            f"{name} ({subject.answers()[REQUIREMENTS[word]].answer})"
            for name, subject in subjects
            if subject.answers()[REQUIREMENTS[word]].answer != "yes"
        ]
        if lacking:
            print(f"headway audit: --require {word}: not so: {', '.join(lacking)}", file=sys.stderr)
            status = 1
    return status


class Progress:
    """One line on stderr that is written over, if stderr is a terminal."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._shown = False
        self._terminal = sys.stderr is not None and sys.stderr.isatty()

    def show(self, stage: str, done: int, total: int, what: str) -> None:
        if not self._terminal or time.monotonic() - self._begun < PROGRESS_AFTER_S:
            return
        width = Style.of_stream(2, "utf-8").width
        line = f"headway audit: {stage}: {done + 1} of {total}, {what}"
        print(f"\r\x1b[K{line[: width - 1]}", end="", file=sys.stderr, flush=True)
        self._shown = True

    def clear(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = False
