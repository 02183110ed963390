"""Calibrations: what a probe makes of this machine, and files that are none."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from launch import run_main, start

from headway.errors import CommandError
from headway.programs.process_tree import tree
from headway_lab.simulated import calibrate, calibration, probe
from headway_lab.simulated.constants import NOT_MEASURED, ONE_CORE, Constants, Derivation
from headway_lab.simulated.costs import Costs
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.probe import Part, Samples

GIL_ENABLED = getattr(sys, "_is_gil_enabled", lambda: True)()
ECHO_NS = {
    "echo.server_ns": [9_000.0],
    "sockets.tcp_receive_ns": [1_500.0],
    "python.answer_echo_ns": [100.0],
    "drops.drop_and_take_ns": [60.0],
    "switch.rounds_ns": [7_000.0],
    "switch.alone_ns": [900.0],
}


@pytest.fixture(scope="module")
def probed() -> Constants:
    """A real probe, of one round."""
    samples = probe.measure(lambda _: None, rounds=1)
    return Derivation(samples, len(os.sched_getaffinity(0))).constants()


@pytest.fixture(scope="module")
def made_up() -> Constants:
    """The constants of a probe with made-up samples; those without samples are as shipped."""
    samples = Samples()
    samples.of.update(ECHO_NS)
    samples.of["short.wake_ups_ns"] = [float(ns) for ns in range(1_500, 2_500)]
    samples.of["interruptions.watched_ns"] = [1.5e9]
    samples.of["interruptions.stolen_ns"] = [40_000.0] * 9 + [9_000_000.0]
    return Derivation(samples, 2).constants()


@pytest.fixture(
    params=["made_up", pytest.param("probed", marks=pytest.mark.slow("measures the machine"))]
)
def derived(request: pytest.FixtureRequest) -> Constants:
    constants: Constants = request.getfixturevalue(request.param)
    return constants


@pytest.fixture
def kept(derived: Constants, tmp_path: Path) -> Path:
    path = tmp_path / "calibration.json"
    calibration.write(str(path), {"python": "3.13.0"}, *derived)
    return path


@pytest.mark.slow("measures the machine")
@pytest.mark.serial
def test_a_probe_measures_this_machine(probed: Constants) -> None:
    kept = probed.kept()
    if len(os.sched_getaffinity(0)) > 1 and GIL_ENABLED:
        # A quiet machine takes no core away, and a busy one does not tell what a request costs.
        unsure = {name for name, why in kept.items() if "the machine was too busy" in why}
        assert set(kept) <= {"stolen_ns", *unsure}, kept
    assert set(probed.machine) == {field.name for field in fields(Machine)}
    assert set(probed.costs) == {field.name for field in fields(Costs)}
    for name, constant in {**probed.machine, **probed.costs, **probed.also}.items():
        assert constant.how, name
        if constant.samples:
            assert len(constant.quantiles) == 21, name
            assert list(constant.quantiles) == sorted(constant.quantiles), name
            assert constant.median is not None
            assert constant.quantiles[0] <= constant.median <= constant.quantiles[-1], name


def test_a_simulation_takes_what_a_probe_wrote(kept: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    words = ["simulate", "countdown", "--values", "1", "--seconds", "0.01", "--policy", "stock"]
    words += ["--calibration", str(kept), "--json", str(out)]
    ended = run_main(*words)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(kept.read_text())
    simulated = json.loads(out.read_text())["metadata"]["simulated"]
    for part in ("machine", "costs"):
        assert simulated[part] == {name: each["value"] for name, each in told[part].items()}


def test_what_is_written_is_what_is_read(kept: Path, derived: Constants) -> None:
    found = calibration.read(str(kept))
    assert asdict(found.machine) == {name: each.value for name, each in derived.machine.items()}
    assert asdict(found.costs) == {name: each.value for name, each in derived.costs.items()}
    assert found.metadata == {"python": "3.13.0"}


def made(**parts: Any) -> str:
    return json.dumps({"schema": 1, "metadata": {}, "machine": {}, "costs": {}, **parts})


def of_machine(**values: Any) -> str:
    return made(machine={name: {"value": value} for name, value in values.items()})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[]", "it must be JSON: {...}"),
        ("{}", "schema is None, and must be 1"),
        (made(schema=2), "schema is 2, and must be 1"),
        ('{"schema": 1, "metadata": {}, "machine": {}}', "costs is missing"),
        (made(machine=3), "machine is 3, and must be"),
        (made(costs={"tea_ns": {"value": 1}}), "costs.tea_ns is no constant; there are "),
        (made(machine={"call_ns": 3}), "machine.call_ns must be {'value': ...}"),
        (
            of_machine(call_ns=-1),
            "machine.call_ns.value is -1, and must be nanoseconds from 0 to 1e+15, or a "
            "distribution of such",
        ),
        (of_machine(call_ns=True), "machine.call_ns.value is True, and"),
        (of_machine(call_ns={"uniform": [1]}), "machine.call_ns.value is {'uniform': [1]}, and"),
        (of_machine(call_ns={"quantiles": []}), "machine.call_ns.value is {'quantiles': []}, and"),
        (
            of_machine(call_ns={"quantiles": [1, "2"]}),
            "machine.call_ns.value is {'quantiles': [1, ",
        ),
        (of_machine(call_ns={"weibull": 3}), "machine.call_ns.value is {'weibull': 3}, and"),
        (of_machine(call_ns=float("nan")), "machine.call_ns.value is nan, and must be"),
        (
            of_machine(tick_ns={"uniform": [1, 2]}),
            "machine.tick_ns.value is {'uniform': [1, 2]}, and must be nanoseconds from 1 to 1e+15",
        ),
        (of_machine(tick_ns=0), "machine.tick_ns.value is 0, and must be nanoseconds from 1 to"),
        (
            of_machine(cores=65),
            "machine.cores.value is 65, and must be a whole number from 1 to 64",
        ),
        (of_machine(cores=1.5), "machine.cores.value is 1.5, and must be a whole number from"),
    ],
)
def test_what_is_no_calibration_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text)
    with pytest.raises(CommandError) as caught:
        calibration.read(str(path))
    assert caught.value.exit_code == 2
    line = str(caught.value)
    assert line.startswith(f"--calibration {str(path)!r} is none: {problem}")
    assert "\n" not in line


def test_a_distribution_of_each_kind_is_read(tmp_path: Path) -> None:
    path = tmp_path / "good.json"
    values = {
        "call_ns": {"exponential": 5},
        "switch_ns": {"uniform": [1, 2]},
        "wake_idle_ns": {"lognormal": [10, 0.5]},
        "check_ns": {"quantiles": [1, 2.5, 4]},
        "cores": 4,
    }
    path.write_text(of_machine(**values))
    assert calibration.read(str(path)).machine == Machine(**values)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--calibration", "/nonexistent"], "--calibration '/nonexistent': no such file"),
        (["--calibrate", "/nonexistent/c.json"], "--calibrate '/nonexistent/c.json' cannot be"),
        (["echo", "--calibrate", "c.json"], "--calibrate: found NAME echo beside it"),
        (["--calibrate", "c.json", "--cores", "2"], "--calibrate: found --cores beside it"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    ended = run_main("simulate", *words, cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1
    assert said in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_probe_ends_what_it_started_and_writes_nothing(tmp_path: Path) -> None:
    with start("simulate", "--calibrate", tmp_path / "c.json") as probing:
        assert probing.stderr is not None
        try:
            assert probing.stderr.readline().startswith("calibrate: round 1 of ")
            started = set(tree(probing.pid))
            probing.send_signal(signal.SIGINT)
            said = probing.stderr.read()
            assert probing.wait(30) == 130
        finally:
            probing.kill()
    assert said.splitlines()[-1] == "Interrupted: nothing is written."
    assert list(tmp_path.iterdir()) == []
    assert not [pid for pid in started - {probing.pid} if os.path.exists(f"/proc/{pid}")]


def test_a_program_that_fails_leaves_its_constants_as_shipped() -> None:
    samples = Samples()
    said: list[str] = []
    samples.add(Part("short", "wake-ups", probe.run("no_such_program")), said.append)
    (line,) = said
    assert line.startswith("wake-ups: no_such_program.py under stock 5 ms ended; ")
    constants = Derivation(samples, cores=2).constants()
    assert constants.machine["wake_idle_ns"].value == Machine().wake_idle_ns
    assert constants.kept()["wake_idle_ns"] == samples.failures["short"]
    assert constants.costs["kill_ns"].kept == NOT_MEASURED


def test_what_takes_two_cores_says_so_of_one() -> None:
    kept = Derivation(Samples(), cores=1).constants().kept()
    assert kept["call_ns"] == ONE_CORE


def test_a_wake_up_is_without_the_calls_that_it_is_seen_by() -> None:
    samples = Samples()
    samples.of["short.wake_ups_ns"] = [float(ns) for ns in range(1_500, 2_500)] + [4e6] * 100
    samples.of["short.alone_ns"] = [900.0, 1_000.0, 1_300.0]
    samples.of["short.calls_ns"] = [700.0, 800.0, 5_000.0]
    samples.of["short.call_alone_ns"] = [300.0]
    found = Derivation(samples, cores=2).constants().machine
    assert found["wake_idle_ns"].samples == 1_100
    assert found["wake_idle_ns"].median == pytest.approx(1_050, abs=1)
    assert found["wake_idle_ns"].quantiles[-1] == 3_999_000
    value = found["wake_idle_ns"].value
    assert isinstance(value, dict)
    # The 2 % at each end are a machine's mood, and what is far beyond somebody else's work.
    assert (value["quantiles"][0], value["quantiles"][-1]) == (520, 1_479)
    assert found["call_ns"].value == 500


def test_an_echo_costs_in_all_what_was_measured() -> None:
    samples = Samples()
    samples.of.update(ECHO_NS)
    found = Derivation(samples, cores=2).constants()
    costs, machine = found.costs, found.machine
    simulated_ns = (
        costs["tcp_receive_ns"].value
        + costs["tcp_send_ns"].value
        + 2 * costs["echo_server_ns"].value
        + 2 * (machine["take_ns"].value + machine["drop_ns"].value)
        + machine["switch_ns"].value
    )
    assert simulated_ns == pytest.approx(9_000)


def test_a_core_that_is_never_taken_away_is_so_for_as_long_as_it_was_watched() -> None:
    samples = Samples()
    samples.of["interruptions.watched_ns"] = [7e8, 7e8]
    machine = Derivation(samples, cores=2).constants().machine
    assert machine["stolen_every_ns"].value == 1.4e9
    assert machine["stolen_ns"].kept == "there are no samples"
    samples.of["interruptions.stolen_ns"] = [30_000, 40_000, 20_000, 900_000]
    machine = Derivation(samples, cores=2).constants().machine
    assert machine["stolen_every_ns"].value == 3.5e8
    value = machine["stolen_ns"].value
    assert isinstance(value, dict)
    assert value["quantiles"] == [20_000, 30_000, 40_000, 900_000]


def test_a_single_long_interruption_is_drawn_no_more_often_than_it_came() -> None:
    samples = Samples()
    samples.of["interruptions.watched_ns"] = [1e9]
    samples.of["interruptions.stolen_ns"] = [40_000.0] * 499 + [9_000_000.0]
    value = Derivation(samples, cores=2).constants().machine["stolen_ns"].value
    assert isinstance(value, dict)
    # The last of 25 shares has it: 20 samples.
    assert value["quantiles"][:-1] == [40_000] * 24
    assert value["quantiles"][-1] == (19 * 40_000 + 9_000_000) / 20


def test_what_makes_a_file_worth_less_is_said() -> None:
    samples = Samples()
    samples.of["timer.tick_ns"] = [4e6]
    constants = Derivation(samples, cores=1).constants()
    metadata = {"load": 3.0, "cpus": 2, "steal": 0.1, "others": 0.4, "seconds": 12.2}
    lines = calibrate.remarks(metadata, constants)
    assert lines[:3] == [
        "doubtful: the machine was busy before: load 3.0 on 2 processors",
        "doubtful: a hypervisor gave 10.0% of the processors' time to others",
        "doubtful: others used 40% of the processors meanwhile; calibrate a quiet machine",
    ]
    assert f"as shipped: call_ns: {ONE_CORE}" in lines
    assert lines[-1] == "2 constants measured in 12 s"
    quiet = {"load": 0.1, "cpus": 2, "steal": 0.0, "others": 0.01, "seconds": 12.2}
    assert calibrate.remarks(quiet, constants)[0].startswith("as shipped: ")


def test_others_are_those_whose_time_is_neither_ours_nor_nobodys() -> None:
    # user, nice, system, idle, waiting for I/O, two kinds of interrupts, steal
    passed = [40, 10, 30, 90, 10, 0, 0, 20]
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    assert calibrate.others_share(passed, used_s=60 * tick_s) == 0.1
    assert calibrate.others_share(passed, used_s=81 * tick_s) == 0
    assert calibrate.others_share([0] * 8, used_s=0) == 0
