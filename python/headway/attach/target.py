"""The facts of a process: which CPython it runs, and whether this command may attach to it.

Linux alone knows the answers: they are in /proc (proc(5)) and in the ELF file of the interpreter.
Every refusal is one line, and the process is untouched.
"""

from __future__ import annotations

import os
import re
import struct
import sys
from collections.abc import Iterable
from typing import NamedTuple

from headway.errors import CommandError
from headway.options import Whole
from headway.programs import process_tree

# The number of a process.
PID = Whole(1, (1 << 22) - 1)
# The way without attaching.
INSTEAD = "start it with HEADWAY=report or HEADWAY=priority"
# The section in which CPython has `_PyRuntime`, and the cookie at its start from 3.13 on.
SECTION = b".PyRuntime"
COOKIE = b"xdebugpy"
# The first version with PEP 768.
REMOTE_DEBUGGING = (3, 14)
# e_machine of elf(5), and what the kernel calls it.
MACHINES = {62: "x86_64", 183: "aarch64"}
FILE_NAME = re.compile(r"(?:^|/)(?:lib)?python3\.(\d+)(t?)(d?)(?:m)?(?:\.so[.\d]*)?$")
STATES = {
    "Z": "has ended (a zombie, which its parent has not waited for)",
    "X": "has ended",
    "x": "has ended",
    "T": "is stopped by a signal; continue it first (kill -CONT)",
}


class Refused(CommandError):
    """The process cannot be attached to. The text is one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, exit_code=2)


class NotPython(Refused):
    """The process does not run CPython."""


class Target(NamedTuple):
    """A CPython process. `runtime` is the address of its `_PyRuntime`, and `library` the file that
    has it; "" if that is the program itself. `c_library` is "glibc" or "musl"."""

    pid: int
    version: tuple[int, int]
    free_threaded: bool
    runtime: int
    library: str
    c_library: str

    @property
    def python(self) -> str:
        return python_name(self.version, self.free_threaded)


def python_name(version: tuple[int, int], free_threaded: bool) -> str:
    return f"{version[0]}.{version[1]}{'t' if free_threaded else ''}"


def find(pid: int) -> Target:
    """Raises `Refused`, with the reason, if this command cannot attach to the process."""
    try:
        return _find(pid)
    except (OSError, ValueError, IndexError, KeyError) as error:
        if isinstance(error, OSError) and os.path.exists(f"/proc/{pid}/exe"):
            # A sandbox's /proc lacks files that Linux has.
            raise Refused(
                f"process {pid} may not be looked into: {error.filename}: {error.strerror}"
            ) from None
        raise Refused(f"process {pid} has ended, or is just ending") from None


def find_tree(pid: int) -> tuple[list[Target], dict[int, Refused]]:
    """The process and the Python processes below it, and those of them that refuse.

    Raises `Refused` if the process itself refuses. Other programs below it are no part of this.
    """
    found, refusals = [find(pid)], {}
    for each in sorted(process_tree.tree(pid).keys() - {pid}):
        try:
            found.append(find(each))
        except NotPython:
            continue
        except Refused as refusal:
            refusals[each] = refusal
    return found, refusals


def _find(pid: int) -> Target:
    try:
        owner = os.stat(f"/proc/{pid}")
        status = _status(pid)
    except OSError:
        if not os.path.exists("/proc/self"):
            raise Refused("/proc is not mounted here, and shows what a process runs") from None
        raise Refused(f"there is no process {pid}") from None
    if pid == os.getpid():
        raise Refused(f"process {pid} is this command itself")
    state = status["State"][0]
    if state in STATES:
        raise Refused(f"process {pid} {STATES[state]}")
    if int(status["Tgid"]) != pid:
        raise Refused(f"{pid} is a thread of process {status['Tgid']}: attach to that")
    tracer = int(status["TracerPid"])
    if tracer:
        raise Refused(f"process {pid} is traced by process {tracer}: a debugger is attached to it")
    if owner.st_uid != os.geteuid():
        # Files that both can write would be a way from one user to the other.
        raise Refused(
            f"process {pid} belongs to user {owner.st_uid}: attach as that user "
            f"(sudo -u '#{owner.st_uid}' {sys.executable} -m headway attach {pid})"
        )
    _check_rights(pid)
    if not os.path.lexists("/proc/self/ns/mnt"):
        # There gdb has stopped a process and not let it go on.
        raise Refused(
            f"process {pid} was left alone: /proc/self/ns/mnt is missing, as in gVisor, where "
            f"debuggers work in part; {INSTEAD}"
        )
    for kind, what in (("mnt", "mount"), ("pid", "pid")):
        if os.readlink(f"/proc/self/ns/{kind}") != os.readlink(f"/proc/{pid}/ns/{kind}"):
            inner = status.get("NSpid", str(pid)).split()[-1]
            raise Refused(
                f"process {pid} has a {what} namespace of its own, as in a container: run "
                f"`headway attach {inner}` in there (docker exec, kubectl exec, nsenter)"
            )
    return _interpreter(pid)


def check_version(target: Target) -> None:
    """Raises `Refused` if the target cannot load this package's extension module."""
    ours = sys.version_info[:2]
    is_free_threaded = bool(getattr(sys, "abiflags", "").count("t"))
    if (target.version, target.free_threaded) != (ours, is_free_threaded):
        raise Refused(
            f"process {target.pid} runs CPython {target.python}, and this is Headway for "
            f"{python_name(ours, is_free_threaded)}: attach with a Headway for {target.python} "
            f"(python{target.python} -m headway attach {target.pid})"
        )
    with open("/proc/self/maps", errors="surrogateescape") as file:
        own_library = _c_library(file)
    if target.c_library != own_library:
        raise Refused(
            f"process {target.pid} has {target.c_library}, and this is Headway for {own_library}: "
            "attach with the Headway of its own environment"
        )
    if target.c_library == "musl" and target.version < REMOTE_DEBUGGING:
        raise Refused(
            f"process {target.pid} runs CPython {target.python} on musl, whose allocator gdb "
            f"cannot recognize; this needs CPython 3.14 there; {INSTEAD}"
        )


def _c_library(mappings: Iterable[str]) -> str:
    """musl's dynamic linker and its C library are one file."""
    return "musl" if any("/ld-musl-" in line for line in mappings) else "glibc"


def _status(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/status") as file:
        return {
            name: value.strip()
            for name, _, value in (line.partition(":") for line in file)
            if value
        }


def _check_rights(pid: int) -> None:
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
    except ProcessLookupError:
        raise Refused(f"there is no process {pid}") from None
    except OSError as error:
        raise Refused(f"process {pid} may not be looked into: {missing_right()}") from error


def missing_right() -> str:
    """Names the right that this command lacks, and what gives it."""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope") as file:
            scope = int(file.read())
    except (OSError, ValueError):
        scope = 0
    if scope in (1, 2):
        return (
            f"kernel.yama.ptrace_scope is {scope}, which allows this "
            + ("for children only" if scope == 1 else "to root only")
            + ": set it to 0 for the time (sudo sysctl kernel.yama.ptrace_scope=0), or give a "
            "container CAP_SYS_PTRACE (docker run --cap-add SYS_PTRACE); without that right, "
            + INSTEAD
        )
    if scope > 2:
        return f"kernel.yama.ptrace_scope is {scope}, which allows it to nobody; {INSTEAD}"
    return (
        "CAP_SYS_PTRACE is missing (docker run --cap-add SYS_PTRACE; in Kubernetes "
        "securityContext.capabilities.add: [SYS_PTRACE]), or the process has rights that its user "
        f"does not have; without that right, {INSTEAD}"
    )


def _interpreter(pid: int) -> Target:
    """Finds the file that has `_PyRuntime` among those that are mapped: libpython, or the
    program."""
    seen = set()
    with open(f"/proc/{pid}/maps", errors="surrogateescape") as file:
        lines = file.read().splitlines()
    if not lines:
        raise Refused(f"process {pid} is a thread of the kernel, or is just ending")
    executable = os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
    for line in lines:
        columns = line.split(maxsplit=5)
        # The first mapping of a file begins with its head.
        if len(columns) < 6 or int(columns[2], 16) or columns[5] in seen:
            continue
        path = columns[5].removesuffix(" (deleted)")
        seen.add(columns[5])
        name = os.path.basename(path)
        if path != executable and not name.startswith("libpython"):
            continue
        # The file may have been replaced since; that of the program stays at hand.
        file_at = f"/proc/{pid}/exe" if path == executable else path
        if os.stat(file_at).st_ino != int(columns[4]):
            raise Refused(f"process {pid}: {path} was replaced; restart it first")
        found = _runtime(file_at, int(columns[0].partition("-")[0], 16))
        if found is not None:
            runtime, machine = found
            if MACHINES.get(machine) != os.uname().machine:
                raise Refused(f"process {pid} is built for another kind of processor")
            version, free_threaded = _version(pid, path, runtime)
            library = "" if path == executable else path
            return Target(pid, version, free_threaded, runtime, library, _c_library(lines))
    name = os.path.basename(executable)
    if "pypy" in name or any("libpypy" in line for line in lines):
        raise Refused(f"process {pid} runs PyPy, whose lock Headway does not know")
    raise NotPython(f"process {pid} ({name}) does not run CPython, or one without section headers")


def _runtime(path: str, base: int) -> tuple[int, int] | None:
    """The address of the section and the machine of an ELF file; None without such a section."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            if head[:5] != b"\x7fELF\x02":
                return None
            kind, machine = struct.unpack_from("<HH", head, 16)
            (sections,) = struct.unpack_from("<Q", head, 40)
            size, number, names = struct.unpack_from("<HHH", head, 58)
            file.seek(sections)
            table = [struct.unpack_from("<IIQQQQ", file.read(size)) for _ in range(number)]
            file.seek(table[names][4])
            texts = file.read(table[names][5])
            # The executable of a fixed address has kind 2, and its addresses are absolute.
            offset = 0 if kind == 2 else base
            for name, _, _, address, _, _ in table:
                if texts[name : texts.index(b"\0", name)] == SECTION:
                    return address + offset, machine
    except (OSError, struct.error, IndexError, ValueError):
        pass
    return None


def _version(pid: int, path: str, runtime: int) -> tuple[tuple[int, int], bool]:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        head = os.pread(memory.fileno(), 24, runtime)
    if head[:8] == COOKIE:
        number, free_threaded = struct.unpack_from("<QQ", head, 8)
        return (number >> 24 & 255, number >> 16 & 255), bool(free_threaded)
    found = FILE_NAME.search(path)
    if found is None:
        raise Refused(f"process {pid} runs a CPython whose version {path} does not tell")
    return (3, int(found[1])), bool(found[2])
