"""Has a CPython up to 3.13 run a script, by gdb.

gdb stops the process, has one of its threads load this package's extension module and call
`headway_attach_run`, and detaches. That function starts a thread and returns; the thread takes the
GIL by the C API and runs the script.

The call needs memory, so it must not be made by a thread that has the lock of the allocator or of
the loader. gdb chooses one that is in code of the interpreter itself, or in a system call that
waits, and that no function of the allocator or the loader has called; else it leaves the process
alone. That is tried again for some seconds.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from headway.attach.target import Refused, Target, missing_right

PACKAGE = "gdb (apt-get install gdb, dnf install gdb)"
GDB_LIMIT_S = 20
# Of the program's Python, not of gdb's own.
OF_PYTHON = ("PYTHONHOME", "PYTHONPATH")
PAUSE_S = 0.05
# A program that waits until its standard input ends, as it does with this process.
IDLE = "import sys; sys.stdin.read()"
FUNCTION = "headway_attach_run"
# A wait that CPython and programs make; and functions of the allocator and the loader, which may
# have their locks.
WAITS = re.compile(
    r"_*(GI_)?_*(libc_)?(epoll_p?wait2?|p?poll|p?select(64)?(_time64)?|accept4?|recv(from|msg)?|read"
    r"|clock_nanosleep(_time64)?|nanosleep|wait4|waitid|waitpid|sigtimedwait|sigwaitinfo|pause"
    r"|futex_abstimed_wait_(common|cancelable)(64)?|do_futex_wait|pthread_cond_(timed|clock)?wait"
    r"|sem_(clock|timed)?wait)(_cancel|_nocancel)?"
)
UNSAFE = re.compile(
    r"_*(libc_|GI_)*_*(int_)?(malloc|calloc|realloc|free|memalign|posix_memalign|sysmalloc)\b.*"
    r"|arena_get.*|tcache_.*|_*dl_.*|_*dl(open|sym|close|m?open_doit).*|_*tls_get_addr.*|call_init"
)
# The libraries whose symbols are read, as gdb's pattern for their paths.
NAMED = r"/\\(libc\\|libdl\\|libpthread\\|ld-linux\\|libpython\\)[^/]*$"
# A deeper stack is not judged.
FRAMES = 2000
THREAD = re.compile(r"^HEADWAY (\d+) (\S+)$", re.MULTILINE)


class Gdb:
    def __init__(self, target: Target) -> None:
        """Raises `Refused` if there is no gdb that can call a function in a process."""
        self._target = target
        program = shutil.which("gdb")
        if program is None:
            raise Refused(
                f"process {target.pid} runs CPython {target.python}, for which this needs {PACKAGE}"
            )
        self._program = program
        self._try_on_another()

    def ask(self, script: str, within_s: float) -> None:
        """Raises `Refused` if no thread was at a safe point within this time, or if gdb failed."""
        deadline = time.monotonic() + within_s
        while True:
            said = self._run(script)
            if re.search(r"^HEADWAY started 0$", said, re.MULTILINE):
                return
            if "HEADWAY waits" not in said:
                raise Refused(
                    f"gdb could not attach to process {self._target.pid}: {_reason(said)}"
                )
            found = ", ".join(sorted({name for _, name in THREAD.findall(said)})[:5])
            if time.monotonic() > deadline:
                raise Refused(
                    f"process {self._target.pid} was at no safe point for {within_s:.0f} s, and "
                    f"was left alone (its threads are in {found})"
                )
            time.sleep(PAUSE_S)

    def _try_on_another(self) -> None:
        """Has gdb call a function in a process that does not matter. Raises `Refused` if it cannot:
        gdb 13 does not know the registers of processors with AMX, and the system call that it
        interrupted fails in the process."""
        with subprocess.Popen([sys.executable, "-IS", "-c", IDLE], stdin=subprocess.PIPE) as other:
            try:
                command = [self._program, "--batch", "-nx", "-nh", "-p", str(other.pid)]
                called = subprocess.run(
                    [*command, "-ex", 'printf "HEADWAY %d\\n", (int)getpid()'],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    # Where a gdb that aborts can leave no core file.
                    cwd="/proc",
                    env=_environment(),
                    timeout=GDB_LIMIT_S,
                    text=True,
                    errors="replace",
                ).stdout
            except subprocess.TimeoutExpired:
                called = f"no answer within {GDB_LIMIT_S} s"
            finally:
                other.kill()
        if f"HEADWAY {other.pid}" in called:
            return
        forbidden = re.search(r"ptrace: .*[^.\n]", called)
        if forbidden:
            raise Refused(
                f"process {self._target.pid} may not be looked into: {forbidden[0]}: "
                f"{missing_right()}"
            )
        raise Refused(
            f"this gdb cannot call a function in a process of this machine ({_reason(called)});"
            f" process {self._target.pid} was left alone"
        )

    def _run(self, script: str) -> str:
        """Returns what gdb printed. It is never killed: after its call has begun, its death would
        be the process's."""
        module = find_spec("headway._native")
        if module is None or module.origin is None:
            raise Refused("headway's extension module is missing")
        commands, output = f"{script}.gdb", f"{script}.out"
        Path(commands).write_text(_commands(self._target, module.origin, script))
        with open(output, "w") as said:
            # A session of its own: Ctrl-C and a closed terminal do not reach it. In the folder of
            # the script, and not where the user is: a gdb that aborts may leave a core file.
            gdb = subprocess.Popen(
                [self._program, "--batch", "-nx", "-nh", "-x", commands],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=os.path.dirname(script),
                env=_environment(),
            )
        try:
            gdb.wait(GDB_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Refused(
                f"gdb (process {gdb.pid}) has not attached to process {self._target.pid} within "
                f"{GDB_LIMIT_S} s; it goes on, and then does nothing"
            ) from None
        return Path(output).read_text(errors="replace")


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in OF_PYTHON}
    return {**kept, "DEBUGINFOD_URLS": ""}


def _commands(target: Target, module: str, script: str) -> str:
    """The commands for gdb. What they print tells how far it came."""
    library = target.library and os.path.realpath(target.library)
    load = f"((void *(*)(const char *, int)) dlopen)({_quoted(module)}, 2)"
    find = f'((void *(*)(void *, const char *)) dlsym)((void *) %d, "{FUNCTION}")'
    call = f"((int (*)(const char *)) %d)({_quoted(script)})"
    # Of the libraries only those with names that are asked for: gdb reads symbols while the process
    # stands still, and has taken 20 s for those of a module as large as ours.
    return f"""
maintenance set worker-threads 0
set auto-solib-add off
set pagination off
set confirm off
set print thread-events off
set auto-load off
set unwindonsignal on
file /proc/{target.pid}/exe
handle all nostop noprint pass
handle SIGINT nostop noprint pass
python
import os, re
WAITS, UNSAFE, LIBRARY = {WAITS.pattern!r}, {UNSAFE.pattern!r}, {library!r}
def frames():
    frame = gdb.newest_frame()
    while frame is not None:
        library = gdb.solib_name(frame.pc()) or ""
        yield (frame.name() or "?").partition("@")[0], library and os.path.realpath(library)
        try:
            frame = frame.older()
        except gdb.error:
            return
def is_safe():
    for number, (name, library) in enumerate(frames()):
        if number == 0 and library != LIBRARY and not re.fullmatch(WAITS, name):
            return False
        if number > {FRAMES} or re.fullmatch(UNSAFE, name) or "/ld-" in library:
            return False
        if not (library == LIBRARY or re.search("/lib(c|dl|pthread)[.-]", library)):
            # A module's callers cannot be told without its symbols.
            return number > 0
    return True
def choose():
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        print("HEADWAY", thread.ptid[1], next(frames())[0])
        if is_safe():
            return True
    return False
def attach():
    gdb.execute("attach {target.pid}", to_string=True)
    try:
        gdb.execute("sharedlibrary {NAMED}", to_string=True)
        if not choose():
            print("HEADWAY waits")
            return
        loaded = int(gdb.parse_and_eval({load!r}))
        if loaded == 0:
            reason = gdb.parse_and_eval("((char *(*)(void)) dlerror)()").string()
            print("HEADWAY failed", reason)
            return
        function = int(gdb.parse_and_eval({find!r} % loaded))
        print("HEADWAY started", int(gdb.parse_and_eval({call!r} % function)))
    finally:
        gdb.execute("detach", to_string=True)
try:
    attach()
except gdb.error as error:
    print("HEADWAY failed", error)
end
"""


def _quoted(path: str) -> str:
    """A string of C within a string of Python."""
    if re.search(r"[\"'\\\n]", path):
        raise Refused(f"{path}: this path cannot be given to gdb")
    return f'"{path}"'


def _reason(said: str) -> str:
    failed = re.search(r"^HEADWAY failed (.*)$", said, re.MULTILINE)
    if failed:
        return failed[1]
    # Not "[Inferior 1 (process 7) detached]".
    lines = [line for line in said.strip().splitlines() if not line.startswith("[")]
    return lines[-1] if lines else "it ended without a word"
