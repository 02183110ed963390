"""Each setting of a process, given by flags, in TOML or in an Apache file, reaches each place that
runs the application's code: in the main interpreter, in sub-interpreters, in workers forked from a
template, and in those that SIGHUP starts."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from launch import GIL_ENABLED
from served import APPS, MODE, TIMEOUT_S, Served

pytestmark = pytest.mark.skipif(not GIL_ENABLED, reason="there is no GIL to schedule")

STACK_BYTES = 524_288
FLAGS = """
    --switch-interval 0.002 --policy deadline --stack-size 512K --cpu-priority 3
    --display-name told --umask 0027 --home {home} --env GREETING=hi --env PUT_FIRST={home}/first
    --environ KEY=value --lang C.UTF-8 --python-path {home}/first --memory-limit 2G
    --virtual-memory-limit 64G --cpu-time-limit 1000 --multiprocess
"""
TOML = """
[server]
switch-interval = 0.002
policy = "deadline"
[process-group.told]
app = "places:application"
app-dir = "{apps}"
bind = "127.0.0.1:0"
stack-size = "512K"
cpu-priority = 3
display-name = "told"
umask = "0027"
home = "{home}"
environment = {{ GREETING = "hi", PUT_FIRST = "{home}/first" }}
environ = {{ KEY = "value" }}
lang = "C.UTF-8"
python-path = ["{home}/first"]
memory-limit = "2G"
virtual-memory-limit = "64G"
cpu-time-limit = 1000
multiprocess = true
"""
# The other settings have no directive.
APACHE = """
Listen 127.0.0.1:0
WSGIDaemonProcess told switch-interval=0.002 stack-size=524288 cpu-priority=3 display-name=told \\
    umask=0027 home={home} lang=C.UTF-8 python-path={home}/first memory-limit=2147483648 \\
    virtual-memory-limit=68719476736 cpu-time-limit=1000 processes=1
WSGIProcessGroup told
WSGIApplicationGroup %{{GLOBAL}}
SetEnv KEY value
WSGIScriptAlias / {apps}/places.py
"""
APACHE_FLAGS = ("--policy=deadline", "--env=GREETING=hi", "--env=PUT_FIRST={home}/first")
WAYS = {
    "flags": (),
    "flags, preload": ("--preload", "--env=NO_THREADS_AT_IMPORT=1"),
    "flags, sub-interpreter": ("--application-group=shop",),
    "flags, own GIL": ("--application-group=shop", "--per-interpreter-gil"),
    "TOML": (),
    "Apache": APACHE_FLAGS,
}


def expected(home: Path, place: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "cpu-priority": 3,
        "display-name": "told",
        "umask": 0o027,
        "home": [str(home), str(home)],
        "lang": "C.UTF-8",
        "env": "hi",
        "python-path": True,
        "memory-limit": 2 << 30,
        "virtual-memory-limit": 64 << 30,
        "cpu-time-limit": 1000,
        "switch-interval": 0.002,
        "policy": "deadline",
    }
    if place != "import":
        found["stack-size"] = STACK_BYTES
    if place == "request":
        found |= {"environ": "value", "multiprocess": True}
    return found


@pytest.mark.parametrize("way", WAYS)
def test_a_setting_reaches_every_place(tmp_path: Path, way: str) -> None:
    if way == "flags, own GIL" and sys.version_info < (3, 12):
        pytest.skip("a GIL for each interpreter came with CPython 3.12")
    (tmp_path / "first").mkdir()
    about = {"home": tmp_path, "apps": APPS}
    more = [each.format(**about) for each in WAYS[way]]
    if way in ("TOML", "Apache"):
        name, text = ("serve.toml", TOML) if way == "TOML" else ("httpd.conf", APACHE)
        file = tmp_path / name
        file.write_text(text.format(**about))
        server = Served.__new__(Served)
        server._start(["-m", "headway", "serve", "--config", str(file), *more, *MODE])
    else:
        server = Served("places:application", *FLAGS.format(**about).split(), *more)
    with server:
        before = json.loads(server.get("/").body)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("generation 2 serves")
        after = before
        end = time.monotonic() + TIMEOUT_S
        # The former process may take one more connection.
        while after["pid"] == before["pid"]:
            assert time.monotonic() < end, server.stderr
            after = json.loads(server.get("/").body)
    for told in (before, after):
        told.pop("pid")
        for place, found in told.items():
            wanted = expected(tmp_path, place)
            if way == "Apache":
                wanted.pop("multiprocess", None)
            if "import" in place:
                # The meter of the main interpreter starts when its applications are loaded.
                wanted.pop("policy")
            assert {name: found.get(name) for name in wanted} == wanted, place
