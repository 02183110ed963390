"""Starts the meter inside a program.

This code runs while `site` imports `headway_follow.pth`, before the program's first line, in the
program's own process. Therefore this file imports only the meter and modules that an interpreter
has loaded anyway, and leaves nothing behind that could disturb the program.

`headway.environment` reads the variable HEADWAY, which gives a process one of two roles:

- the *owner*, the process that `headway run` became (`run:` and its settings), or the process in
  which a user's value of the variable asks for a report. Only the owner reports: at a normal end
  from atexit (`end`), at a signal through `headway._native` (last_report.rs).
- a *follower*, a Python child of an owner that lets its children follow (`follow:`, the owner's run
  and the same settings). It has the owner's policy and switch interval, keeps its counters in the
  owner's ledger, and prints nothing, whatever happens.

Forked children are neither: the meter keeps their counters, and `end.finish` skips them.
"""

from __future__ import annotations

import atexit
import os
import sys

from headway.meter.run_settings import VARIABLE, Settings, following, mark


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
        from headway.meter import end

        end.say(f"{settings.command}: {error}")
        if not settings.variable:
            os._exit(1)


def join(followed: str) -> None:
    """Takes on the owner's settings that `followed` has, and keeps this
    process's counters in the owner's ledger.

    Has no effect if the meter is installed already: in the owner itself, whose site reads the .pth
    twice, and in its sub-interpreters, which run site too.
    """
    try:
        from headway.meter import engine

        if engine.is_installed():
            return
        run, _, text = followed.partition(":")
        settings = Settings.from_text(text)
        if settings.switch_interval_s is not None:
            sys.setswitchinterval(settings.switch_interval_s)
        _join_ledger(settings, int(run))
        if settings.loop_limit_s is not None:
            _set_loop_limit(settings.loop_limit_s)
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
    from headway.meter import end

    if settings.trace_path:
        from headway.trace import trace_file

        trace_file.prepare(settings.trace_path)
    if settings.profile_path:
        from headway.profile import profile_file

        profile_file.prepare(settings.profile_path)
    if settings.switch_interval_s is not None:
        sys.setswitchinterval(settings.switch_interval_s)
    _install(settings)
    if settings.loop_limit_s is not None:
        _set_loop_limit(settings.loop_limit_s)
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
        os.environ[VARIABLE] = following(settings, _native.gil_run())

    _native.report_on_signals(
        [os.fsencode(word) for word in end.report_command(settings)],
        os.fsencode(ledger) if in_file else None,
        # Without --json nothing names the ledger; with it, the ledger is removed once the JSON is
        # written.
        bool(settings.json_path),
        waker,
        os.fsencode(json_path) if (json_path := end.regular_json_file(settings)) else None,
        settings.quiet,
    )
    if not settings.trace_path and not settings.profile_path:  # these cover one image only
        next_image = settings.for_next_image().encode("ascii")
        _native.report_after_exec(next_image, os.fsencode(sys.executable), in_file)
    # Callbacks run in reverse order, so this first one runs after those of the program.
    atexit.register(end.finish, settings)


def _set_loop_limit(limit_s: float) -> None:
    from headway.meter import engine

    engine.set_loop_limit(limit_s)


def _go_on(settings: Settings) -> bool:
    """Starts the meter on the counters that this process kept before it replaced itself by exec.
    Returns whether it did."""
    from headway import errors
    from headway.meter import end, engine

    if settings.before_exec is None:
        return False
    descriptor, run = settings.before_exec
    settings.before_exec = None
    settings.name = program_name() or settings.name
    ledger = settings.ledger if descriptor < 0 else f"/proc/{settings.pid}/fd/{descriptor}"
    try:
        engine.install(settings.policy, kernel_hints=settings.kernel_hints, ledger=ledger, run=run)
    except errors.Unsupported as error:
        end.say(
            f"{settings.command}: the report lacks what the program did before its exec: {error}"
        )
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
    from headway.meter import end, engine

    if _go_on(settings):
        return
    policy, hints = settings.policy, settings.kernel_hints
    ledger = settings.ledger
    if not ledger and settings.follow:
        _install_for_children(settings)
        return
    if not ledger or ledger.startswith("/proc/"):
        engine.install(policy, kernel_hints=hints)
        return
    _remove(ledger)  # an earlier crash may have left one
    reason = "No room in it, or mremap is forbidden"
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
    end.say(
        f"{settings.command}: the ledger {ledger} cannot be kept ({reason}): {', and '.join(lost)}",
        getattr(sys.__stderr__, "encoding", None) or "utf-8",
    )


def _install_for_children(settings: Settings) -> None:
    """Starts the meter on a ledger without a file, which children open through the owner's
    descriptor. Where they cannot, a line on stderr names the reason."""
    from headway.meter import end, engine

    policy, hints = settings.policy, settings.kernel_hints
    descriptors = f"/proc/{settings.pid}/fd"
    place = descriptors
    try:
        # Those of a process that may not be looked into belong to root.
        is_open_to_children = os.stat(descriptors).st_uid == os.geteuid()
        reason = "" if is_open_to_children else "only this process itself may open them"
        if not reason:
            place = "memfd_create"
            descriptor = os.memfd_create("headway-ledger")
    except OSError as error:
        reason = str(error.strerror)
    if reason:
        engine.install(policy, kernel_hints=hints)
        end.say(
            f"{settings.command}: children started by exec or spawn are not in the report: "
            f"{place}: {reason}"
        )
        return
    settings.ledger = f"{descriptors}/{descriptor}"
    engine.install(policy, kernel_hints=hints, ledger=descriptor)


def _begin_trace(settings: Settings) -> None:
    """Begins the trace. If the counters survive a crash in a ledger, the events are kept there
    too, provided that there is room."""
    from headway import errors
    from headway.meter import end, engine

    if settings.ledger and settings.json_path:
        try:
            return engine.begin_trace(settings.trace_events, settings.ledger)
        except errors.Unsupported as error:
            end.say(f"headway run: --trace: {error}: after a crash there will be no trace")
    engine.begin_trace(settings.trace_events)


def _begin_profile(settings: Settings) -> None:
    """Begins the profile, in the ledger or in memory as the trace."""
    from headway import errors
    from headway.meter import end, engine

    if settings.ledger and settings.json_path:
        try:
            return engine.begin_profile(settings.ledger)
        except errors.Unsupported as error:
            end.say(f"headway run: --profile: {error}: after a crash there will be no profile")
    engine.begin_profile()


def _can_be_read(ledger: str) -> bool:
    from headway import errors
    from headway.meter import engine

    try:
        engine.read_ledger(ledger)
    except errors.Error:
        return False
    return True


def _remove(path: str) -> None:
    try:  # noqa: SIM105 - contextlib is not loaded in every program
        os.unlink(path)
    except OSError:
        pass
