"""The units at work as systemd would run them: the recorder under a user that has been made up, and
a program of www-data that reports to it."""

from __future__ import annotations

import os
import re
import shlex
from contextlib import ExitStack
from pathlib import Path
from urllib.error import URLError

import pytest
from containers import Network, Running, need_namespaces
from kubelet import answer
from layouts import DEPLOY, WWW_DATA, Container, Mount

pytestmark = pytest.mark.slow("starts a recorder in namespaces")

UNIT = (DEPLOY / "headway-telemetry.service").read_text()
# As DynamicUser= makes them.
DYNAMIC_USER = 61184
STRANGER = 10001
SITE = 8888
RUN, STATE = "/run/headway", "/var/lib/headway"


def test_the_group_of_the_server_may_report_and_no_other_user(tmp_path: Path) -> None:
    need_namespaces()
    (line,) = re.findall(r"^ExecStart=/srv/shop/.venv/bin/(.*)$", UNIT, re.MULTILINE)
    command = tuple(shlex.split(line))
    socket = command[command.index("--listen") + 1]
    sources = {}
    for setting, path in (("RuntimeDirectory", RUN), ("StateDirectory", STATE)):
        assert f"{setting}={Path(path).name}\n" in UNIT
        made = sources[path] = tmp_path / setting
        made.mkdir()
        made.chmod(0o755)
        os.chown(made, DYNAMIC_USER, DYNAMIC_USER)
    with ExitStack() as stack:
        network = Network.alone(stack)

        def start(name: str, uid: int, *command: str, groups: tuple[int, ...] = ()) -> Running:
            mounts = tuple(Mount(each, each) for each in sources)
            container = Container(name, "", command, {}, (), mounts, uid, uid, groups)
            started = Running(container, tmp_path, network, sources, host_name=name)
            stack.callback(started.kill)
            return started

        def shown() -> str:
            try:
                return network.call(lambda: answer(f"http://127.0.0.1:{SITE}/metrics"))[1].decode()
            except URLError:
                return ""

        recorder = start("recorder", DYNAMIC_USER, *command, groups=(WWW_DATA,))
        recorder.wait_until(lambda: bool(shown()))
        program = "import time; time.sleep(600)"
        start("server", WWW_DATA, "headway", "run", "--telemetry", socket, "-c", program)
        recorder.wait_until(lambda: 'headway_processes{host="server"' in shown())
        connect = (
            "import socket; "
            f"socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).connect({socket[5:]!r})"
        )
        refused = start("stranger", STRANGER, "sleep", "600").execute("python", "-c", connect)
        assert "PermissionError" in refused.stderr
        assert recorder.end(30) == 0, recorder.log
