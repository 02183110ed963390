"""The meter beside what else a process may do: fork, exit, load other hooks, die."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launch import GIL_ENABLED, HAS_MUSL, environment, python
from metered import CANCELLING, PREAMBLE, assert_balanced, run_metered

pytestmark = pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL")

FORKING = """
import warnings
warnings.simplefilter("ignore")

def fork(child):
    pid = os.fork()
    if not pid:
        try:
            child()
            sys.stdout.flush()
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1]
"""


def test_a_forked_child_starts_with_clean_books_and_a_working_gil() -> None:
    code = f"""
{FORKING}
gil.install()
for _ in range(1000): time.sleep(0)
stop = False
def compute():
    while not stop: sum(range(100))
others = [threading.Thread(target=compute, name="parent's") for _ in range(3)]
[thread.start() for thread in others]
def child():
    thread = threading.Thread(target=time.sleep, args=(0.001,), name="child's")
    thread.start()
    thread.join()
    show(gil.snapshot().to_dict())
for _ in range(20): fork(child)
stop = True
[thread.join() for thread in others]
show(gil.snapshot().to_dict())
"""
    *children, parent = run_metered(code)
    assert len(children) == 20
    for report in [*children, parent]:
        assert_balanced(report)
    for report in children:
        assert report["gils"][0]["takes"] < 200
        assert {row["name"] for row in report["threads"]} <= {"MainThread", "child's"}
        assert report["children"] == []
    assert parent["gils"][0]["takes"] > 1000
    assert [child["pid"] for child in parent["children"]] == [child["pid"] for child in children]


def test_a_child_is_reported_however_it_ended_and_so_are_its_own_children() -> None:
    code = f"""
{FORKING}
gil.install()
def work():
    for _ in range(50): time.sleep(0)
def killed():
    work()
    os.kill(os.getpid(), {signal.SIGKILL})
def grandparent():
    fork(work)
show([fork(work), fork(killed), fork(grandparent)])
show(gil.snapshot().to_dict())
"""
    statuses, report = run_metered(code)
    assert statuses == [0, signal.SIGKILL, 0]
    assert len(report["children"]) == 4
    takes = sorted(child["gils"][0]["takes"] for child in report["children"])
    assert takes[0] < 50 < takes[1]


def test_more_children_than_there_is_room_for_are_counted() -> None:
    code = f"""
{FORKING}
gil.install()
for _ in range(80): fork(lambda: time.sleep(0))
report = gil.snapshot().to_dict()
show([len(report["children"]), report["unlisted_children"]])
"""
    ((listed, unlisted),) = run_metered(code)
    assert listed == 63
    assert listed + unlisted == 80


def test_a_child_may_install_anew() -> None:
    code = f"""
{FORKING}
gil.install()
def child():
    gil.uninstall()
    gil.install()
    for _ in range(10): time.sleep(0)
    show(gil.snapshot().to_dict())
fork(child)
"""
    (report,) = run_metered(code)
    assert_balanced(report)
    assert 10 <= report["gils"][0]["takes"] < 20


# Of forty ends without Headway five were a segmentation fault on musl.
@pytest.mark.skipif(HAS_MUSL and sys.version_info < (3, 13, 8), reason="CPython itself crashes")
@pytest.mark.parametrize("policy", ["interval", "priority", "deadline"])
def test_daemon_threads_that_never_return_do_not_hold_up_the_end(policy: str) -> None:
    """Up to 3.13.7 they end by `pthread_exit` where they take the GIL, which unwinds through the
    hook; from 3.13.8 on they hang there (python/cpython#87135)."""
    code = f"""
        def spin():
            while True: sum(range(1000))
        def sleep():
            while True: time.sleep(0.0001)
        gil.install(policy={policy!r})
        # So that a start and the end do not take long beside all of them.
        sys.setswitchinterval(0.0005)
        for target in (spin, sleep) * 4:
            threading.Thread(target=target, daemon=True).start()
        time.sleep(0.1)
        show(gil.snapshot().to_dict()["gils"][0]["takes"] > 0)
    """
    for _ in range(5):
        assert run_metered(code) == [True]


def test_threads_without_a_python_state_and_without_a_python_name_get_rows() -> None:
    """A thread of C's own, from a timer that calls back into Python."""
    code = """
        libc = ctypes.CDLL(None)
        callback = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: time.sleep(0.001))
        gil.install()
        thread = ctypes.c_ulong()
        for _ in range(3):
            libc.pthread_create(ctypes.byref(thread), None, callback, None)
            libc.pthread_join(thread, None)
        show(gil.snapshot().to_dict())
    """
    (report,) = run_metered(code)
    assert_balanced(report)
    assert len(report["threads"]) == 4


@pytest.mark.parametrize("variable", ["LD_BIND_NOW", "LD_BIND_NOT"])
def test_slots_bound_at_start_or_never(variable: str) -> None:
    code = """
        gil.install()
        for _ in range(100): time.sleep(0)
        show(gil.snapshot().to_dict())
    """
    (report,) = run_metered(code, env=environment(**{variable: "1"}))
    assert_balanced(report)
    assert report["gils"][0]["takes"] >= 100


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_another_interposer_is_called_too(tmp_path: Path) -> None:
    source = tmp_path / "counting.c"
    source.write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <pthread.h>\n#include <stdio.h>\n"
        "static unsigned long calls;\n"
        "int pthread_cond_signal(pthread_cond_t *cond) {\n"
        "  static int (*real)(pthread_cond_t *);\n"
        '  if (!real) real = dlvsym(RTLD_NEXT, "pthread_cond_signal", "GLIBC_2.3.2");\n'
        '  if (!real) real = dlsym(RTLD_NEXT, "pthread_cond_signal");\n'
        "  __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);\n"
        "  return real(cond);\n"
        "}\n"
        "unsigned long counted(void) { return calls; }\n"
    )
    library = tmp_path / "counting.so"
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
    code = """
        counted = ctypes.PyDLL(None).counted
        gil.install()
        before = counted()
        for _ in range(1000): time.sleep(0)
        after = counted()
        show([after - before, gil.snapshot().to_dict()])
    """
    ((calls, report),) = run_metered(code, env=environment(LD_PRELOAD=str(library)))
    assert_balanced(report)
    assert calls >= 2000
    assert report["gils"][0]["takes"] >= 1000


def test_no_pthread_key_left_is_a_refusal() -> None:
    code = """
        from headway.errors import Unsupported
        key = ctypes.c_uint()
        create_key = ctypes.CDLL(None).pthread_key_create
        while key.value < 200 and create_key(ctypes.byref(key), None) == 0: pass
        try: gil.install()
        except Unsupported as error: show(str(error))
        for _ in range(10): time.sleep(0)
    """
    (why,) = run_metered(code)
    assert "pthread keys" in why


def test_a_ledger_file_outlives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "books.ledger"
    code = f"""
gil.install(ledger={str(path)!r})
for _ in range(100): time.sleep(0)
os.kill(os.getpid(), {signal.SIGKILL})
"""
    result = python("-c", PREAMBLE + code)
    assert result.returncode == -signal.SIGKILL
    (report,) = run_metered(f"show(gil.read_ledger({str(path)!r}).to_dict())")
    assert_balanced(report)
    assert report["gils"][0]["takes"] >= 100
    assert report["python"] == sys.version.split()[0]
    # Sparse: what is used takes room, not what there is room for.
    assert os.stat(path).st_blocks * 512 < 8 << 20


@pytest.mark.parametrize("content", [b"", b"HEADWAY", b"x" * 100_000])
def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    code = f"""
        from headway.errors import Error
        try: gil.read_ledger({str(path)!r})
        except Error as error: show(str(error))
    """
    (why,) = run_metered(code)
    assert "not a ledger" in why


def test_a_cancelled_wait_unwinds_through_its_hook() -> None:
    """The cancelled thread leaves the GIL's mutex locked, as it does without Headway."""
    code = (
        CANCELLING
        + """
        def pause():
            while True: time.sleep(0.0001)
        gil.install()
        # No drop request: the calling thread would wait for the mutex for ever.
        sys.setswitchinterval(100)
        thread = started(pause)
        # The calls keep the GIL, and the thread waits for it.
        libc.usleep(50_000)
        task = cancel(thread)
        while libc.access(task, 0) == 0: libc.usleep(1000)
        libc.puts(b"true")
        libc.fflush(None)
        libc._exit(0)
    """
    )
    assert run_metered(code) == [True]


def test_a_thread_in_the_queue_of_a_policy_is_cancelled_after_it() -> None:
    code = (
        CANCELLING
        + """
        def pause():
            while True: time.sleep(0)
        gil.install(policy="priority")
        task = cancel(started(pause))
        while os.path.exists(task): time.sleep(0.001)
        report = gil.snapshot().to_dict()
        show(report)
        sys.stdout.flush()
        os._exit(0)
    """
    )
    (report,) = run_metered(code)
    assert_balanced(report)


def test_a_forked_child_does_not_name_a_thread_after_one_of_its_parent() -> None:
    """The child starts as many threads as the table has entries, so that it uses each again."""
    code = """
        import _thread, warnings
        warnings.simplefilter("ignore")
        gil.install()
        over = threading.Event()
        for _ in range(20): threading.Thread(target=over.wait, name="of the parent").start()
        pid = os.fork()
        if not pid:
            done = threading.Semaphore(0)
            for _ in range(2100):
                _thread.start_new_thread(done.release, ())
                done.acquire()
            show(sorted({row["name"] for row in gil.snapshot().to_dict()["threads"]}))
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        over.set()
    """
    (names,) = run_metered(code)
    assert not [name for name in names if "of the parent" in name]
