"""Each setting of a program, given in each way that there is, reaches each place that the documents
promise: threads, sub-interpreters, forks, later images, and with `follow` Python children."""

from __future__ import annotations

import json
import os
import platform
import socket
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from launch import GIL_ENABLED, PROGRAMS, TIMEOUT_S, environment, headway, python

from headway import _native

pytestmark = pytest.mark.skipif(not GIL_ENABLED, reason="there is no GIL to schedule")

PLACES = PROGRAMS / "settings" / "places.py"
OF_ITSELF = (
    "main thread",
    "thread",
    "sub-interpreter",
    "fork",
    "multiprocessing's fork",
    "next image",
)
OF_CHILDREN = (
    "child",
    "child of a child's fork",
    "next image of a child",
    "multiprocessing's forkserver",
    "multiprocessing's spawn",
)
RUN = ("--policy=deadline", "--switch-interval=500us", "--no-kernel-hints")
TELEMETRY = ("--telemetry=unix:sock", "--telemetry-interval=700ms", "--telemetry-group=shop")
WORDS = (
    "deadline,switch-interval=500us,no-kernel-hints,"
    "telemetry=unix:sock,telemetry-interval=700ms,telemetry-group=shop"
)
TUNE = ("--policy=deadline", "--switch-interval=500us", "--for=15")


class Way(NamedTuple):
    """`variable` is the value of HEADWAY; without one, `options` are those of `headway`."""

    options: tuple[str, ...] = ()
    variable: str = ""
    follows: bool = True


WAYS = {
    "run": Way(("run", *RUN, *TELEMETRY), follows=False),
    "run --follow": Way(("run", "--follow", *RUN, *TELEMETRY)),
    "run --follow --json": Way(("run", "--follow", "--json=out.json", *RUN, *TELEMETRY)),
    "HEADWAY": Way(variable=WORDS, follows=False),
    "HEADWAY with follow": Way(variable=f"{WORDS},follow"),
    "HEADWAY with report,follow": Way(variable=f"{WORDS},follow,report"),
    "HEADWAY with report=FILE,follow": Way(variable=f"{WORDS},follow,report=out.json"),
    "HEADWAY with report=%p,follow": Way(variable=f"{WORDS},follow,report=%p.json"),
    "tune run": Way(("tune", "run", *TUNE)),
}
# The others differ in where the report goes, or run one of these.
FIRST = ("run --follow", "HEADWAY", "HEADWAY with report,follow")
SETTINGS: dict[str, Any] = {
    "policy": "deadline",
    "switch_interval_s": 0.0005,
    "process_group": "shop",
    "telemetry_interval": 0.7,
}
OF_TELEMETRY = ("process_group", "telemetry_interval")


@cache
def told(way: str) -> dict[str, dict[str, Any]]:
    """Runs the program, and returns what each place told and its process reported."""
    with tempfile.TemporaryDirectory() as folder:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as recorder:
            recorder.bind(os.path.join(folder, "sock"))
            reported: dict[int, dict[str, Any]] = {}
            receiver = threading.Thread(target=receive, args=(recorder, reported))
            receiver.start()
            try:
                start(WAYS[way], folder)
            finally:
                recorder.shutdown(socket.SHUT_RDWR)
                receiver.join()
        lines = [json.loads(line) for line in Path(folder, "places").read_text().splitlines()]
    # `tune` runs the program under CPython's own setting as well.
    runs = [each["run"] for each in lines if each["policy"] == "deadline"]
    return {
        each["place"]: reported.get(each["pid"], {}) | each
        for each in lines
        if each["run"] == runs[-1]
    }


def start(way: Way, folder: str) -> None:
    if way.variable:
        result = python(
            PLACES, "places", cwd=folder, env=environment(HEADWAY=way.variable, TMPDIR=folder)
        )
    else:
        result = headway(*way.options, PLACES, "places", cwd=folder, env=environment(TMPDIR=folder))
    assert result.returncode == 0, result.stderr


def receive(recorder: socket.socket, reported: dict[int, dict[str, Any]]) -> None:
    """Puts the fields of each process into `reported`, until the socket is shut down."""
    while datagram := recorder.recv(1 << 16):
        _, pid, *_, fields = _native.telemetry_parse(datagram)
        reported.setdefault(pid, {}).update(fields)


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(
            way, marks=() if way in FIRST else pytest.mark.slow("another way covers its places")
        )
        for way in WAYS
    ],
)
def test_a_setting_reaches_every_place(way: str) -> None:
    places = (*OF_ITSELF, *(OF_CHILDREN if WAYS[way].follows else ()))
    for setting, value in SETTINGS.items():
        if way == "tune run" and setting in OF_TELEMETRY:
            continue
        # These forks end by `os._exit` before their first tick, which has the interval.
        reached = [
            place for place in places if setting != "telemetry_interval" or "fork" not in place
        ]
        found = {place: told(way)[place].get(setting) for place in reached}
        assert found == dict.fromkeys(reached, value), setting


@pytest.mark.parametrize("way", [way for way in WAYS if not WAYS[way].follows])
def test_children_do_not_follow_unless_they_are_to(way: str) -> None:
    found = [told(way)[place] for place in OF_CHILDREN]
    assert [(each["policy"], each["switch_interval_s"]) for each in found] == [(None, 0.005)] * 5
    assert all("process_group" not in each for each in found)


@pytest.mark.slow("dozens of children")
def test_more_children_than_a_ledger_has_room_for_have_the_setting() -> None:
    shows = (
        "import sys; from headway import gil; print(gil.is_installed(), sys.getswitchinterval())"
    )
    code = (
        "import subprocess, sys\n"
        f"for _ in range(66): subprocess.run([sys.executable, '-c', {shows!r}], check=True)"
    )
    value = "deadline,switch-interval=500us,report,follow"
    result = python("-c", code, env=environment(HEADWAY=value), timeout=3 * TIMEOUT_S)
    assert result.stdout == "True 0.0005\n" * 66


def test_children_that_outlive_the_program_have_the_setting(tmp_path: Path) -> None:
    shows = (
        "import sys; from headway import gil;"
        "print(gil.snapshot().to_dict()['policy'], sys.getswitchinterval())"
    )
    daemon = (
        "import subprocess, sys; sys.stdin.read();"
        f"subprocess.run([sys.executable, '-c', {shows!r}])"
    )
    code = (
        "import os, subprocess, sys; read, write = os.pipe();"
        f"subprocess.Popen([sys.executable, '-c', {daemon!r}], stdin=read, stderr=2)"
    )
    result = headway(
        "run", "--follow", "--policy=deadline", "--switch-interval=500us", "-c", code, cwd=tmp_path
    )
    assert result.stdout == "deadline 0.0005\n"


@pytest.mark.serial
@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64"), reason="the number of the call is unknown"
)
@pytest.mark.parametrize("options", [(), ("--json=out.json",)])
@pytest.mark.parametrize("hints", [True, False])
def test_kernel_hints_reach_children(tmp_path: Path, hints: bool, options: tuple[str, ...]) -> None:
    own = () if hints else ("--no-kernel-hints",)
    run = ("run", "--follow", "--policy=priority", *own, *options)
    result = headway(*run, PLACES, "places", "hints", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    found = [json.loads(line) for line in (tmp_path / "places").read_text().splitlines()]
    if not all(each["slice_ns"] for each in found):
        pytest.skip("this kernel's scheduler has no slices to set (Linux before 6.12)")
    assert [each["slice_ns"] == 100_000 for each in found] == [hints, hints]
