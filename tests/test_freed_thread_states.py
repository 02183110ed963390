"""The finalization of CPython, under an allocator that protects freed thread states.

CPython frees the thread states of daemon threads while these wait in a hook or run a C function.
Any access to one is then a SIGSEGV.
"""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest
from extension_modules import INCLUDE, MISSING
from launch import GIL_ENABLED, environment
from metered import run_metered

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

# A block that may be a thread state has pages of its own, which are protected when it is freed.
ALLOCATOR = """
#define _GNU_SOURCE
#include <Python.h>
#include <dlfcn.h>
#include <sys/mman.h>

enum { PAGE = 4096, SLOT = 4 * PAGE, SLOTS = 4096 };
static char *slots;
static long used;

void *calloc(size_t count, size_t size)
{
    static void *(*next)(size_t, size_t);
    if (count == 1 && size >= sizeof(PyThreadState) && size <= SLOT) {
        if (!slots) {
            slots = mmap(NULL, (size_t)SLOTS * SLOT, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        }
        long slot = __atomic_fetch_add(&used, 1, __ATOMIC_RELAXED);
        if (slot < SLOTS) return slots + slot * SLOT;
    }
    if (!next) next = dlsym(RTLD_NEXT, "calloc");
    return next(count, size);
}

void free(void *block)
{
    static void (*next)(void *);
    size_t offset = (char *)block - slots;
    if (slots && offset < (size_t)SLOTS * SLOT) {
        mprotect(block, SLOT, PROT_NONE);
        return;
    }
    if (!next) next = dlsym(RTLD_NEXT, "free");
    next(block);
}
"""

# Runs `act` when the interpreter finalizes: after the thread states of daemon threads are freed.
LATE = """
        from os import write
        from time import sleep
        class Late:
            def __init__(self, act): self.act = act
            def __del__(self): self.act()
"""


@pytest.fixture(scope="module")
def allocator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("allocator")
    source, library = folder / "protecting.c", folder / "protecting.so"
    source.write_text(ALLOCATOR)
    # Debian's pyconfig.h includes one that lies beside the folder.
    includes = [f"-I{INCLUDE}", f"-I{INCLUDE.parent}"]
    command = ["cc", "-O1", "-shared", "-fPIC", *includes, source, "-o", library, "-ldl"]
    subprocess.run(command, check=True)
    return library


def run(allocator: Path, code: str) -> list[object]:
    return run_metered(
        textwrap.dedent(LATE) + textwrap.dedent(code), env=environment(LD_PRELOAD=str(allocator))
    )


@pytest.mark.skipif(not GIL_ENABLED, reason="without a GIL no thread takes one")
def test_a_profile_does_not_follow_the_freed_thread_state_of_a_thread_that_takes_the_gil(
    allocator: Path,
) -> None:
    """The switch interval keeps the daemon in its wait until the main thread drops the GIL."""
    code = """
        from headway import _native
        gil.install()
        _native.profile_begin(None)
        def work():
            while True: time.sleep(0)
        for _ in range(2): threading.Thread(target=work, daemon=True).start()
        time.sleep(0.05)
        sys.late = Late(lambda: (sleep(0.05), write(1, b'"late"')))
        sys.setswitchinterval(100)
        end = time.monotonic() + 0.2
        while time.monotonic() < end: pass
    """
    assert run(allocator, code) == ["late"]


@pytest.mark.skipif(not GIL_ENABLED, reason="3.13t calls no __del__ of __main__ that late")
def test_no_stack_is_read_once_thread_states_are_freed(allocator: Path) -> None:
    """The daemon sleeps in C code, where it gets the signal that asks for its stack."""
    code = """
        from headway import _native
        from headway.meter import stacks
        assert stacks.prepare()
        daemon = threading.Thread(target=sleep, args=(60,), daemon=True)
        daemon.start()
        show(_native.stacks_read(daemon.native_id, 10**10).splitlines()[-1].split()[0])
        def ask(read=_native.stacks_read, thread=daemon.native_id):
            try: told = read(thread, 10**9)
            except RuntimeError as missing: told = str(missing)
            write(1, b'"' + told.encode() + b'"')
        sys.stdout.flush()
        sys.late = Late(ask)
    """
    assert run(allocator, code) == ["_bootstrap", "the interpreter is ending"]
