"""`headway run`: checks what was asked for, then becomes the interpreter that runs the program.

The program is not run in this process image: after the checks, exec replaces it by
`python SCRIPT ARG...` (or `-m`, or `-c`), so that sys.argv, sys.path[0], __main__, stdin, signals,
atexit and the exit status are CPython's own doing. The settings travel in the environment variable
HEADWAY; `headway_follow.pth` makes the new image's `site` hand them to
`headway.meter.start`, which starts the meter before the program's first line.

Nothing is written before exec, except that a file beside FILE is created and removed again to see
that it can be.
"""

from __future__ import annotations

import os
import site
import stat
import sys

from headway.commands import policy_flags
from headway.errors import CommandError
from headway.json_file import check_path, is_special
from headway.meter import reporter
from headway.meter.run_settings import RUN, VARIABLE, Settings
from headway.options import (
    LOOP_LIMIT,
    SWITCH_INTERVAL,
    TELEMETRY_INTERVAL,
    GroupName,
    RecorderSocket,
    Whole,
    argument,
)
from headway.owned_folder import make_owned
from headway.quick_arguments import QuickParser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence
    from typing import NoReturn

    from headway.quick_arguments import Values

# See headway.cli.
STARTS_QUICKLY = True
FOLLOW_FILE = "headway_follow.pth"
# Some seconds of a busy server, and what a browser can open.
DEFAULT_TRACE_EVENTS = 1 << 18
MIN_TRACE_EVENTS = 1_000
MAX_TRACE_EVENTS = 1 << 24
OPTIONS_WITH_VALUE = (
    "--json",
    "--trace",
    "--trace-events",
    "--profile",
    "--switch-interval",
    "--loop-limit",
    "--policy",
    "--telemetry",
    "--telemetry-group",
    "--telemetry-interval",
)

# Of `python --help`. -S is among them to be refused with a reason.
INTERPRETER_FLAGS = "bBdEiIOPqRsSuvx"
# Those that hold for `headway` alone: they are about the script of its own interpreter.
FLAGS_OF_ONE_SCRIPT = ("-i", "-x")
INTERPRETER_OPTIONS_WITH_VALUE = {
    "c": "code",
    "m": "a module",
    "W": "a warning filter",
    "X": "an option",
}

DESCRIPTION = """\
Runs a Python program exactly as `python` would, measures every take, wait and drop of its GIL, and
ends with a report on stderr. With --policy it also decides which thread gets the GIL next. The exit
status is the program's own.

The report comes after a normal exit, an exception, Ctrl-C, and a signal that ends the program by
its default (SIGTERM, SIGHUP, SIGINT, SIGPIPE, SIGALRM, SIGUSR1, SIGUSR2), also where the program
restores the default. After SIGKILL, a crash or os._exit() the program cannot write a report; with
--json FILE its counters are then left in FILE.ledger, and `headway report FILE` shows them.

Counts and sums of time are exact, and so is the longest wait. A percentile (p50, p99) is
interpolated within a bucket of a histogram, and is off by the width of a bucket at most, 6.25 %.

A program that replaces itself by exec with the same interpreter is measured on. The report comes
at its end, and lists the time before the exec as a child with the same pid. If another program
replaces it, or with --trace or --profile, the report comes before the exec, and the next image is
not scheduled, except with --follow. A program that calls setuid or chroot can still write FILE,
because FILE is opened before; if the program closes it, FILE.ledger stays.

With --trace it also writes when each thread held the GIL, waited for it and requested it: the last
events of the run, as many as --trace-events keeps. The trace has this process only, and not the
children that it forks or starts. It is written together with the report. After a crash `headway
report FILE --trace OUT` writes it, if --json FILE was given too.

Of a program with an event loop the report says how late the loop was: the time of each iteration,
divided into what it computed, waited for the GIL, and blocked. Once an iteration was late, a thread
of Headway reads the stacks of later ones that are; with --loop-limit also of the first.

With --profile it also says which lines made threads wait: every nanosecond that a thread waits for
a GIL is charged to the stack of the thread that holds it, and to the stack of the thread that
waits. The report names the five lines that made others wait most, and FILE has all stacks. The
profile has this process only, and is written together with the report.
"""

EXAMPLES = """\
examples:
  headway run app.py --port 8000            everything after the script goes to the script
  headway run -m http.server                as python -m
  headway run -X dev -W error app.py        with options of the interpreter
  headway run --json run.json -c 'import this'
  headway run --switch-interval 0.0005 app.py
  headway run --trace trace.json app.py     then open trace.json at ui.perfetto.dev
  headway run --trace waits.svg app.py      then open waits.svg in a browser
  headway run --profile waits.svg app.py    which lines made threads wait, as a flame graph
  headway run --policy priority app.py      threads that wait for I/O go before CPU-bound ones
"""


class Program:
    """The program to run: `option` is "" for a script, "-m" or "-c"."""

    def __init__(
        self, option: str, name: str, arguments: list[str], interpreter_options: list[str]
    ) -> None:
        self.option = option
        self.name = name
        self.arguments = arguments
        self.interpreter_options = interpreter_options

    @property
    def words(self) -> list[str]:
        """The program as `headway run` takes it after its own options."""
        option = [self.option] if self.option else []
        return [*self.interpreter_options, *option, self.name, *self.arguments]


def prepare_parser(parser: argparse.ArgumentParser | QuickParser) -> None:
    parser.description = DESCRIPTION
    if not isinstance(parser, QuickParser):
        # The names of the policies are known to the extension module, which loads for 1 ms.
        parser.epilog = f"{policy_flags.describe()}\n{EXAMPLES}"
    parser.usage = (
        "headway run [--json FILE] [--trace FILE [--trace-events N]] [--profile FILE]\n"
        "                   [--switch-interval S] [--loop-limit S] [--policy P]\n"
        "                   [--no-kernel-hints] [--follow]\n"
        "                   [--telemetry unix:PATH [--telemetry-interval S]\n"
        "                   [--telemetry-group NAME]] [PYTHON OPTION...]\n"
        "                   (SCRIPT | -m MODULE | -c CODE) [ARG...]"
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="also write the report to FILE as JSON (schema 2); - is stdout",
    )
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="also write the last holds, waits, forced waits and drop requests to FILE, a Chrome "
        "trace that ui.perfetto.dev opens; - is stdout. If FILE ends in .svg, it is a "
        "drawing of a few typical waits of the thread that waits most, with an explanation "
        "of each step",
    )
    parser.add_argument(
        "--trace-events",
        metavar="N",
        type=argument(Whole(MIN_TRACE_EVENTS, MAX_TRACE_EVENTS)),
        default=DEFAULT_TRACE_EVENTS,
        help="keep the last N events, rounded up to a power of two. A take, a drop, a wait and a "
        "drop request are one event each, a forced wait is two. An event costs some 35 "
        "instructions and 16 bytes of memory while the program runs, up to 250 bytes of "
        "memory at its end, and up to 180 bytes in FILE (default: %(default)s)",
    )
    parser.add_argument(
        "--profile",
        metavar="FILE",
        help="also charge waiting to the code that holds the GIL and to the code that waits, and "
        "write that to FILE: NAME.svg is a flame graph, NAME.pb.gz is for pprof, NAME.json for "
        "speedscope.app, NAME.txt has one stack a line",
    )
    parser.add_argument(
        "--switch-interval",
        metavar="S",
        type=argument(SWITCH_INTERVAL),
        help="call sys.setswitchinterval() before the program starts; S is in seconds, or has a "
        "unit, such as 5ms (default: CPython's own, 5ms). A sub-interpreter with a GIL of its own "
        "starts with CPython's",
    )
    parser.add_argument(
        "--loop-limit",
        metavar="S",
        type=argument(LOOP_LIMIT),
        help="an iteration of an event loop (asyncio, uvloop, trio and others) of this duration is "
        "late, and the report names the lines that it was late for: from the first late iteration "
        "on with this option, otherwise from the second (default: 20ms)",
    )
    policy_flags.add_options(parser)
    parser.add_argument(
        "--follow",
        action="store_true",
        help="meter Python children started by exec or spawn too, under the same policy and switch "
        "interval (forked ones always are)",
    )
    parser.add_argument(
        "--telemetry",
        metavar="unix:PATH",
        type=argument(RecorderSocket()),
        help="report to the recorder (headway telemetry) at this socket, which may be started "
        "later",
    )
    parser.add_argument(
        "--telemetry-interval",
        metavar="S",
        type=argument(TELEMETRY_INTERVAL),
        default=reporter.DEFAULT_INTERVAL_S,
        help="seconds between two reports, or with a unit, such as 500ms (default: %(default)s)",
    )
    parser.add_argument(
        "--telemetry-group",
        metavar="NAME",
        type=argument(GroupName()),
        help="the name of the program's process group in reports, by which the recorder and "
        "Prometheus distinguish applications (default: none)",
    )


def split_arguments(
    arguments: list[str], options_with_value: Sequence[str] = OPTIONS_WITH_VALUE
) -> tuple[list[str], Program | None]:
    """Cuts `arguments` into run's own options and the program with its arguments, as python does:
    the first word that is no option, or -m or -c, begins the program. Options of the interpreter
    (-O, -X dev, -Wd) may stand among run's own."""
    own: list[str] = []
    interpreter_options: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in options_with_value:
            own += [word, *rest[:1]]
            del rest[:1]
        elif word == "--":
            program = Program("", rest[0], rest[1:], interpreter_options) if rest else None
            return own, program
        elif word == "-" or not word.startswith("-"):
            return own, Program("", word, rest, interpreter_options)
        else:
            flags, option, value = split_word(word, rest)
            if option in ("-m", "-c"):
                interpreter_options += flags
                return own, Program(option, value, rest, interpreter_options)
            if flags or option:
                interpreter_options += [*flags, *([option, value] if option else [])]
            else:
                own.append(word)
    return own, None


def split_word(word: str, rest: list[str]) -> tuple[list[str], str, str]:
    """The interpreter's options in `word`: flags, and an option with its value, which is taken from
    `rest` if `word` ends before it. None at all if python does not know them."""
    flags: list[str] = []
    for at, letter in enumerate(word[1:], 1):
        if letter in INTERPRETER_OPTIONS_WITH_VALUE:
            if at + 1 == len(word) and not rest:
                wanted = INTERPRETER_OPTIONS_WITH_VALUE[letter]
                raise CommandError(f"-{letter} needs {wanted} after it", exit_code=2)
            return flags, f"-{letter}", word[at + 1 :] or rest.pop(0)
        if letter not in INTERPRETER_FLAGS:
            break
        flags.append(f"-{letter}")
    else:
        return flags, "", ""
    return [], "", ""


def run(arguments: argparse.Namespace | Values) -> NoReturn:
    program: Program | None = getattr(arguments, "program", None)
    if program is None:
        raise CommandError("nothing to run: give a SCRIPT, -m MODULE or -c CODE", exit_code=2)
    if not sys.executable:
        raise CommandError("this Python does not know its own sys.executable")
    if not program.option:
        check_script(program.name)
    elif program.option == "-m" and not {"-E", "-I", "-P"} & set(program.interpreter_options):
        check_module(program.name)
    json_path = check_path(arguments.json) if arguments.json is not None else ""
    trace_path = trace_file_path(arguments.trace, json_path) if arguments.trace is not None else ""
    profile_path = profile_file_path(arguments.profile, (json_path, trace_path))
    check_follow_file(site_directories(program.interpreter_options), program.interpreter_options)

    settings = Settings()
    settings.pid = os.getpid()
    settings.policy = arguments.policy
    settings.kernel_hints = arguments.kernel_hints
    settings.switch_interval_s = arguments.switch_interval
    settings.loop_limit_s = arguments.loop_limit
    settings.follow = arguments.follow
    settings.ledger = ledger_path(json_path, arguments.follow)
    settings.json_path = json_path
    settings.trace_path = trace_path
    settings.trace_events = arguments.trace_events
    settings.profile_path = profile_path
    settings.telemetry = arguments.telemetry or ""
    settings.telemetry_interval_s = arguments.telemetry_interval
    settings.telemetry_group = arguments.telemetry_group or ""
    settings.name = program_name(program)
    environment = {**os.environ, VARIABLE: f"{RUN}:{settings.to_text()}"}
    options = [*own_interpreter_options(), *program.interpreter_options]
    if program.option:
        options.append(program.option)
    elif program.name.startswith("-") and program.name != "-":
        options.append("--")
    command = [sys.executable, *options, program.name, *program.arguments]
    try:
        os.execve(sys.executable, command, environment)
    except OSError as error:
        raise CommandError(f"cannot start {sys.executable}: {error.strerror}") from error


def own_interpreter_options() -> list[str]:
    """The options of this interpreter (-X dev, -W error, -I ...), which hold for the program too,
    as for the children of multiprocessing."""
    _, program = split_arguments(sys.orig_argv[1:], ())
    options = [] if program is None else program.interpreter_options
    return [each for each in options if each not in FLAGS_OF_ONE_SCRIPT]


def program_name(program: Program) -> str:
    """The program's name in a report."""
    if program.option == "-m":
        return f"-m {program.name}"
    return program.option or os.path.basename(program.name)


def check_script(script: str) -> None:
    """Refuses a script that python could not even open."""
    if script == "-":
        return
    try:
        is_directory = stat.S_ISDIR(os.stat(script).st_mode)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CommandError(f"SCRIPT {script!r}: {reason}", exit_code=2) from error
    if not is_directory:
        if not os.access(script, os.R_OK):
            raise CommandError(f"SCRIPT {script!r}: Permission denied", exit_code=2)
    elif not any(os.path.exists(os.path.join(script, f"__main__.py{c}")) for c in ("", "c")):
        raise CommandError(f"SCRIPT {script!r} is a directory without a __main__.py", exit_code=2)


def check_module(name: str) -> None:
    """Refuses a module that `python -m` would not find, with its exit status. Imports nothing, its
    parents included."""
    from headway.commands.module_search import find_module

    problem = find_module(name)
    if problem:
        raise CommandError(f"-m {name}: {problem}")


def trace_file_path(file: str, json_path: str) -> str:
    """Where the trace goes; refuses one of an interpreter that runs without a GIL."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise CommandError(
            "--trace: this Python runs without a GIL, so there are no holds and waits to trace; "
            "PYTHON_GIL=1 gives it one",
            exit_code=2,
        )
    path = check_path(file, "--trace")
    if path == json_path:
        raise CommandError(f"--trace and --json name the same file, {file!r}", exit_code=2)
    return path


def profile_file_path(file: str | None, others: Iterable[str]) -> str:
    """Where the profile goes; "" for none. Refuses a file that is one of `others` too."""
    if file is None:
        return ""
    from headway.profile import profile_file

    path = profile_file.check_name(file)
    if path in others:
        raise CommandError(f"--profile and another option name the same file, {file!r}", 2)
    return path


def ledger_path(json_path: str, follow: bool) -> str:
    """The file that the program's counters are mapped to; "" if memory will do, or must."""
    if json_path and not is_special(json_path):
        return f"{json_path}.ledger"
    folder = runtime_folder() if follow else ""
    if not folder:
        return ""
    remove_ledgers_of_dead_processes(folder)
    # The pid may be another's in another PID namespace.
    return os.path.join(folder, f"{os.getpid()}-{os.urandom(8).hex()}.ledger")


def runtime_folder() -> str:
    """Where this user's programs keep files while they run, and nobody else (XDG Base Directory
    Specification); "" if there is no such folder. /run is root's own. The files are private, and
    the folder is not: root's has the socket of the recorder too."""
    user = os.geteuid()
    bases = [os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{user}", "/run"]
    for base in filter(os.path.isabs, bases):
        folder = os.path.join(base, "headway")
        try:
            if os.stat(base).st_uid == user and not make_owned(folder):
                return folder
        except OSError:
            continue
    return ""


def remove_ledgers_of_dead_processes(folder: str) -> None:
    """A ledger is locked while a process has it mapped (`mapping.rs` in crates/gil). One without
    a lock may still be about to be, or lie on a file system that forgets locks (overlayfs): then
    its process is alive."""
    import contextlib
    import fcntl

    for name in os.listdir(folder):
        pid = name.partition("-")[0]
        if not name.endswith(".ledger") or os.path.exists(f"/proc/{pid}"):
            continue
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            ledger = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(ledger, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
            finally:
                os.close(ledger)


def site_directories(options: Iterable[str] = ()) -> list[str]:
    """The directories whose .pth files this interpreter reads when it starts with `options`."""
    directories = site.getsitepackages()
    if site.ENABLE_USER_SITE and not {"-s", "-I"} & set(options):
        directories.append(site.getusersitepackages())
    return directories


def check_follow_file(directories: Iterable[str], options: Iterable[str] = ()) -> None:
    """Refuses to start a program whose interpreter would not start the meter."""
    if sys.flags.no_site or "-S" in options:
        raise CommandError("python -S skips site, and the meter is started by it: leave -S out", 2)
    directories = list(directories)
    if not any(os.path.isfile(os.path.join(each, FOLLOW_FILE)) for each in directories):
        raise CommandError(
            f"{FOLLOW_FILE} is not in {' or '.join(directories) or 'any site directory'}, so the "
            f"meter would not start: in Headway's source tree run "
            f"`{sys.executable} -m pip install .`, or `make build` for an environment of its own"
        )
