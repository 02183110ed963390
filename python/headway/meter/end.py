"""Reports at the end of a measured program: what `start` has begun is written or shown here.

Runs in the program's process. What a report needs is loaded after the program has ended
(`report_modules`), so this module imports little.
"""

from __future__ import annotations

import os
import sys

from headway.meter import report_modules
from headway.meter.run_settings import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from headway.report.model import GilReport
    from headway.report.terminal import Style

# Runs `headway report` in a fresh interpreter that starts no meter of its own (-S: no .pth) and
# sees neither the program's directory nor its PYTHON* variables (-I).
REPORT_CODE = (
    "import sys; sys.path.append(sys.argv.pop(1));"
    "from headway import cli; from headway.meter import end;"
    "sys.exit(end.report_ledger(cli.main))"
)


def regular_json_file(settings: Settings) -> str:
    """The regular file that the report is written to; "" for none, a pipe or a terminal."""
    path = settings.json_path
    if not path:
        return ""
    from headway import json_file

    return "" if json_file.is_special(path) else path


def report_command(settings: Settings) -> list[str]:
    """The command that reports the ledger on its stdin."""
    packages = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    command = [sys.executable, "-I", "-S", "-c", REPORT_CODE, packages, "report"]
    for option, path in (
        ("--json", settings.json_path),
        ("--trace", settings.trace_path),
        ("--profile", settings.profile_path),
    ):
        if path:
            # The command's own stdout is the program's stderr.
            command += [option, f"/proc/{settings.pid}/fd/1" if path == "-" else path]
    if settings.trace_path or settings.profile_path:
        command.append(f"--name={settings.name}")
    if settings.quiet:
        command.append("--quiet")
    return [*command, "--files-first", "-"]


def report_ledger(main: Callable[[], int]) -> int:
    """Runs the command of `report_command`; `main` is `cli.main`. If descriptor 3 is open, it is
    the file of --json: see crates/native/src/last_report. If that file cannot be written, the rest
    of the report is, and the exit code is 1."""
    from headway import errors, json_file

    written = True
    if "--json" in sys.argv:
        at = sys.argv.index("--json")
        path = sys.argv[at + 1]
        try:
            os.fstat(3)
            json_file.kept_open[path] = 3
        except OSError:
            pass
        try:
            json_file.check_path(path)
        except errors.CommandError as error:
            written = False
            say(f"headway run: {error}")
            del sys.argv[at : at + 2]
    return main() if written else main() or 1


def finish(settings: Settings) -> None:
    """Writes the owner's report. Runs in the main thread, after the program's own atexit callbacks,
    while daemon threads still run."""
    if os.getpid() != settings.pid:
        return
    # A debugger or profiler that the program has left on is not for this code, which would take
    # minutes.
    sys.settrace(None)
    sys.setprofile(None)
    try:
        from headway import _native
        from headway.meter import engine

        _native.await_signal_report()
        trace = engine.read_trace() if settings.trace_path else None
        profile = engine.end_profile() if settings.profile_path else None
        # Read before the imports, so that the counters do not include them.
        raw = engine.read_counters()
        report_modules.load()
        from headway.meter.snapshot import Snapshot

        report = Snapshot(raw).report()
        if settings.replaced and not settings.quiet:
            times = "once" if settings.replaced == 1 else f"{settings.replaced} times"
            say(
                f"{settings.command}: the program replaced itself {times}, by exec; what it "
                f"did before is child {settings.pid}"
            )
        errno = _native.gil_memory_error()
        reads_stacks = profile is not None or any(row.late for row in report.event_loops or ())
        if errno and reads_stacks and not settings.quiet:
            say(
                f"{settings.command}: no stack of a running thread was read, so lines are missing: "
                f"process_vm_readv: {os.strerror(errno)}"
            )
        file, folder = _native.kept_open()
        if file >= 0:
            from headway import json_file

            json_file.kept_open[settings.json_path] = file
        written = _show(report, trace, profile, settings)
        if settings.ledger and (written or not settings.json_path):
            _remove_ledger(settings, folder)
        _native.report_on_signals(None, None, False)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        say(f"{settings.command}: no report: {type(error).__name__}: {error}")


def _write_trace(trace: dict[str, Any], report: GilReport, settings: Settings) -> None:
    from headway.trace import trace_file

    try:
        say(trace_file.write_trace(trace, report, settings.trace_path, settings.name))
    except OSError as error:
        say(f"headway run: --trace {settings.trace_path!r}: {error.strerror}")


def _write_profile(
    raw: dict[str, Any], report: GilReport, settings: Settings, style: Style
) -> list[str]:
    """Writes the file, and returns the lines of the report."""
    from headway.profile import profile_file, reading, table

    profile = reading.to_profile(raw, settings.pid, settings.name)
    try:
        say(profile_file.write_profile(profile, settings.profile_path))
    except OSError as error:
        say(f"headway run: --profile {settings.profile_path!r}: {error.strerror}")
    return table.report_lines(profile, report, style)


def _show(
    report: GilReport,
    trace: dict[str, Any] | None,
    profile: dict[str, Any] | None,
    settings: Settings,
) -> bool:
    """Writes the JSON, the trace and the profile, then the report to stderr unless the settings are
    quiet. Returns False if the JSON could not be written."""
    for stream in {id(stream): stream for stream in (sys.__stdout__, sys.__stderr__)}.values():
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            pass  # the interpreter is about to meet the same error, and reports it
    from headway import json_file
    from headway.report import terminal

    written = True
    if settings.json_path:
        try:
            json_file.write_json(report.to_dict(), settings.json_path)
        except OSError as error:
            written = False
            left = ""
            if settings.ledger and settings.ledger == f"{settings.json_path}.ledger":
                path = settings.json_path
                left = f"; `headway report {path}` has the report, from {settings.ledger}"
            where = f"{settings.json_option} {settings.json_path!r}"
            say(f"{settings.command}: {where}: {error.strerror}{left}")
    if trace is not None:
        _write_trace(trace, report, settings)
    if settings.quiet:
        return written
    encoding = getattr(sys.__stderr__, "encoding", None) or "utf-8"
    style = terminal.Style.of_stream(2, encoding)
    lines = [] if profile is None else _write_profile(profile, report, settings, style)
    say("\n".join([terminal.draw(report, style), *lines]), encoding)
    return written


def _remove_ledger(settings: Settings, folder: int) -> None:
    """Removes the ledger, unless it has no file. `folder` is an open descriptor of its folder, or
    -1 to use the path."""
    path = settings.ledger
    if path.startswith("/proc/"):
        return
    try:
        if folder < 0:
            os.unlink(path)
        else:
            os.unlink(os.path.basename(path), dir_fd=folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        say(f"{settings.command}: the ledger {path} stays, and is not needed: {error.strerror}")


def say(text: str, encoding: str = "utf-8") -> None:
    """Writes to file descriptor 2, because the program may have replaced sys.stderr."""
    data = text.rstrip("\n").encode(encoding, "backslashreplace") + b"\n"
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        pass
