"""Shows that no hook of the meter can panic, in the linked module.

Usage: PYTHON scripts/check_hooks.py MODULE

MODULE is a built `_native*.so`. Reads its machine code with objdump, follows the calls from each
hook of crates/gil, and fails if one leads to the code that panics or allocates. A call through a
register has no target in the code. `INDIRECT` lists the functions with such calls, and why they are
safe.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# The function that replaces each hooked symbol: see `hooks` in crates/gil/src/hook.
HOOKS = (
    "condition::cond_signal",
    "condition::cond_timedwait",
    "condition::cond_wait",
    "lifecycle::cond_destroy",
    "lifecycle::cond_init",
    "lifecycle::thread_create",
    "mutex::mutex_lock",
    "polling::close",
    "polling::epoll_pwait",
    "polling::epoll_wait",
    "semaphores::sem_clockwait",
    "semaphores::sem_timedwait",
    "semaphores::sem_wait",
    "thread_start::begin",
)

# Code that panics, and the functions of the C library that allocate, by demangled name.
FORBIDDEN = re.compile(
    r"core::panicking::|core::\w+(::\w+)*::\w*(fail|panic)\w*|std::panicking::"
    r"|rust_begin_unwind|rust_panic|_Unwind_RaiseException|^abort@"
    r"|__rust_(alloc|realloc|dealloc)|^(malloc|calloc|realloc|free|posix_memalign)@"
)

# Functions with calls through a register, and why each of these is safe.
INDIRECT = {
    "headway_gil::hook::": "the original function that the hook replaces",
    "headway_gil::finalization::phase": "Py_IsFinalizing, which reads a variable",
    "headway_gil::gil_creation::saw_unknown_init": "two functions of CPython that read a field",
    "headway_gil::registry::interpreter_list::newest_in": "PyInterpreterState_Head, likewise",
    "headway_gil::parked_waits::wait_began": "PyThreadState_GetUnchecked, which reads a variable",
    "headway_gil::profile::parked::on_end_of_wait": "PyGILState_GetThisThreadState, likewise",
    "headway_gil::loops::reader::note_place": "PyGILState_GetThisThreadState, likewise",
    "headway_gil::loops::reader::start": "starts the sampler's thread, without a GIL or a lock",
}

FUNCTION = re.compile(r"^([0-9a-f]+) <(.*)>:$")
INSTRUCTION = re.compile(r"^\s+[0-9a-f]+:\s+(?:notrack |bnd |lock )*(\w+)\s*(.*)$")
BRANCHES = re.compile(r"^(call|jmp|j[a-z]{1,3}|bl|b|b\.[a-z]+|cbn?z|tbn?z)$")
INDIRECT_BRANCHES = {"call", "jmp", "blr", "br"}
REGISTER = re.compile(r"^\*?(%\w+|x\d+)$")
# The beginning of a function, not a place in one, `1234 <name+0x12>`.
TARGET = re.compile(r"^([0-9a-f]+) <(?!.*\+0x[0-9a-f]+>$)(.*)>$")
# A function of another library, called, or its address on the way into a register:
# `*0x12(%rip)  # 1234 <name@GLIBC>`, `0x12(%rip),%r12  # 1234 <name@GLIBC>`.
EXTERNAL = re.compile(r"^\*?0x[0-9a-f]+\(%rip\)(?:,(%\w+))?\s+# [0-9a-f]+ <(\w+@\w+.*)>$")


@dataclass
class Function:
    """A function of the module, or, with a name alone, of another library."""

    name: str = ""
    # The addresses of functions of the module, and the names of others.
    targets: set[int | str] = field(default_factory=set)
    # Registers that get the address of a function of another library, and those that are called.
    # The one may be further down than the other.
    loaded: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)

    @property
    def calls_register(self) -> bool:
        return not self.called <= self.loaded


Functions = dict[int | str, Function]


def disassembled(module: Path) -> Iterator[str]:
    command = ["objdump", "--disassemble", "--demangle=rust", "--no-show-raw-insn", str(module)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as objdump:
        assert objdump.stdout is not None
        yield from objdump.stdout
    if objdump.returncode != 0:
        raise SystemExit(f"objdump failed on {module}")


def call_graph(lines: Iterator[str]) -> Functions:
    """Every function of the module, by address, with what it calls or jumps to.

    Instances of one generic function have one name, so names do not identify functions.
    """
    functions: Functions = {}
    function = Function()
    before = ""
    for line in lines:
        if found := FUNCTION.match(line):
            function = functions.setdefault(int(found[1], 16), Function(found[2]))
        elif found := INSTRUCTION.match(line):
            operation, operands = found[1], found[2].strip()
            if BRANCHES.match(operation) and (target := TARGET.match(operands)):
                function.targets.add(int(target[1], 16))
                functions.setdefault(int(target[1], 16), Function(target[2]))
            elif external := EXTERNAL.match(operands):
                function.targets.add(external[2])
                function.loaded.add(external[1] or "")
                functions.setdefault(external[2], Function(external[2]))
            elif operation in INDIRECT_BRANCHES and (register := REGISTER.match(operands)):
                # A jump to the sum of a table's base and an entry stays in the function: a `match`.
                is_table = operation in {"jmp", "br"} and before == "add"
                if not is_table:
                    function.called.add(register[1])
            before = operation
    return functions


def paths_from(hook: int | str, functions: Functions) -> dict[int | str, list[str]]:
    """Each function that the hook reaches, with the names of the calls that lead there."""
    paths = {hook: [functions[hook].name]}
    waiting = [hook]
    while waiting:
        present = waiting.pop()
        if FORBIDDEN.search(functions[present].name):
            continue
        for target in functions[present].targets:
            name = functions[target].name
            if target not in paths and not name.startswith("_Unwind_Resume"):
                paths[target] = [*paths[present], name]
                waiting.append(target)
    return paths


def problems(functions: Functions) -> Iterator[str]:
    by_name = {function.name: address for address, function in functions.items()}
    for hook in HOOKS:
        root = f"headway_gil::hook::{hook}"
        if root not in by_name:
            yield f"{root} is not in the module, or has no symbol"
            continue
        for address, path in paths_from(by_name[root], functions).items():
            function = functions[address]
            if FORBIDDEN.search(function.name):
                yield " -> ".join(path)
            if function.calls_register and not function.name.startswith(tuple(INDIRECT)):
                yield " -> ".join(path) + " -> a register, for no listed reason"


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    if shutil.which("objdump") is None:
        print("objdump is missing: install binutils", file=sys.stderr)
        return 3
    functions = call_graph(disassembled(Path(sys.argv[1])))
    found = list(problems(functions))
    print("\n".join(found), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
