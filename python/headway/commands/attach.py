"""`headway attach`: measures, and cures, a process that already runs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from headway.attach.target import PID
from headway.commands import policy_flags
from headway.errors import CommandError, Error
from headway.json_file import STDOUT, check_path, write_json
from headway.options import Policy, RecorderSocket, Seconds, argument
from headway.report import units

if TYPE_CHECKING:
    from headway.attach.session import Options, Session
    from headway.attach.target import Target
    from headway.commands.attach_comparison import Comparison
    from headway.report.model import GilReport
    from headway.report.terminal import Style

DESCRIPTION = """\
Measures the GIL of a process that already runs, for a time, and prints the report of `headway run`
for this time. With --policy the process also runs under that policy meanwhile; --keep leaves the
policy on, until `headway detach PID`. Ctrl-C ends the measurement early. Afterwards the process is
as it was, but for one mapped library and modules that are not used.

The rights are those of a debugger (ptrace), as for py-spy. CPython 3.14 and later have an interface
for it (PEP 768); for 3.10 to 3.13 gdb must be installed. The process needs no Headway of its own.
"""
EXAMPLES = """\
examples:
  headway attach 4711                             who waits for the GIL in there?
  headway attach 4711 --for 30s --profile waits.svg
  headway attach 4711 --compare                   does a policy help? without and with it by turns
  headway attach 4711 --policy priority --keep    first aid without a restart
  headway detach 4711                             and its end
  headway attach 4711 --tree                      gunicorn: its master and all workers
"""
DEFAULT_S = 10.0
TRACE_EVENTS = 1_000_000


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.epilog = f"{policy_flags.describe()}\n{EXAMPLES}"
    parser.add_argument("pid", metavar="PID", type=argument(PID), help="the process")
    parser.add_argument(
        "--for",
        dest="for_s",
        metavar="S",
        type=argument(Seconds(0.1, 86_400)),
        default=DEFAULT_S,
        help="how long to measure, in seconds, or with a unit, such as 2m (default: 10)",
    )
    parser.add_argument(
        "--policy",
        metavar="P",
        type=argument(Policy()),
        help="also schedule the GIL, by this policy: see below (default: leave that as it is)",
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave the policy on; `headway detach PID` ends it"
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="run without and with the policy (default: priority) in turns of a second, and print "
        "what it changes",
    )
    parser.add_argument(
        "--tree", action="store_true", help="the process and all Python processes that it started"
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="also write the report (schema 2) or the comparison to FILE as JSON; - is stdout",
    )
    parser.add_argument(
        "--profile",
        metavar="FILE",
        help="also find the lines that made threads wait, and write them to FILE, in the format of "
        "its name (see headway run --help)",
    )
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="also write the last holds and waits to FILE for ui.perfetto.dev; if FILE ends in "
        ".svg, as a drawing",
    )
    parser.add_argument(
        "--telemetry",
        metavar="unix:PATH",
        type=argument(RecorderSocket()),
        help="meanwhile report to the recorder (headway telemetry) at this socket, too",
    )


def run(arguments: argparse.Namespace) -> int:
    from headway.attach import target
    from headway.programs import signals

    files = _check(arguments)
    refusals: dict[int, target.Refused] = {}
    if arguments.tree:
        found, refusals = target.find_tree(arguments.pid)
    else:
        found = [target.find(arguments.pid)]
    for pid, refusal in refusals.items():
        _say(f"without process {pid}: {refusal}")
    signals.watch()
    with ExitStack() as stack:
        sessions = _enter(found, _options(arguments), stack)
        if arguments.compare:
            comparison = _compare(sessions, arguments)
        else:
            policy = f" under {arguments.policy}" if arguments.policy else ""
            _say_begun(sessions, f"measuring for {units.seconds(arguments.for_s)}{policy}")
            _wait(arguments.for_s)
            ended = list(_end(sessions, arguments))
    if arguments.compare:
        _show_comparison(comparison, files, arguments)
        return 0
    if not ended:
        raise CommandError(f"process {arguments.pid} has ended, and with it its counters")
    reports = [_report(before, raw) for before, raw, _, _ in ended]
    shown = _in_one(reports)
    _, _, trace, profile = ended[0]
    lines = _write(files, shown, trace, profile, arguments)
    _show(shown, lines, arguments)
    return 0


def _check(arguments: argparse.Namespace) -> dict[str, str]:
    """Returns the paths of --json, --trace and --profile. Raises CommandError for what cannot
    be done, before anything is touched."""
    if arguments.compare:
        arguments.policy = arguments.policy or "priority"
        _check_comparison(arguments)
    if arguments.keep and arguments.policy is None:
        raise CommandError("--keep: there is no --policy to keep", exit_code=2)
    if arguments.keep and arguments.policy == "interval":
        raise CommandError("--keep: the policy interval leaves the GIL to CPython", exit_code=2)
    files = {
        name: check_path(path, f"--{name}")
        for name in ("json", "trace")
        if (path := getattr(arguments, name)) is not None
    }
    if arguments.profile is not None:
        from headway.profile import profile_file

        files["profile"] = profile_file.check_name(arguments.profile)
    if arguments.tree and len(files.keys() - {"json"}):
        raise CommandError("--tree: --trace and --profile are for one process", exit_code=2)
    return files


def _options(arguments: argparse.Namespace) -> Options:
    return {
        "policy": None if arguments.compare else arguments.policy,
        "limit_s": arguments.for_s,
        "trace_events": TRACE_EVENTS if arguments.trace is not None else 0,
        "profile": arguments.profile is not None,
        "telemetry": arguments.telemetry or "",
    }


def _enter(found: Sequence[Target], options: Options, stack: ExitStack) -> list[Session]:
    """Begins to measure in each process. Of several, those that refuse are named and left out."""
    from headway.attach.session import Session

    sessions = []
    for each in found:
        try:
            sessions.append(stack.enter_context(Session(each)))
        except Error as error:
            if not found[1:]:
                raise
            _say(f"without process {each.pid}: {error}")
    begun = []
    # All at about the same time.
    for session in sessions:
        try:
            session.begin(options)
        except Error as error:
            if not found[1:]:
                raise
            _say(f"without process {session.target.pid}: {error}")
            continue
        begun.append(session)
    if not begun:
        raise CommandError("--tree: none of the processes could be attached to", exit_code=2)
    return begun


def _end(
    sessions: Sequence[Session], arguments: argparse.Namespace
) -> Iterator[tuple[dict[str, Any] | None, dict[str, Any], Any, Any]]:
    """Yields the counters of each process. Names those that have ended meanwhile."""
    for session in sessions:
        try:
            before, raw, trace, profile = session.ask("end", arguments.keep)
        except Error as error:
            _say(str(error))
            continue
        yield before, raw, trace, profile


def _say_begun(sessions: Sequence[Session], what: str) -> None:
    first = sessions[0]
    number = f" and {len(sessions) - 1} more" if sessions[1:] else ""
    _say(
        f"attached to process {first.target.pid}{number} (CPython {first.target.python}) in "
        f"{units.seconds(first.attach_s)}; {what}, Ctrl-C ends it"
    )


def _wait(seconds: float) -> None:
    """Until the time is over, or Ctrl-C."""
    from headway.programs import progress

    end = time.monotonic() + seconds
    try:
        while (left := end - time.monotonic()) > 0:
            if sys.stderr is not None and sys.stderr.isatty():
                progress.progress(f"{units.seconds(round(left, 1))} left")
            time.sleep(min(left, 1.0))
    except KeyboardInterrupt:
        pass
    progress.clear_progress()


def _compare(sessions: list[Session], arguments: argparse.Namespace) -> Comparison:
    """Turns without and with the policy, until the time is over, Ctrl-C, or the last process has
    ended."""
    from headway.commands import attach_comparison
    from headway.programs import progress, signals

    policies = [
        arguments.policy if is_with else None
        for is_with in attach_comparison.order(_rounds(arguments))
    ]
    before = _turn(sessions, policies[0])
    control = _control(sessions, before, arguments)
    comparison = attach_comparison.Comparison(control, arguments.policy)
    turns = f"{len(policies)} turns of {units.seconds(attach_comparison.TURN_S)}"
    _say_begun(sessions, f"{control} and {arguments.policy} in {turns}")
    is_shown = sys.stderr is not None and sys.stderr.isatty()
    try:
        for number, following in enumerate([*policies[1:], None]):
            name = policies[number] or control
            if is_shown:
                progress.progress(f"turn {number + 1} of {len(policies)}: {name}")
            time.sleep(attach_comparison.TURN_S)
            # An answer that is not read would be taken for the next one.
            with signals.held():
                after = _turn(sessions, following)
            turn = {pid: attach_comparison.process_turn(before[pid], after[pid]) for pid in after}
            comparison.add(name, turn)
            before = after
    except KeyboardInterrupt:
        pass
    except Error as error:
        progress.clear_progress()
        _say(str(error))
    finally:
        progress.clear_progress()
    for session in sessions:
        with suppress(Error):
            session.ask("end", False)
    if not comparison.pairs:
        raise CommandError("--compare: ended before there was a turn of each")
    return comparison


def _control(
    sessions: list[Session], before: dict[int, dict[str, Any]], arguments: argparse.Namespace
) -> str:
    """The policy that the first process has. Of several, those with another one are left out."""
    control: str = before[sessions[0].target.pid]["policy"]
    if control == arguments.policy:
        raise CommandError(
            f"--compare: process {sessions[0].target.pid} has the policy {control} already",
            exit_code=2,
        )
    for session in list(sessions):
        policy = before[session.target.pid]["policy"]
        if policy != control:
            _say(f"without process {session.target.pid}: its policy is {policy}, not {control}")
            sessions.remove(session)
    return control


def _rounds(arguments: argparse.Namespace) -> int:
    from headway.commands.attach_comparison import TURN_S, TURNS_OF_ROUND

    return int(arguments.for_s / (TURNS_OF_ROUND * TURN_S))


def _turn(sessions: list[Session], policy: str | None) -> dict[int, dict[str, Any]]:
    """Returns the counters of each process, and changes its policy to `policy`, or to what it had
    before. Of several processes, names those that have ended meanwhile and leaves them out."""
    from headway.programs import progress

    raws = {}
    for session in list(sessions):
        try:
            (raws[session.target.pid],) = session.ask("turn", policy)
        except Error as error:
            if not sessions[1:]:
                raise
            progress.clear_progress()
            _say(str(error))
            sessions.remove(session)
    return raws


def _show_comparison(
    comparison: Comparison, files: dict[str, str], arguments: argparse.Namespace
) -> None:
    try:
        if "json" in files:
            write_json(dict(comparison.to_document()), files["json"])
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error
    stream = sys.stderr if arguments.json == STDOUT else sys.stdout
    print("\n".join(comparison.lines(_style(arguments))), file=stream)


def _check_comparison(arguments: argparse.Namespace) -> None:
    from headway.commands.attach_comparison import LEAST_ROUNDS, TURN_S, TURNS_OF_ROUND

    for name in ("keep", "profile", "trace", "telemetry"):
        if getattr(arguments, name):
            raise CommandError(f"--compare: --{name} is not for two policies in turn", exit_code=2)
    if _rounds(arguments) < LEAST_ROUNDS:
        least_s = LEAST_ROUNDS * TURNS_OF_ROUND * TURN_S
        raise CommandError(f"--compare: --for must be {least_s:g}s or more", exit_code=2)


def _report(before: dict[str, Any] | None, raw: dict[str, Any]) -> GilReport:
    from headway.meter.snapshot import Snapshot

    after = Snapshot(raw)
    return (after if before is None else after - Snapshot(before)).report()


def _in_one(reports: Sequence[GilReport]) -> GilReport:
    """The report of the first process, with the others as its children."""
    pids = {each.pid for each in reports}
    children = [each.replaced(children=[]) for each in reports[1:]]
    # A forked child may be in the counters of its parent, too.
    children += [child for each in reports for child in each.children if child.pid not in pids]
    return reports[0].replaced(children=children)


def _write(
    files: dict[str, str],
    report: GilReport,
    trace: dict[str, Any] | None,
    profile: dict[str, Any] | None,
    arguments: argparse.Namespace,
) -> list[str]:
    """Writes the files. Returns the lines of the profile."""
    from headway.report import processes

    name = processes.role(report.command or ())
    lines: list[str] = []
    try:
        if "json" in files:
            write_json(report.to_dict(), files["json"])
        if "trace" in files and trace is not None:
            from headway.trace import trace_file

            _say(trace_file.write_trace(trace, report, files["trace"], name))
        if "profile" in files and profile is not None:
            from headway.profile import profile_file, reading, table

            found = reading.to_profile(profile, report.pid, name)
            _say(profile_file.write_profile(found, files["profile"]))
            lines = table.report_lines(found, report, _style(arguments))
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error
    return lines


def _style(arguments: argparse.Namespace) -> Style:
    from headway.report import terminal

    descriptor, stream = (2, sys.stderr) if arguments.json == STDOUT else (1, sys.stdout)
    return terminal.Style.of_stream(descriptor, getattr(stream, "encoding", None) or "utf-8")


def _show(report: GilReport, lines: Sequence[str], arguments: argparse.Namespace) -> None:
    from headway.report import terminal

    stream = sys.stderr if arguments.json == STDOUT else sys.stdout
    print("\n".join([terminal.draw(report, _style(arguments)), *lines]), file=stream)


def _say(text: str) -> None:
    print(f"headway attach: {text}", file=sys.stderr, flush=True)
