"""Starts the meter inside a program, and reports at its end.

This code runs while `site` imports `headway_follow.pth`, before the program's first line, in the
program's own process. Therefore this file imports only the meter and modules that an interpreter
has loaded anyway, and leaves nothing behind that could disturb the program. The modules of the
report are loaded after the program has ended (`report_modules`).

`headway.environment` reads the variable HEADWAY, which gives a process one of two roles:

- the *owner*, the process that `headway run` became (`run:` and its settings), or the process in
  which a user's value of the variable asks for a report. Only the owner reports: at a normal end
  from atexit, at a signal through `headway._native` (last_report.rs).
- a *follower*, a Python child of an owner that lets its children follow (`follow:`, the owner's run
  and the same settings). It has the owner's policy and switch interval, keeps its counters in the
  owner's ledger, and prints nothing, whatever happens.

Forked children are neither: the meter keeps their counters, and `_finish` skips them.
"""

from __future__ import annotations

import atexit
import os
import sys

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
    "from headway import cli; from headway.meter import bootstrap;"
    "sys.exit(bootstrap.report_ledger(cli.main))"
)

# The variable that `headway.environment` reads, and the words before the values of Headway's own.
VARIABLE = "HEADWAY"
RUN = "run"
FOLLOW = "follow"

# This suffix of a policy's name turns its hints to the kernel off.
NO_HINTS = ",no-hints"


class Settings:
    """The settings of an owner, which `headway run` passes to the program's process as text, and
    the owner to followers.

    - `pid`: the process that the settings are for. `replaced`: how often it has replaced itself by
      exec. `books`: where its earlier counters are, as a descriptor (-1 for `ledger`) and the run;
      None if it has none.
    - `kernel_hints`: whether `policy` may give the kernel hints. `switch_interval_s`: None leaves
      the interval as it is.
    - `ledger`: the file that the counters are mapped to; "" if no other process reads them.
    - `json_path`: the file of the report; "" for none, "-" for stdout. `trace_path`: the file of
      the last `trace_events` events, in the same way. `profile_path`: the file of the profile.
    - `telemetry`: the socket of a recorder, "" for none, which receives a report every
      `telemetry_interval_s` from the group `telemetry_group`. `name`: the name of the program
      there and in the trace.
    - `variable`: the user's value of HEADWAY that the settings come from; "" for `headway run`.

    Paths are absolute.
    """

    __slots__ = (
        "books",
        "follow",
        "json_path",
        "kernel_hints",
        "ledger",
        "name",
        "pid",
        "policy",
        "profile_path",
        "replaced",
        "switch_interval_s",
        "telemetry",
        "telemetry_group",
        "telemetry_interval_s",
        "trace_events",
        "trace_path",
        "variable",
    )

    def __init__(
        self,
        *,
        pid: int,
        policy: str,
        kernel_hints: bool,
        switch_interval_s: float | None,
        follow: bool,
        ledger: str,
        json_path: str,
        trace_path: str = "",
        trace_events: int = 0,
        profile_path: str = "",
        telemetry: str = "",
        telemetry_interval_s: float = 1.0,
        telemetry_group: str = "",
        name: str = "",
        variable: str = "",
        replaced: int = 0,
        books: tuple[int, int] | None = None,
    ) -> None:
        self.pid = pid
        self.replaced = replaced
        self.books = books
        self.policy = policy
        self.kernel_hints = kernel_hints
        self.switch_interval_s = switch_interval_s
        self.follow = follow
        self.ledger = ledger
        self.json_path = json_path
        self.trace_path = trace_path
        self.trace_events = trace_events
        self.profile_path = profile_path
        self.telemetry = telemetry
        self.telemetry_interval_s = telemetry_interval_s
        self.telemetry_group = telemetry_group
        self.name = name
        self.variable = variable

    @property
    def command(self) -> str:
        """The first word of a line on stderr."""
        return "headway" if self.variable else "headway run"

    @property
    def json_option(self) -> str:
        return "report" if self.variable else "--json"

    @property
    def quiet(self) -> bool:
        """Whether the report goes to its file only."""
        return bool(self.variable and self.json_path)

    def to_text(self) -> str:
        """The settings as words with colons between them; text that may contain any byte but 0 is
        in hex. The words of the trace, of telemetry, of the profile and of the variable are left
        out if the settings have none of these. See also `for_next_image`."""
        interval = "-" if self.switch_interval_s is None else repr(self.switch_interval_s)
        follow = "follow" if self.follow else "-"
        words = [str(self.pid), self.policy_word(), interval, follow]
        words += map(_to_word, (self.ledger, self.json_path))
        if self.trace_path or self.telemetry or self.profile_path or self.variable:
            words += (_to_word(self.trace_path), str(self.trace_events))
            words += (repr(self.telemetry_interval_s), *map(_to_word, (self.telemetry, self.name)))
            words += map(_to_word, (self.telemetry_group, self.profile_path, self.variable))
        return ":".join(words)

    def for_next_image(self) -> str:
        """The text for the image that replaces this one by exec. crates/native appends `:` and
        `books`, and `from_text` parses it."""
        return f"{self.to_text()}|{self.replaced + 1}"

    def policy_word(self) -> str:
        """The policy and whether it may give hints, in one word."""
        return self.policy if self.kernel_hints else self.policy + NO_HINTS

    @classmethod
    def from_text(cls, text: str) -> Settings:
        """Parses the result of `to_text` or `for_next_image`. Raises ValueError for other text."""
        text, _, more_images = text.partition("|")
        replaced, *books = map(int, more_images.split(":")) if more_images else (0,)
        pid, policy_word, interval, follow, ledger, json_path, *more = text.split(":")
        name, hints = parse_policy_word(policy_word)
        none = ("-", "0", "1.0", "-", "-", "-", "-", "-")
        trace_path, trace_events, every, telemetry, program, *more = more or none
        group, profile_path, variable = more
        return cls(
            pid=int(pid),
            policy=name,
            kernel_hints=hints,
            switch_interval_s=None if interval == "-" else float(interval),
            follow=follow == "follow",
            ledger=_from_word(ledger),
            json_path=_from_word(json_path),
            trace_path=_from_word(trace_path),
            trace_events=int(trace_events),
            profile_path=_from_word(profile_path),
            telemetry=_from_word(telemetry),
            telemetry_interval_s=float(every),
            telemetry_group=_from_word(group),
            name=_from_word(program),
            variable=_from_word(variable),
            replaced=replaced,
            books=(books[0], books[1]) if books else None,
        )


def _to_word(text: str) -> str:
    return os.fsencode(text).hex() or "-"


def _from_word(word: str) -> str:
    return "" if word == "-" else os.fsdecode(bytes.fromhex(word))


def mark(value: str) -> str:
    """A user's value of the variable as children and the image after an exec find it: PID:VALUE, by
    which they know the process that has acted on it."""
    return f"{os.getpid()}:{value}"


def parse_policy_word(word: str) -> tuple[str, bool]:
    """Returns the policy and whether it may give hints, from `Settings.policy_word`."""
    return word.removesuffix(NO_HINTS), not word.endswith(NO_HINTS)


def start_run(text: str) -> None:
    """Becomes the owner that `text`, from `Settings.to_text`, is for. Does nothing in any other
    process."""
    # Removed from the environment first, so that no child mistakes itself for the owner.
    os.environ.pop(VARIABLE, None)
    settings = Settings.from_text(text)
    if settings.pid != os.getpid():
        return
    try:
        own(settings)
    except Exception as error:
        _say(f"{settings.command}: {error}")
        if not settings.variable:
            os._exit(1)


def join(following: str) -> None:
    """Takes on the owner's settings that `following` has (see `_following`), and keeps this
    process's counters in the owner's ledger.

    Has no effect if the meter is installed already: in the owner itself, whose site reads the .pth
    twice, and in its sub-interpreters, which run site too.
    """
    try:
        from headway.meter import engine

        if engine.is_installed():
            return
        run, _, text = following.partition(":")
        settings = Settings.from_text(text)
        if settings.switch_interval_s is not None:
            sys.setswitchinterval(settings.switch_interval_s)
        _join_ledger(settings, int(run))
        if settings.telemetry:
            report_to(
                settings.telemetry,
                settings.telemetry_interval_s,
                program_name(),
                settings.telemetry_group,
            )
    except Exception:
        pass  # The platform is not supported. The program runs without a meter.


def _join_ledger(settings: Settings, run: int) -> None:
    """Starts the meter on the owner's ledger. Without one, or if the owner has ended, or the ledger
    is full, the counters are kept in memory, because the policy holds all the same."""
    from headway import errors
    from headway.meter import engine

    ledger, policy, hints = settings.ledger, settings.policy, settings.kernel_hints
    try:
        # The owner may have closed the descriptor and reused its number.
        if ledger and (not ledger.startswith("/proc/") or _is_memory_file(ledger)):
            return engine.install(policy, kernel_hints=hints, ledger=ledger, run=run)
    except errors.Unsupported:
        pass
    engine.install(policy, kernel_hints=hints)


def _is_memory_file(path: str) -> bool:
    try:
        return os.readlink(path).startswith("/memfd:")
    except OSError:
        return False


def _following(settings: Settings, run: int | None) -> str:
    """The variable for followers: follow:RUN:SETTINGS."""
    return f"{FOLLOW}:{run or 0}:{settings.to_text()}"


def program_name() -> str:
    """The name of the program, from Python's command line."""
    names = [word for word in sys.orig_argv[1:] if not word.startswith("-")]
    return os.path.basename(names[0]) if names else ""


def report_to(path: str, interval_s: float, name: str, group: str) -> int:
    """Starts the reporter to the recorder at the socket `path`. Returns its waker, for
    `_native.report_on_signals`."""
    from headway.meter import reporter

    identity = {"process_name": reporter.as_text(name)}
    mine = reporter.Reporter(path, interval_s, identity, kind="run", group=group, across_forks=True)
    atexit.register(mine.stop, "unknown", "the program has ended")
    return mine.waker


def own(settings: Settings) -> None:
    """Starts the meter in this process, which will report. Raises an exception if it cannot."""
    # Imported before the meter starts, so that the counters do not include the import.
    from headway.meter import report_modules  # noqa: F401 - for `_finish`

    if settings.trace_path:
        from headway.trace import trace_file

        trace_file.prepare(settings.trace_path)
    if settings.profile_path:
        from headway.profile import profile_file

        profile_file.prepare(settings.profile_path)
    if settings.switch_interval_s is not None:
        sys.setswitchinterval(settings.switch_interval_s)
    _install(settings)
    if settings.profile_path:
        _begin_profile(settings)
    if settings.trace_path:
        _begin_trace(settings)
    waker = 0
    if settings.telemetry:
        waker = report_to(
            settings.telemetry,
            settings.telemetry_interval_s,
            settings.name,
            settings.telemetry_group,
        )
    from headway import _native

    ledger = settings.ledger
    in_file = bool(ledger) and not ledger.startswith("/proc/")
    if settings.variable:
        os.environ[VARIABLE] = mark(settings.variable)
    if settings.follow:
        os.environ[VARIABLE] = _following(settings, _native.gil_run())

    _native.report_on_signals(
        [os.fsencode(word) for word in report_command(settings)],
        os.fsencode(ledger) if in_file else None,
        # Without --json nothing names the ledger; with it, the ledger is removed once the JSON is
        # written.
        bool(settings.json_path),
        waker,
        os.fsencode(json_path) if (json_path := _json_file(settings)) else None,
        settings.quiet,
    )
    if not settings.trace_path and not settings.profile_path:  # these cover one image only
        next_image = settings.for_next_image().encode("ascii")
        _native.report_after_exec(next_image, os.fsencode(sys.executable), in_file)
    # Callbacks run in reverse order, so this first one runs after those of the program.
    atexit.register(_finish, settings)


def _json_file(settings: Settings) -> str:
    """The regular file that the report is written to; "" for none, a pipe or a terminal."""
    path = settings.json_path
    if not path:
        return ""
    from headway import json_file

    return "" if json_file.is_special(path) else path


def _go_on(settings: Settings) -> bool:
    """Starts the meter on the counters that this process kept before it replaced itself by exec.
    Returns whether it did."""
    from headway import errors
    from headway.meter import engine

    if settings.books is None:
        return False
    descriptor, run = settings.books
    settings.books = None
    settings.name = program_name() or settings.name
    ledger = settings.ledger if descriptor < 0 else f"/proc/{settings.pid}/fd/{descriptor}"
    try:
        engine.install(settings.policy, kernel_hints=settings.kernel_hints, ledger=ledger, run=run)
    except errors.Unsupported as error:
        _say(f"{settings.command}: the report lacks what the program did before its exec: {error}")
        ledger = ""
    if settings.follow and ledger:
        settings.ledger = ledger
        if descriptor >= 0:
            os.set_inheritable(descriptor, False)
    elif descriptor >= 0:
        os.close(descriptor)
    return bool(ledger)


def _install(settings: Settings) -> None:
    """Starts the meter. If no ledger file can be kept (a full disk, a limit on files or address
    space), the counters are kept in memory, `settings.ledger` becomes "", and a line on stderr
    names the reason."""
    from headway import errors
    from headway.meter import engine

    if _go_on(settings):
        return
    policy, hints = settings.policy, settings.kernel_hints
    ledger = settings.ledger
    if not ledger and settings.follow:
        # Children open the ledger through the owner's descriptor.
        descriptor = os.memfd_create("headway-ledger")
        settings.ledger = f"/proc/{settings.pid}/fd/{descriptor}"
        engine.install(policy, kernel_hints=hints, ledger=descriptor)
        return
    if not ledger or ledger.startswith("/proc/"):
        engine.install(policy, kernel_hints=hints)
        return
    _remove(ledger)  # an earlier crash may have left one
    reason = "No room in it"
    try:
        engine.install(policy, kernel_hints=hints, ledger=ledger)
    except errors.Unsupported as error:
        reason = str(error).rpartition(": ")[2]
    else:
        # A full disk may have room for the file's head but not for the counters after it.
        if _can_be_read(ledger):
            return
    _remove(ledger)
    engine.install(policy, kernel_hints=hints)
    settings.ledger = ""
    lost = ["after a crash there will be no report"] if settings.json_path else []
    if settings.follow:
        lost.append("children started by exec or spawn are not in the report")
    _say(
        f"{settings.command}: the ledger {ledger} cannot be kept ({reason}): {', and '.join(lost)}",
        getattr(sys.__stderr__, "encoding", None) or "utf-8",
    )


def _begin_trace(settings: Settings) -> None:
    """Begins the trace. If the counters survive a crash in a ledger, the events are kept there
    too, provided that there is room."""
    from headway import errors
    from headway.meter import engine

    if settings.ledger and settings.json_path:
        try:
            return engine.begin_trace(settings.trace_events, settings.ledger)
        except errors.Unsupported as error:
            _say(f"headway run: --trace: {error}: after a crash there will be no trace")
    engine.begin_trace(settings.trace_events)


def _begin_profile(settings: Settings) -> None:
    """Begins the profile, in the ledger or in memory as the trace."""
    from headway import errors
    from headway.meter import engine

    if settings.ledger and settings.json_path:
        try:
            return engine.begin_profile(settings.ledger)
        except errors.Unsupported as error:
            _say(f"headway run: --profile: {error}: after a crash there will be no profile")
    engine.begin_profile()


def _can_be_read(ledger: str) -> bool:
    from headway import errors
    from headway.meter import engine

    try:
        engine.read_ledger(ledger)
    except errors.Error:
        return False
    return True


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
            _say(f"headway run: {error}")
            del sys.argv[at : at + 2]
    return main() if written else main() or 1


def _finish(settings: Settings) -> None:
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
        from headway.meter import report_modules

        report_modules.load()
        from headway.meter.snapshot import Snapshot

        report = Snapshot(raw).report()
        if settings.replaced and not settings.quiet:
            times = "once" if settings.replaced == 1 else f"{settings.replaced} times"
            _say(
                f"{settings.command}: the program replaced itself {times}, by exec; what it "
                f"did before is child {settings.pid}"
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
        _say(f"{settings.command}: no report: {type(error).__name__}: {error}")


def _write_trace(trace: dict[str, Any], report: GilReport, settings: Settings) -> None:
    from headway.trace import trace_file

    try:
        _say(trace_file.write_trace(trace, report, settings.trace_path, settings.name))
    except OSError as error:
        _say(f"headway run: --trace {settings.trace_path!r}: {error.strerror}")


def _write_profile(raw: dict[str, Any], settings: Settings, style: Style) -> list[str]:
    """Writes the file, and returns the lines of the report."""
    from headway.profile import profile_file, reading, table

    profile = reading.to_profile(raw, settings.pid, settings.name)
    try:
        _say(profile_file.write_profile(profile, settings.profile_path))
    except OSError as error:
        _say(f"headway run: --profile {settings.profile_path!r}: {error.strerror}")
    return table.lines(table.tabulate(profile), style)


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
            _say(f"{settings.command}: {where}: {error.strerror}{left}")
    if trace is not None:
        _write_trace(trace, report, settings)
    if settings.quiet:
        return written
    encoding = getattr(sys.__stderr__, "encoding", None) or "utf-8"
    style = terminal.Style.of_stream(2, encoding)
    lines = [] if profile is None else _write_profile(profile, settings, style)
    _say("\n".join([terminal.draw(report, style), *lines]), encoding)
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
        _say(f"{settings.command}: the ledger {path} stays, and is not needed: {error.strerror}")


def _remove(path: str) -> None:
    try:  # noqa: SIM105 - contextlib is not loaded in every program
        os.unlink(path)
    except OSError:
        pass


def _say(text: str, encoding: str = "utf-8") -> None:
    """Writes to file descriptor 2, because the program may have replaced sys.stderr."""
    data = text.rstrip("\n").encode(encoding, "backslashreplace") + b"\n"
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        pass
