"""--preload: the application is imported once, and workers are forked from that."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from served import APPS
from supervised import Held, Load, Supervised, is_alive, wait_until_refused

pytestmark = pytest.mark.free_threading

PRELOADED = {"preload": True, "processes": 2}


def imports(directory: Path) -> list[str]:
    return (directory / "imported").read_text().split()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"IMPORTED": str(tmp_path / "imported")}


def test_the_application_is_imported_once(tmp_path: Path, environment: dict[str, str]) -> None:
    with Supervised(tmp_path, PRELOADED, environment=environment, final_table=True) as server:
        (template,) = imports(tmp_path)
        assert len(server.workers()) == 3
        assert server.get("/preloaded").body.decode() == template
        with Load(server, clients=8, keep_alive=False) as load:
            load.wait_for_answers(300)
        workers = set(server.workers()) - {int(template)}
        assert set(load.pids) <= workers, "the template serves nobody"
        assert not load.failed()
    assert re.search(r"GIL 0 \(main\): held|GIL is disabled", server.stderr), "the meter is on"
    assert not any(map(is_alive, workers))


def test_a_worker_that_dies_is_forked_anew(tmp_path: Path, environment: dict[str, str]) -> None:
    with Supervised(tmp_path, PRELOADED, environment=environment) as server:
        (template,) = imports(tmp_path)
        before = set(server.workers())
        victim = max(before - {int(template)})
        os.kill(victim, signal.SIGKILL)
        server.wait_for(rf"\(pid {victim}\) was ended by SIGKILL while it served; starting another")
        server.wait_until(lambda: len(set(server.workers()) - before) == 1)
        assert server.get("/preloaded").body.decode() == template
        assert imports(tmp_path) == [template]


def test_sighup_makes_a_new_template(tmp_path: Path, environment: dict[str, str]) -> None:
    with Supervised(tmp_path, PRELOADED, environment=environment) as server:
        before = set(server.workers())
        with Load(server) as load:
            server.reload(2)
            load.wait_for_answers(50)
        assert not load.failed()
        server.wait_until(lambda: not before & set(server.workers()))
        assert len(imports(tmp_path)) == 2


def test_a_template_that_dies_is_replaced_when_one_is_needed(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    with Supervised(tmp_path, PRELOADED, environment=environment) as server:
        template = int(imports(tmp_path)[0])
        os.kill(template, signal.SIGKILL)
        server.wait_for("the next fork needs a new one")
        assert server.get("/pid").status == 200
        os.kill(server.workers()[0], signal.SIGKILL)
        server.wait_until(lambda: len(imports(tmp_path)) == 2)
        server.wait_until(lambda: len(server.workers()) == 3)


def test_requests_under_way_are_answered_at_the_end(tmp_path: Path) -> None:
    with Supervised(tmp_path, PRELOADED) as server:
        with Held(server, tmp_path) as held:
            server.process.terminate()
            wait_until_refused(server)
            assert held.release().status == 200
        assert server.stop(None) == 0


def test_the_end_comes_while_a_worker_is_forked(tmp_path: Path) -> None:
    for _ in range(2):
        with Supervised(tmp_path, PRELOADED) as server:
            workers = server.workers()
            # Not the template: pids start again at the lowest, so the highest is not the latest.
            os.kill(server.pids().pop(), signal.SIGKILL)
            server.wait_for("starting another")
            assert server.stop() == 0
        assert not any(map(is_alive, workers))


def test_threads_at_import_are_refused(tmp_path: Path) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), name='poller', daemon=True).start()\n"
        "def app(environ, start_response): pass\n"
    )
    group = {
        "preload": True,
        "mounts": [{"path": "", "application": "threaded:app"}],
        "python_path": [str(tmp_path)],
    }
    server = Supervised.__new__(Supervised)
    with pytest.raises(AssertionError, match="starts threads when it is imported"):
        server.__init__(tmp_path, group)
    assert server.stop(None) == 1
    assert server.stderr.count("\n") == 1


# Tells the supervisor, before the worker does, that its pid is another's.
FORGER = """
import json, os, socket
def forge():
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            with socket.socket(fileno=os.dup(fd)) as each:
                if each.family == socket.AF_UNIX and each.type == socket.SOCK_SEQPACKET:
                    message = {"event": "started", "pid": int(os.environ["VICTIM"])}
                    each.send(json.dumps(message).encode(), socket.MSG_DONTWAIT)
        except OSError:
            pass
os.register_at_fork(after_in_child=forge)
from processes import application
"""


def test_an_application_cannot_have_the_supervisor_end_others(tmp_path: Path) -> None:
    (tmp_path / "forger.py").write_text(FORGER)
    group = {
        "mounts": [{"path": "", "application": "forger:application"}],
        "python_path": [str(tmp_path), str(APPS)],
        "preload": True,
    }
    with subprocess.Popen(["sleep", "60"]) as victim:
        try:
            with Supervised(tmp_path, group, environment={"VICTIM": str(victim.pid)}) as server:
                assert server.get("/pid").status == 200
            assert victim.poll() is None
        finally:
            victim.kill()
