"""How interpreters end, whatever their applications do then: the process serves on, or ends."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

from served import APPS, TIMEOUT_S
from test_interpreters import Tenants, refused

from headway.server.process import spawn
from headway.server.settings import ApplicationGroup, Mount, ProcessGroup
from headway.server.task import Task

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


def test_a_worker_that_never_serves_ends_its_interpreters() -> None:
    group = ProcessGroup(
        mounts=(Mount("", "tenant:app", "shop"),),
        application_groups=(ApplicationGroup("shop"),),
        python_path=(str(APPS),),
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.set_inheritable(True)
        listeners = ((listener.fileno(), "127.0.0.1:{}".format(listener.getsockname()[1])),)
        process = spawn(
            Task(group, 1, listeners, False, False, False, False), 1, 1, dict(os.environ)
        )
    try:
        events: list[object] = []
        wait_until(
            lambda: "ready" in events or events.extend(each["event"] for each in process.receive())
        )
        os.kill(process.pid, signal.SIGTERM)
        wait_until(lambda: os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))
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


def wait_until(condition: object) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)
