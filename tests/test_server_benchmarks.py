"""Benchmarks of `headway serve`, cut short: they measure it, and name the peers they miss."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from launch import GIL_ENABLED, python

BENCH = Path(__file__).resolve().parent.parent / "bench"
SHORT = ("--rounds", "1", "--seconds", "1")

pytestmark = [
    pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL"),
    pytest.mark.timeout(300),
]


def run(name: str, *options: str | Path, json_file: Path) -> tuple[str, dict[str, Any]]:
    """What a benchmark prints, and its rows by the name of the experiment."""
    result = python(BENCH / f"{name}.py", *SHORT, *options, "--json", json_file, timeout=200)
    assert result.returncode == 0, result.stderr
    experiments = json.loads(json_file.read_text())["experiments"]
    return result.stdout, {each["name"]: each["rows"] for each in experiments}


def test_idle_connections_are_held_and_answered_again(tmp_path: Path) -> None:
    _, rows = run(
        "server_idle", "--peer", "--connections", "120", json_file=tmp_path / "results.json"
    )
    assert [row["median"] for row in rows["server_idle idle_connections"]] == [120]
    assert [row["median"] for row in rows["server_idle idle_answered_share"]] == [1]
    assert [row["median"] for row in rows["server_idle hello_answered_share"]] == [1]


def test_each_policy_serves_light_requests_beside_heavy_ones(tmp_path: Path) -> None:
    load = (
        "--peer",
        "--light",
        "20",
        "--heavy",
        "1",
        "--policy",
        "interval",
        "--policy",
        "priority",
    )
    said, rows = run("server_mixed", *load, json_file=tmp_path / "results.json")
    answered = rows["server_mixed light_answered_per_s"]
    assert [row["parameters"]["policy"] for row in answered] == ["interval", "priority"]
    assert all(row["median"] > 0 for row in answered)
    assert "headway serve's default policy is " in said


def test_a_peer_that_is_not_there_is_named_with_its_reason(tmp_path: Path) -> None:
    peers = tmp_path / "peers"
    (peers / "bin").mkdir(parents=True)
    (peers / "bin" / "python").symlink_to(sys.executable)
    (peers / "bjoern.failed").write_text("ev.h: no such file\n")
    options = ("--peer", "bjoern", "--connections", "1", "--peers-folder", peers)
    said, rows = run("server_idle", *options, json_file=tmp_path / "results.json")
    assert "without bjoern: ev.h: no such file\n" in said
    assert [row["parameters"] for row in rows["server_idle missing"]] == [
        {"missing": "bjoern", "reason": "ev.h: no such file"}
    ]


def test_without_peers_nothing_is_started(tmp_path: Path) -> None:
    result = python(BENCH / "server_idle.py", "--peers-folder", tmp_path)
    assert result.returncode == 2
    assert result.stderr == (
        f"bench server_idle: there are no peers in {tmp_path}: run bench/install_peers.py\n"
    )
