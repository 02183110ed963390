"""CPython ends daemon threads as it finalizes, up to 3.13.7 by `pthread_exit`, which unwinds their
stacks. Where a thread is inside Headway, the process must end as it would without Headway."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from extension_modules import MISSING, build
from launch import HAS_MUSL, PROGRAMS, environment, python

from headway import _native

pytestmark = pytest.mark.free_threading

PROGRAM = PROGRAMS / "daemons_in_native.py"
GIL_BUILD = not sysconfig.get_config_var("Py_GIL_DISABLED")
# They neither release the GIL nor run Python code.
OTHERS = {
    *("declares_no_gil", "fork_ends_in_child", "fork_follow", "gil_begin_trace"),
    *("gil_installed", "gil_interpreters", "gil_memory_error"),
    *("gil_match_interpreters", "gil_name_gil", "gil_name_thread", "gil_note_collection"),
    "gil_policies",
    *("gil_read_ledger", "gil_read_ledger_trace", "gil_run", "gil_set_switch_interval"),
    *("gil_uninstall", "internal_error", "internal_errors", "kept_open"),
    *("loops_late_from", "loops_leave", "loops_read", "parse_toml", "process_adopt_orphans"),
    *("process_end_with_parent", "process_is_secure", "process_set_name", "process_share_arena"),
    *("profile_begin", "profile_is_on", "profile_read_ledger", "profile_report"),
    *("report_after_exec", "report_on_signals", "report_sources", "server_admit"),
    *("server_begin_block", "server_block", "server_cut_off", "server_end_block"),
    *("server_read_tls",),
    *("server_requests", "stacks_open", "stacks_register", "telemetry_add_holders"),
    *("telemetry_encode", "telemetry_holder_names", "telemetry_parse", "telemetry_read"),
    "telemetry_spread",
    *("telemetry_receive", "telemetry_record", "telemetry_waker"),
}
# CPython 3.13.0 itself crashes in one exit of forty in which a daemon thread creates interpreters.
CRASH_IN_CPYTHON = {"interpreter_create", "interpreter_enter", "interpreter_end"}


def called() -> list[str]:
    for node in ast.parse(PROGRAM.read_text()).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "CALLS":
            assert isinstance(node.value, ast.Dict)
            return [ast.literal_eval(key) for key in node.value.keys if key is not None]
    raise AssertionError("no CALLS")


def test_each_function_is_called_or_cannot_lose_the_gil() -> None:
    functions = {name for name in dir(_native) if callable(getattr(_native, name))}
    functions = {name for name in functions if not name.startswith("_")}
    assert functions - OTHERS - CRASH_IN_CPYTHON == set(called())


def test_a_daemon_thread_inside_any_function_does_not_abort_the_exit(tmp_path: Path) -> None:
    names = called()
    if HAS_MUSL and sys.version_info < (3, 13, 8):
        # The probe thread ends by `pthread_exit`, which does not unwind to where it could hang.
        names.remove("gil_install")
    # Up to 3.13.7 a free-threaded CPython hangs at its end now and then: an object's lock is handed
    # over to a daemon thread that waits for it, and the thread is ended with the lock.
    for _ in range(1 if GIL_BUILD else 4):
        ended = ends_of(names, tmp_path)
        if ended is not None:
            break
    assert ended is not None, "it hangs"
    returncode, stdout, stderr = ended
    assert returncode == 0, stderr
    assert json.loads(stdout) == dict.fromkeys(names, os.EX_OK), stderr


def ends_of(names: list[str], folder: Path) -> tuple[int, str, str] | None:
    """The status and the outputs of PROGRAM; None if it does not end."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), *names],
        # A thread that ends while it makes a temporary folder leaves it.
        env=environment(TMPDIR=str(folder)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=100 if GIL_BUILD else 28)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None
    return process.returncode, stdout, stderr


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@pytest.mark.parametrize("end", ["with_gil", "without_gil"])
def test_a_thread_that_the_program_ends_below_a_call_does_not_end_the_program(
    end: str, tmp_path: Path
) -> None:
    build(tmp_path, ["ends_threads"])
    code = f"""
import sys, threading, time
sys.path.insert(0, {str(tmp_path)!r})
import ends_threads
from headway import _native

class Ends:
    def __len__(self):
        return 1
    def __getitem__(self, index):
        ended.set()
        ends_threads.{end}()

ended = threading.Event()
threading.Thread(target=_native.telemetry_merge, args=(Ends(),), daemon=True).start()
assert ended.wait(30)
time.sleep(0.1)
print("the program goes on")
"""
    result = python("-W", "ignore", "-c", code)
    assert (result.returncode, result.stdout) == (0, "the program goes on\n"), result.stderr
