"""The limit of open files, which connections count towards."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest
from launch import run_main
from served import APPS, TIMEOUT_S

from headway.server.settings import HttpLimits, ProcessGroup

PROGRAM = """
import json, resource, sys
from headway.server import identity
from headway.server.settings import ProcessGroup

resource.setrlimit(resource.RLIMIT_NOFILE, json.loads(sys.argv[1]))
identity.take_on(ProcessGroup.from_json(sys.argv[2]))
print(json.dumps(resource.getrlimit(resource.RLIMIT_NOFILE)))
"""


@pytest.mark.parametrize(
    ("limits", "max_connections", "raised"),
    [
        ((100, 4096), 1000, 1256),
        ((100, 1000), 65_536, 1000),
        # For who must stay below what select() can have.
        ((1024, 4096), 768, 1024),
    ],
    ids=["as far as needed", "as far as it goes", "not at all"],
)
def test_a_process_of_a_group_raises_the_soft_limit(
    limits: tuple[int, int], max_connections: int, raised: int
) -> None:
    group = ProcessGroup(http=HttpLimits(max_connections=max_connections))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(limits), group.to_json()],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [raised, limits[1]]


@pytest.mark.parametrize("given", [True, False], ids=["given", "default"])
def test_connections_out_of_reach_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    # The hard limit itself cannot be raised again.
    few = {resource.RLIMIT_NOFILE: (512, 1024)}
    ask = resource.getrlimit
    monkeypatch.setattr(resource, "getrlimit", lambda kind: few.get(kind) or ask(kind))
    options = ["--max-connections", "1000"] if given else []
    done = run_main("serve", "processes:application", "--check", "--app-dir", APPS, *options)
    warning = (
        "headway serve: warning: --max-connections: max-connections of process group main is out "
        "of reach: the hard limit of open files (ulimit -Hn) leaves 768 connections\n"
    )
    assert (done.returncode, done.stderr) == (0, warning if given else "")
