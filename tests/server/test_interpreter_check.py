"""The Pythons of `python-home` are asked before a generation starts, while the server goes on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from served import TIMEOUT_S
from simulated import Machine, Simulation
from supervised import HERE, Supervised, is_alive

from headway import __version__
from headway.errors import CommandError
from headway.server import free_threading
from headway.server.supervisor.interpreter_check import TIMEOUT_S as ANSWER_TIMEOUT_S


def silent() -> Machine:
    """Its Pythons answer when the test has them do so."""
    machine = Machine()
    machine.answers = False
    return machine


SHOP, DOCS = {"name": "shop", "python_home": "/shop"}, {"name": "docs", "python_home": "/docs"}


def test_each_python_is_asked_once_and_all_at_the_same_time() -> None:
    groups = SHOP, DOCS, {"name": "blog", "python_home": "/docs"}, {"name": "wiki"}
    with Simulation(*groups, machine=silent()) as server:
        shop, docs = server.asked
        assert [each.arguments[0] for each in (shop, docs)] == [
            "/shop/bin/python",
            "/docs/bin/python",
        ]
        docs.answers()
        server.wait(ANSWER_TIMEOUT_S - 1)
        assert server.workers == []
        shop.answers()
        server.wait()
        assert server.states() == ["serving"] * 4
        assert server.stop() == 0


def test_a_build_that_can_run_without_a_gil_is_told_to() -> None:
    groups = SHOP | {"free_threading": True}, DOCS
    with Simulation(*groups, machine=silent()) as server:
        for each in server.asked:
            each.answers(f"1\n{__version__}\n")
        server.wait()
        flags = [each.arguments[each.arguments.index("-X") + 1] for each in server.workers]
    assert sorted(flags) == ["gil=0", "gil=1"]


PIP = "in Headway's source tree run `/shop/bin/python -m pip install .`"
PLACE = "process group 'shop': python-home '/shop': /shop/bin/python"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("", f"{PLACE} has no headway, and the same version must be there: {PIP}"),
        ("None\n", f"{PLACE} has no headway, and the same version must be there: {PIP}"),
        ("None\n0\n", f"{PLACE} has headway 0, and the same version must be there: {PIP}"),
        ("x" * 5000, f"{PLACE} has no headway, and the same version must be there: {PIP}"),
        (None, f"{PLACE} does not run (Command "),
    ],
    ids=["nothing", "no headway", "another version", "endless", "silent"],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_python_that_is_not_fit_is_refused(answer: str | None, said: str, is_first: bool) -> None:
    machine = silent()
    with Simulation(*([DOCS, SHOP] if is_first else [{}]), machine=machine) as server:
        if not is_first:
            server.reload(DOCS, SHOP)
        docs, shop = server.asked
        docs.answers()
        if answer is not None:
            shop.answers(answer)
        if is_first:
            with pytest.raises(CommandError) as raised:
                server.wait(ANSWER_TIMEOUT_S)
            assert str(raised.value).startswith(said)
            assert raised.value.exit_code == 2
        else:
            server.wait(ANSWER_TIMEOUT_S)
            assert server.log[-1].startswith(f"SIGHUP: {said}")
            assert server.log[-1].endswith("; generation 1 goes on serving")
            assert server.states() == ["serving"]
            assert server.stop() == 0
    assert not shop.is_alive
    assert shop.signals == ([signal.SIGKILL] if answer is None else [])


def test_a_server_that_asks_goes_on() -> None:
    with Simulation({"processes": 2}, machine=silent()) as server:
        before = server.workers
        server.reload(SHOP | {"name": "main"})
        (asked,) = server.asked
        before[0].is_ended_by(signal.SIGSEGV)
        before[1].sends("limit", reason="maximum_requests")
        server.wait()
        assert len([each for each in server.workers if each not in before]) == 2
        server.send(signal.SIGUSR1)
        server.wait(1)
        assert "SIGUSR1:" in server.log
        assert asked.is_alive
        asked.answers()
        server.wait()
        assert server.log[-1] == "generation 2 serves, 1 retires"
        assert server.stop() == 0


@pytest.mark.parametrize("is_first", [True, False])
def test_a_server_that_asks_stops_at_once(is_first: bool) -> None:
    with Simulation(*([SHOP] if is_first else [{}]), machine=silent()) as server:
        if not is_first:
            server.reload(SHOP)
        (asked,) = server.asked
        began = server.machine.now
        assert server.stop() == 0
        assert server.machine.now == began
        assert asked.signals == [signal.SIGKILL]
        assert not asked.is_alive


def test_a_second_sighup_reads_the_configuration_anew() -> None:
    with Simulation({}, machine=silent()) as server:
        server.reload(SHOP)
        (former,) = server.asked
        server.reload(DOCS)
        (asked,) = server.asked
        assert (former.signals, former.is_alive) == ([signal.SIGKILL], False)
        assert asked.arguments[0] == "/docs/bin/python"
        asked.answers()
        server.wait()
        assert [each.group.name for each in server.supervisor._children] == ["docs"]
    assert server.log[1:] == ["SIGHUP: starting generation 2", "generation 2 serves, 1 retires"]


def test_a_sighup_before_the_first_generation_has_begun_is_told() -> None:
    with Simulation(SHOP, machine=silent()) as server:
        server.send(signal.SIGHUP)
        assert server.log == ["SIGHUP: not before the first start is done"]
        server.asked[0].answers()
        server.wait()
        assert server.states() == ["serving"]


def test_a_configuration_that_needs_an_answer_is_read_when_it_is_there(tmp_path: Path) -> None:
    """As with `free-threading`, which is an error for a build that has a GIL always."""
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.touch()
    found: list[Any] = []
    with Simulation({}, machine=silent()) as server:

        def reread() -> Any:
            with free_threading.asking_nobody():
                found.append(free_threading.is_free_threaded(str(tmp_path)))
            return server.settings

        server.supervisor._reread = reread
        server.reload({"python_home": str(tmp_path)})
        (asked,) = server.asked
        assert found == []
        asked.answers(f"1\n{__version__}\n")
        server.wait()
        assert found == [True]
        assert server.asked == []
        assert server.log[-1] == "generation 2 serves, 1 retires"


def test_a_python_that_cannot_be_started_is_refused() -> None:
    with Simulation({}, machine=silent()) as server:
        server.machine.spawn_error = FileNotFoundError(2, "No such file", "/shop/bin/python")
        server.reload(SHOP)
        server.machine.spawn_error = None
        assert server.log[-1] == (
            f"SIGHUP: {PLACE} does not run ([Errno 2] No such file: '/shop/bin/python'); "
            "generation 1 goes on serving"
        )


# Real processes


def home(folder: Path, does: str) -> str:
    """A python-home whose Python is a shell script."""
    python = folder / "home/bin/python"
    python.parent.mkdir(parents=True, exist_ok=True)
    # In place of the former one, as an upgrade does it.
    new = folder / "new"
    new.write_text(f"#!/bin/sh\n{does}\n")
    new.chmod(0o755)
    new.rename(python)
    return str(folder / "home")


THIS = f'exec {sys.executable} "$@"'
HANGS = "echo $$ > {begun}.new; mv {begun}.new {begun}; exec sleep 600"
CHILD_HANGS = "sleep 600 & echo $! > {begun}.new; mv {begun}.new {begun}; wait"


@pytest.mark.parametrize("does", [HANGS, CHILD_HANGS], ids=["it", "its child"])
def test_sigterm_ends_a_server_whose_python_does_not_answer(tmp_path: Path, does: str) -> None:
    begun = tmp_path / "begun"
    with Supervised(tmp_path, {"python_home": home(tmp_path, THIS)}) as server:
        home(tmp_path, does.format(begun=begun))
        server.process.send_signal(signal.SIGHUP)
        server.wait_until(begun.exists)
        asked = int(begun.read_text())
        assert is_alive(asked)
        assert server.get("/pid").status == 200
        # It answers what it has, and not after a timeout of the probe.
        assert server.stop(kills=True) == 0
    wait_until_gone(asked)
    assert "does not run" not in server.stderr


@pytest.mark.parametrize("does", [HANGS, CHILD_HANGS], ids=["it", "its child"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_a_server_whose_first_python_does_not_answer(
    tmp_path: Path, does: str, number: signal.Signals
) -> None:
    begun = tmp_path / "begun"
    python_home = home(tmp_path, does.format(begun=begun))
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"groups": [{"python_home": python_home}]}))
    process = subprocess.Popen(
        [sys.executable, str(HERE / "supervise_file.py"), str(settings)],
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + TIMEOUT_S
    try:
        while not begun.exists():
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(number)
        _, said = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert (process.returncode, said) == (0 if number == signal.SIGTERM else -number, "")
    wait_until_gone(int(begun.read_text()))


def wait_until_gone(pid: int) -> None:
    end = time.monotonic() + TIMEOUT_S
    try:
        while is_alive(pid):
            assert time.monotonic() < end
            time.sleep(0.02)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
