"""Turns Headway on in any program, as the environment variable HEADWAY says.

`start` runs while `site` imports `headway_follow.pth`, before the program's first line, if the
variable is set. It never raises, and imports only what an interpreter has loaded anyway and what
the value needs. The value is one of:

- WORD,WORD...: what a user asks for (`Request`).
- PID:WORD,WORD...: the same, in a child or the next image of the process PID, which has acted on
  the value. A child acts on it only if `follow` is among the words, and writes nothing to stderr.
- run:SETTINGS and follow:RUN:SETTINGS, which `headway.meter.run_settings` makes and understands.

A user's value has no effect in an interpreter that ignores the environment (-E, -I), in the
`headway` command, and, as any value, in a process that has rights that its user has not
(AT_SECURE).
"""

from __future__ import annotations

import os
import sys

from headway.meter import start as meter_start
from headway.meter.run_settings import FOLLOW, RUN, VARIABLE, Settings, mark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headway.options import Kind

# The words with a value after "=".
WORDS_WITH_VALUE = (
    "report",
    "loop-limit",
    "switch-interval",
    "telemetry",
    "telemetry-group",
    "telemetry-interval",
)
WORDS = ("follow", "no-kernel-hints", "report")


class Mistake(Exception):
    """A value that the variable may not have. The text says what was found and is allowed."""


class Request:
    """The request that a value of the variable makes.

    - `policy`: the policy of the GIL. `kernel_hints`: whether it may give the kernel hints.
    - `report`: whether the program reports at its end: to stderr, or as JSON to `report_file`, in
      which %p stands for the process's id and %% for a percent sign. "" for none.
    - `telemetry`: the socket of a recorder; "" for none. `telemetry_group`: the name of the
      program's process group there.
    - `loop_limit_s`: from which duration on an iteration of an event loop is late.
    - `follow`: whether Python children do the same.
    """

    __slots__ = (
        "follow",
        "kernel_hints",
        "loop_limit_s",
        "policy",
        "report",
        "report_file",
        "switch_interval_s",
        "telemetry",
        "telemetry_group",
        "telemetry_interval_s",
    )

    def __init__(self) -> None:
        self.policy = "interval"
        self.kernel_hints = True
        self.report = False
        self.report_file = ""
        self.telemetry = ""
        self.telemetry_group = ""
        self.telemetry_interval_s = 1.0
        self.switch_interval_s: float | None = None
        self.loop_limit_s: float | None = None
        self.follow = False

    @classmethod
    def parse(cls, text: str) -> Request:
        """Parses WORD,WORD... Raises Mistake, and Unsupported where there are no policies."""
        from headway.meter import engine

        request = cls()
        policies = engine.policies()
        seen = set()
        for word in text.split(","):
            name, has_value, value = word.strip().partition("=")
            if name in policies and not has_value:
                request.policy = name
                name = "a policy"
            elif name in WORDS_WITH_VALUE and has_value:
                request._set(name, value)
            elif name in WORDS and not has_value:
                request._set_flag(name)
            else:
                raise Mistake(f"found {word!r}; allowed: {_allowed(policies)}")
            if name in seen:
                raise Mistake(f"found {name} twice")
            seen.add(name)
        return request

    def _set_flag(self, name: str) -> None:
        if name == "follow":
            self.follow = True
        elif name == "no-kernel-hints":
            self.kernel_hints = False
        else:
            self.report = True

    def _set(self, name: str, value: str) -> None:
        if name == "report":
            self.report = True
            self.report_file = expand(value)
            return
        # Few values need these parsers, which import more than the rest of this module.
        from headway import options

        if name == "telemetry":
            self.telemetry = _value(name, value, options.RecorderSocket())
        elif name == "telemetry-group":
            self.telemetry_group = _value(name, value, options.GroupName())
        elif name == "telemetry-interval":
            self.telemetry_interval_s = _value(name, value, options.TELEMETRY_INTERVAL)
        elif name == "loop-limit":
            self.loop_limit_s = _value(name, value, options.LOOP_LIMIT)
        else:
            self.switch_interval_s = _value(name, value, options.SWITCH_INTERVAL)


def expand(file: str) -> str:
    """The name of a report's file, with this process's id for %p. Raises Mistake."""
    if file in ("", "-"):
        raise Mistake(f"found 'report={file}'; allowed: report=FILE, or report for stderr")
    pieces = file.split("%%")
    for at, piece in enumerate(pieces):
        pieces[at] = piece.replace("%p", str(os.getpid()))
        if "%" in pieces[at]:
            raise Mistake(f"report={file!r}: after % there may be p (the process's id) or %")
    return "%".join(pieces)


def _value(name: str, text: str, kind: Kind) -> Any:
    from headway import options

    try:
        return kind.parse(text)
    except ValueError:
        raise Mistake(f"{name}: {options.refusal(repr(text), kind)}") from None


def _allowed(policies: dict[str, str]) -> str:
    values = {"report": "FILE", "telemetry": "unix:PATH", "telemetry-group": "NAME"}
    words = [f"{name}={values.get(name, 'S')}" for name in WORDS_WITH_VALUE]
    return ", ".join([*policies, *WORDS, *words])


def start() -> None:
    """Called by `headway_follow.pth`; twice in a virtual environment, and in sub-interpreters."""
    try:
        value = os.environ.get(VARIABLE, "")
        kind, colon, rest = value.partition(":")
        if not value or _is_secure():
            return
        if colon and kind == RUN:
            meter_start.start_run(rest)
        elif colon and kind == FOLLOW:
            meter_start.join(rest)
        elif sys.flags.ignore_environment or _is_headway(sys.orig_argv):
            return
        elif colon and kind.isdigit():
            _start_again(int(kind), rest)
        else:
            _start_first(value)
    except Exception as error:
        _say(f"{type(error).__name__}: {error}")


def _is_secure() -> bool:
    """Whether the process has rights that the one who set its environment may not have."""
    if os.getuid() != os.geteuid() or os.getgid() != os.getegid():
        return True
    try:
        from headway import _native
    except ImportError:
        return False  # then nothing can be started either
    return _native.process_is_secure()


def _is_headway(command: list[str]) -> bool:
    """Whether this is the `headway` command, whose options say the same things."""
    words = iter(command[1:])
    for word in words:
        if word == "-m":
            return next(words, "") == "headway"
        if word in ("-X", "-W"):
            next(words, "")
        elif not word.startswith("-"):
            return os.path.basename(word) == "headway"
    return False


def _start_first(value: str) -> None:
    os.environ[VARIABLE] = mark(value)
    from headway import errors

    try:
        _act(value)
    except (Mistake, errors.Error, OSError) as error:
        _say(str(error))


def _start_again(pid: int, value: str) -> None:
    """Acts on the value in a process that has it from the process `pid`."""
    words = [word.strip() for word in value.split(",")]
    if pid != os.getpid():
        if "follow" not in words:
            return
        # A file that is not named after the process has the parent's report.
        words = [word for word in words if word != "report" and not _is_of_parent(word)]
        os.environ[VARIABLE] = mark(value)
    try:
        from headway.meter import engine

        # It is installed where site reads the .pth again, and in a sub-interpreter.
        if not engine.is_installed():
            _act(value, words)
    except Exception:
        pass  # the first process has said why


def _is_of_parent(word: str) -> bool:
    return word.startswith("report=") and "%p" not in word.replace("%%", "")


def _act(value: str, words: list[str] | None = None) -> None:
    """Does what `words` (default: those of `value`) ask for, or raises an exception and has done
    nothing."""
    from headway.meter import engine

    request = Request.parse(value if words is None else ",".join(words))
    try:
        if request.report:
            meter_start.own(_settings(request, value))
            return
        engine.install(request.policy, kernel_hints=request.kernel_hints)
        if request.switch_interval_s is not None:
            sys.setswitchinterval(request.switch_interval_s)
        if request.loop_limit_s is not None:
            engine.set_loop_limit(request.loop_limit_s)
        if request.telemetry:
            name = meter_start.program_name()
            meter_start.report_to(
                request.telemetry, request.telemetry_interval_s, name, request.telemetry_group
            )
    except Exception:
        if engine.is_installed():
            engine.uninstall()
        raise


def _settings(request: Request, value: str) -> Settings:
    json_path = ledger = ""
    follow = request.follow
    if request.report_file:
        from headway import json_file

        os.makedirs(os.path.dirname(os.path.abspath(request.report_file)), exist_ok=True)
        json_path = json_file.check_path(request.report_file, "report")
        if not json_file.is_special(json_path):
            ledger = f"{json_path}.ledger"
        # Otherwise each child has a report of its own.
        follow = follow and any(map(_is_of_parent, value.split(",")))
    settings = Settings()
    settings.pid = os.getpid()
    settings.policy = request.policy
    settings.kernel_hints = request.kernel_hints
    settings.switch_interval_s = request.switch_interval_s
    settings.loop_limit_s = request.loop_limit_s
    settings.follow = follow
    settings.ledger = ledger
    settings.json_path = json_path
    settings.telemetry = request.telemetry
    settings.telemetry_interval_s = request.telemetry_interval_s
    settings.telemetry_group = request.telemetry_group
    settings.name = meter_start.program_name()
    settings.variable = value
    return settings


def _say(text: str) -> None:
    """Writes one line to descriptor 2: the program has no sys.stderr yet."""
    line = f"headway: HEADWAY: {text}; the program runs without Headway\n"
    try:  # noqa: SIM105 - contextlib is not loaded in every program
        os.write(2, " ".join(line.splitlines()).encode("utf-8", "backslashreplace") + b"\n")
    except OSError:
        pass
