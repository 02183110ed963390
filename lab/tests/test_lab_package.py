"""The package: its version, its verbs, the names and the ends of its extension module."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib.metadata import requires, version
from importlib.resources import files
from pathlib import Path

import pytest
import test_options
from launch import environment, headway

from headway.options import SWITCH_INTERVAL
from headway.verbs import OF_LAB, VERBS, added_verbs
from headway_lab import _native
from headway_lab import verbs as lab

DAEMONS = Path(__file__).resolve().parent / "programs" / "daemons_in_lab.py"
# It neither releases the GIL nor runs Python code.
OTHERS = {"refcount_kinds"}


def functions() -> set[str]:
    return {name for name in dir(_native) if not name.startswith("_")}


def test_the_version_is_that_of_the_headway_that_it_needs() -> None:
    assert version("headway-lab") == version("headway")
    assert requires("headway-lab") == [f"headway=={version('headway')}"]


def test_headway_finds_the_verbs() -> None:
    assert tuple(verb.name for verb in lab.VERBS) == OF_LAB
    assert {*lab.VERBS} <= {*added_verbs()}
    result = headway("--help")
    assert result.returncode == 0
    for verb in (*VERBS, *lab.VERBS):
        assert f"\n    {verb.name} " in result.stdout
    assert "headway-lab" not in result.stdout


@pytest.mark.parametrize("verb", OF_LAB)
def test_every_verb_has_help(verb: str) -> None:
    result = headway(verb, "--help")
    assert result.returncode == 0
    assert result.stdout.startswith(f"usage: headway {verb}")


@pytest.mark.parametrize("verb", ["bench", "simulate"])
def test_switch_intervals_are_those_of_every_verb(verb: str) -> None:
    test_options.test_a_literal_means_the_same_to_every_verb(
        test_options.SWITCH_INTERVALS, SWITCH_INTERVAL, verb, "--switch-interval"
    )


@pytest.mark.free_threading
def test_the_stub_names_what_the_module_has() -> None:
    stub = ast.parse((files("headway_lab") / "_native.pyi").read_text())
    assert {node.name for node in stub.body if isinstance(node, ast.FunctionDef)} == functions()


@pytest.mark.free_threading
def test_a_daemon_thread_inside_any_function_does_not_abort_the_exit(tmp_path: Path) -> None:
    names = functions() - OTHERS
    result = subprocess.run(
        [sys.executable, str(DAEMONS), *names],
        env=environment(TMPDIR=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == dict.fromkeys(names, os.EX_OK), result.stderr
