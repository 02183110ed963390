"""How interpreters end, whatever their applications do then: the process serves on, or ends."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from served import APPS, TIMEOUT_S
from test_interpreters import Tenants, own_or_shared, refused

from headway.server.settings import ApplicationGroup, Mount, ProcessGroup
from headway.server.supervisor.messages import Ready
from headway.server.supervisor.process import spawn
from headway.server.system import System
from headway.server.task import Task

pytestmark = pytest.mark.free_threading

THREAD_AT_EXIT = """
def start():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    say("started at exit")
atexit.register(start)
"""
THREAD_UNTIL_EXIT = """
over = threading.Event()
threading.Thread(target=over.wait, daemon=True).start()
atexit.register(over.set)
"""
# Each thread starts the next one and ends, until a moment after the interpreter has begun to end.
THREADS_COME_AND_GO = """
import _thread
over = False
def follow():
    try:
        over or _thread.start_new_thread(follow, ())
    except RuntimeError:
        pass
def end():
    global over
    time.sleep(0.1)
    over = True
def start():
    for _ in range(6):
        _thread.start_new_thread(follow, ())
    _thread.start_new_thread(end, ())
atexit.register(start)
"""
STATES_AT_EXIT = """
import ctypes
def show():
    functions = [ctypes.pythonapi.PyGILState_GetThisThreadState, ctypes.pythonapi.PyThreadState_Get]
    for function in functions:
        function.restype = ctypes.c_void_p
    say("the state is %s" % (functions[0]() == functions[1]()))
atexit.register(show)
"""


def test_a_thread_that_starts_at_exit_keeps_its_interpreter(tmp_path: Path) -> None:
    group = {"name": "shop", "maximum_requests": 1}
    with Tenants(tmp_path, group, environment={"TENANT_AT_IMPORT": THREAD_AT_EXIT}) as server:
        first = server.ask("/")
        server.wait_for("started at exit")
        server.wait_for("1 of its threads did not end, so its interpreter stays")
        assert server.ask("/")["pid"] == first["pid"]


def test_a_thread_that_an_atexit_handler_ends_is_waited_for(tmp_path: Path) -> None:
    group = {"name": "shop", "maximum_requests": 1}
    with Tenants(tmp_path, group, environment={"TENANT_AT_IMPORT": THREAD_UNTIL_EXIT}) as server:
        server.ask("/")
        server.wait_for("atexit of the tenant")
    assert "did not end" not in server.stderr


@pytest.mark.slow("threads that come and go for a while")
def test_threads_that_come_and_go_while_their_interpreter_ends_are_counted(tmp_path: Path) -> None:
    """Without a GIL they free their thread states while these are counted. The debug allocator
    overwrites what is freed."""
    group = {"name": "shop", "maximum_requests": 1}
    environment = {"TENANT_AT_IMPORT": THREADS_COME_AND_GO, "PYTHONMALLOC": "debug"}
    with Tenants(tmp_path, group, environment=environment) as server:
        facts = first = server.ask("/")
        for _ in range(4):
            facts = server.wait_for_interpreter("/", facts["interpreter"])
        assert facts["pid"] == first["pid"], server.stderr


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="PyGILState_* is for the main interpreter up to 3.11"
)
@own_or_shared
def test_a_thread_keeps_its_own_state(tmp_path: Path, own_gil: bool) -> None:
    """PyGILState_Ensure in an atexit handler finds the state of its thread, though worker threads
    had states there when their interpreter was replaced."""
    if own_gil and sys.version_info < (3, 13):
        pytest.skip("up to 3.12 ctypes, which asks, is for interpreters that share a GIL")
    group = {"name": "shop", "own_gil": own_gil, "maximum_requests": 4}
    with Tenants(tmp_path, group, environment={"TENANT_AT_IMPORT": STATES_AT_EXIT}) as server:
        server.ask_at_once("/do/sleep", 4)
        server.wait_for("the state is (True|False)")
    assert "the state is False" not in server.stderr


def test_the_main_interpreter_has_its_atexit_handlers_run_anyhow(tmp_path: Path) -> None:
    groups = ({"name": "", "path": "/main"}, {"name": "shop"})
    with Tenants(tmp_path, *groups) as server:
        server.ask("/do/start_daemon")
    assert "did not end, so its interpreter stays" in server.stderr
    assert server.stderr.count("atexit of the tenant") == 2


def test_a_start_that_fails_with_threads_left_says_why() -> None:
    statement = "threading.Thread(target=threading.Event().wait, daemon=True).start()\n1 / 0"
    said = refused("tenant:app", "--application-group", "shop", TENANT_AT_IMPORT=statement)
    assert "ZeroDivisionError" in said
    assert "Fatal Python error" not in said
    assert said.endswith("importing tenant failed (see above)\n")


def test_a_preloaded_process_says_why_an_interpreter_beside_it_fails() -> None:
    # Only the main interpreter may.
    statement = "import signal; signal.signal(signal.SIGUSR2, signal.SIG_IGN)"
    flags = ["--interpreters", "2", "--preload"]
    assert "ValueError: signal only works" in refused(
        "tenant:app", *flags, TENANT_AT_IMPORT=statement
    )


def test_a_worker_that_never_serves_ends_its_interpreters() -> None:
    group = ProcessGroup(
        mounts=(Mount("", "tenant:app", "shop"),),
        application_groups=(ApplicationGroup("shop"),),
        python_path=(str(APPS),),
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.set_inheritable(True)
        listeners = ((listener.fileno(), f"127.0.0.1:{listener.getsockname()[1]}"),)
        task = Task(group, 1, listeners, *[False] * 5)
        process = spawn(task, 1, 1, dict(os.environ), System())

    def is_ready() -> bool:
        return any(isinstance(message, Ready) for message in process.receive())

    def has_ended() -> bool:
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, process.pid, options) is not None

    try:
        wait_until(is_ready)
        os.kill(process.pid, signal.SIGTERM)
        wait_until(has_ended)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        _, status = os.waitpid(process.pid, 0)
        process.control.close()
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_directory_on_the_path_need_not_be_text(tmp_path: Path) -> None:
    directory = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(directory)
    command = ["tenant:nothing", "--application-group", "shop"]
    said = refused(*command, status=2, PYTHONPATH=os.fsdecode(directory))
    assert "tenant has no attribute 'nothing'" in said


@pytest.mark.skipif(
    sys.version_info < (3, 13),
    reason="up to 3.12 nobody can ask a thread of another interpreter to drop a shared GIL",
)
@own_or_shared
@pytest.mark.slow("waits for a request that is interrupted")
def test_a_request_is_interrupted_in_an_interpreter_that_is_replaced(
    tmp_path: Path, own_gil: bool
) -> None:
    group = {"name": "shop", "own_gil": own_gil, "maximum_requests": 2}
    limits = {"request_timeout_s": 1.0, "interrupt_timeout_s": 15.0, "threads": 2}
    statuses: list[int] = []
    with Tenants(tmp_path, group, **limits) as server:
        first = server.ask("/")
        thread = threading.Thread(target=lambda: statuses.append(server.get("/do/compute").status))
        thread.start()
        server.ask("/")
        server.wait_for_interpreter("/", first["interpreter"])
        thread.join()
        server.wait_for("headway.errors.RequestTimeout")
    assert statuses == [504]


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
