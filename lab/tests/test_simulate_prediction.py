"""`headway simulate --from`: predictions from recordings that are made here, of a server and of a
program."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launch import Result, run_main
from made_stores import store, tick

from headway.json_file import to_json
from headway.programs.processes import Window
from headway.recorder.receive.datagrams import DatagramReceiver
from headway.recorder.receive.receiver import Recorder
from headway.recorder.store.store import Store
from headway_lab.commands.simulate_recording import prediction_dict
from headway_lab.measured.wsgi.load import CONNECTIONS
from headway_lab.measured.wsgi.server import Served, Shape, headway_command
from headway_lab.setting import STOCK, Setting, program, started
from headway_lab.simulated import recording
from headway_lab.simulated.costs import Costs
from headway_lab.simulated.fitting import Demand, Page
from headway_lab.simulated.intervals import MODEL_ERROR, Interval
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.prediction import Prediction, alternatives, fallen
from headway_lab.simulated.recording import Recording, Unfit
from headway_lab.simulated.service import Configuration, Service, Surroundings
from headway_lab.simulated.validation import Hidden, reproduce, simulate

GIL_ENABLED = getattr(sys, "_is_gil_enabled", lambda: True)()
needs_gil = pytest.mark.skipif(not GIL_ENABLED, reason="there is no GIL to wait for")
records_a_server = pytest.mark.slow("records a server under load")
SHAPE = Shape("headway", 1, 4, False, Setting("interval", 0.005))
SECONDS = 4.0
ATTEMPTS = 3
FIXED_LOOPS = 20_000
FIGURES = {"throughput", "response_s", "wait_s", "take_wait_p95_s"}


def record(folder: Path) -> str:
    path = str(folder / "it.sqlite")
    kept = Store(path)
    recorder = Recorder(DatagramReceiver(str(folder / "socket"), 0o600, None), kept)
    recorder.start()
    try:
        command = headway_command(SHAPE, folder / "socket")
        environment = {"FIXED_LOOPS": str(FIXED_LOOPS)}
        with started(command, str(SHAPE), speaks=False, environment=environment) as server:
            ask(Served(SHAPE, server, None).port)
    finally:
        recorder.stop()
    return path


def ask(port: int) -> None:
    with program(STOCK, "http_load", str(port), "/fixed", str(CONNECTIONS)) as clients:
        clients.answer()
        clients.measure(Window.after(0.2, SECONDS))
        assert clients.answer()["errors"] == 0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store of a server under load. Others of this machine may have made the load uneven."""
    if not GIL_ENABLED:
        pytest.skip("there is no GIL to wait for")
    for _ in range(ATTEMPTS):
        path = record(tmp_path_factory.mktemp("recorded"))
        try:
            recording.read(path)
        except Unfit as error:
            reason = str(error)
        else:
            return path
    pytest.skip(f"this machine allows for no steady load: {reason}")


def predict(*words: str) -> Result:
    return run_main("simulate", *words)


@records_a_server
def test_a_server_is_read_as_it_was_configured(served: str) -> None:
    found = recording.read(served)
    assert isinstance(found, Recording)
    assert (found.name, found.policy, found.switch_interval_s) == ("1x4", "interval", 0.005)


@records_a_server
def test_each_configuration_gets_an_interval_and_the_same_one_again(
    served: str, tmp_path: Path
) -> None:
    words = ["--from", served, "--values", "4", "--policy", "stock", "--policy", "deadline"]
    words += ["--switch-interval", "0.005", "--switch-interval", "0.001"]
    first = predict(*words, "--json", str(tmp_path / "it.json"))
    if first.returncode == 1:
        pytest.skip(f"disturbed: {first.stderr.splitlines()[-1]}")
    assert first.returncode == 0, first.stderr
    assert first.stdout == predict(*words).stdout
    assert "1x4, 5 ms, interval" in first.stdout.splitlines()[0]
    # Beside other programs the server may have been idle now and then: they "think".
    assert "Load: 10 connections; their clients " in first.stdout
    report = json.loads((tmp_path / "it.json").read_text())
    asked = [
        (each["configuration"]["policy"], each["configuration"]["switch_interval_s"])
        for each in report["predictions"]
    ]
    assert asked == [("interval", 0.001), ("deadline", 0.005), ("deadline", 0.001)]
    assert set(report["measured"]) == FIGURES
    for prediction in report["predictions"]:
        for name in FIGURES:
            interval = prediction[name]
            assert interval["low"] <= interval["middle"] <= interval["high"]
            assert interval["high"] >= interval["low"] * (1 + MODEL_ERROR) ** 2 * 0.999


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "fair"], "found 'fair'"),
        (["--values", "2"], "allowed with --from: 4 or more"),
        (["--threads", "3"], "--threads: --from has none"),
        (["echo"], "allowed: no experiment"),
    ],
)
def test_what_does_not_go_with_a_recording_is_bad_usage(
    tmp_path: Path, words: list[str], said: str
) -> None:
    recorded = store(tmp_path / "it.sqlite", (tick(second) for second in range(20)))
    ended = predict(*words, "--from", recorded)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1


PROGRAM = """
import threading, time
end = time.monotonic() + 2
def wait():
    while time.monotonic() < end:
        time.sleep(0.002)
        sum(range(1000))
def compute():
    while time.monotonic() < end:
        sum(range(1000))
threads = [threading.Thread(target=wait, name="waiting"), threading.Thread(target=compute,
    name="computing")]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


# The report of `headway run --json` on PROGRAM, on a quiet machine of two cores.
CONVOY = Path(__file__).with_name("convoy_report.json")


def of_convoy(folder: Path, **changes: Any) -> str:
    """CONVOY, with changes to the row of the thread that waits."""
    report = json.loads(CONVOY.read_text())
    [waiting] = [row for row in report["threads"] if row["name"] == "waiting"]
    waiting.update(changes)
    path = folder / "convoy.json"
    path.write_text(json.dumps(report))
    return str(path)


@needs_gil
@pytest.mark.slow("measures a program for seconds")
def test_a_program_that_runs_here_is_predicted(tmp_path: Path) -> None:
    path, target = tmp_path / "report.json", tmp_path / "it.json"
    words = [sys.executable, "-m", "headway", "run", "--json", str(path), "-c", PROGRAM]
    subprocess.run(words, check=True, capture_output=True)
    ended = predict("--from", str(path), "--values", "4", "--json", str(target))
    if ended.returncode == 1:
        pytest.skip(f"disturbed: {ended.stderr.splitlines()[-1]}")
    assert ended.returncode == 0, ended.stderr
    assert {"waiting", "computing"} <= set(json.loads(target.read_text())["measured"])


def test_a_programs_threads_are_predicted_by_name(tmp_path: Path) -> None:
    target = tmp_path / "it.json"
    ended = predict(
        *("--from", str(CONVOY), "--policy", "priority", "--values", "4", "--json", str(target))
    )
    assert ended.returncode == 0, ended.stderr
    report = json.loads(target.read_text())
    assert set(report["measured"]) == {"waiting", "computing", "MainThread"}
    [prediction] = report["predictions"]
    waiting = prediction["threads"]["waiting"]
    # The convoy is what `priority` ends.
    assert waiting["wait_s"]["middle"] < report["measured"]["waiting"]["wait_s"] / 2
    assert waiting["turns"]["middle"] > report["measured"]["waiting"]["turns"]
    assert prediction["threads"]["computing"]["held"]["high"] <= 1


def test_what_is_asked_for_twice_is_predicted_once(tmp_path: Path) -> None:
    target = tmp_path / "it.json"
    words = ["--policy", "stock", "--policy", "interval", "--policy", "priority"]
    words += ["--switch-interval", "0.005", "--switch-interval", "0.005"]
    ended = predict("--from", str(CONVOY), *words, "--values", "4", "--json", str(target))
    assert ended.returncode == 0, ended.stderr
    [prediction] = json.loads(target.read_text())["predictions"]
    assert prediction["configuration"]["policy"] == "priority"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        # It held the GIL as briefly as in the simulation, and twenty times as often.
        ({"voluntary_drops": 5_520}, "the thread waiting has "),
        ({"voluntary_drops": 0}, "the thread waiting took the GIL, and no holds of it were"),
    ],
)
def test_a_program_that_does_not_come_out_supports_no_prediction(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    ended = predict("--from", of_convoy(tmp_path, **changes), "--values", "4")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"cannot support a prediction: {said}" in ended.stderr.replace(
        "simulated as recorded ", ""
    )


def test_a_program_has_no_shape() -> None:
    ended = predict("--from", str(CONVOY), "--shape", "2x5")
    assert ended.returncode == 2
    assert "--shape: the recording is of a program" in ended.stderr


@needs_gil
def test_a_program_that_waited_for_nothing_supports_no_prediction(tmp_path: Path) -> None:
    path = str(tmp_path / "report.json")
    words = [sys.executable, "-m", "headway", "run", "--json", path, "-c", "pass"]
    subprocess.run(words, check=True, capture_output=True)
    ended = predict("--from", path)
    assert ended.returncode == 1
    assert "waited 0 times for the GIL; 100 are needed" in ended.stderr


@pytest.mark.free_threading
@pytest.mark.skipif(GIL_ENABLED, reason="this build has a GIL")
def test_a_program_without_a_gil_supports_no_prediction(tmp_path: Path) -> None:
    path = str(tmp_path / "report.json")
    words = [sys.executable, "-m", "headway", "run", "--json", path, "-c", "pass"]
    subprocess.run(words, check=True, capture_output=True)
    ended = predict("--from", path)
    assert ended.returncode == 1
    assert "free-threaded build, whose threads wait for no GIL" in ended.stderr


RECORDED = Configuration(2, 5, "interval", 0.005, 2)


def service(ends_by_clock: bool, demand: Demand, others: float = 0.0) -> Service:
    page = Page((0.98, 0.02), (0.0031,) * 3, (0.003,) * 3, 0.001, 0.001)
    return Service(
        page, ends_by_clock, RECORDED, Surroundings(Machine(cores=2), Costs(), demand, others)
    )


def test_a_short_interval_brings_more_where_the_clock_ends_the_work() -> None:
    demand = Demand((5, 5), 0.0, False)
    gains = []
    for ends_by_clock in (True, False):
        before = service(ends_by_clock, demand)
        after = Service(
            before.page,
            ends_by_clock,
            RECORDED._replace(switch_interval_s=0.0001),
            before.surroundings,
        )
        found = [simulate(each, 1, 1.0).throughput for each in (before, after)]
        gains.append(found[1] / found[0])
    by_clock, fixed = gains
    assert by_clock > 1.3
    assert 0.85 < fixed < 1.15


def test_other_programs_are_found_by_how_they_stretch_holds() -> None:
    demand = Demand((5, 5), 0.0, False)
    recorded = simulate(service(False, demand, others=0.5), 7, 4.0)
    hidden = reproduce(service(False, demand), recorded, 1)
    assert hidden.others > 0.1
    again = simulate(hidden.put_into(service(False, demand)), 2, 4.0)
    assert again.stretch == pytest.approx(recorded.stretch, rel=0.1)
    assert again.throughput == pytest.approx(recorded.throughput, rel=0.1)


def test_what_is_hidden_is_put_into_a_service() -> None:
    found = Hidden(0.3, 0.5).put_into(service(True, Demand((1, 1), 0.0, False)))
    assert (found.page.away_s, found.surroundings.others) == (0.0005, 0.3)


def test_connections_fall_to_processes_anew() -> None:
    demand = Demand((5, 5), 0.01, False)
    splits = {fallen(demand, 2, seed).clients for seed in range(20)}
    assert len(splits) > 2
    assert {sum(split) for split in splits} == {10}
    assert len(fallen(demand, 4, 1).clients) == 4


def test_an_open_loop_keeps_its_rate_in_another_shape() -> None:
    demand = Demand((30, 30), 0.3, True)
    other = fallen(demand, 7, 1)
    assert other.total / other.think_s == pytest.approx(demand.total / demand.think_s)


def test_what_is_asked_for_is_combined_and_the_recorded_left_out() -> None:
    found = alternatives(RECORDED, ["interval", "deadline"], [0.005, 0.002], [], None)
    assert found == [
        RECORDED._replace(switch_interval_s=0.002),
        RECORDED._replace(policy="deadline"),
        RECORDED._replace(policy="deadline", switch_interval_s=0.002),
    ]
    assert alternatives(RECORDED, [], [], [(4, 2)], 8) == [
        Configuration(4, 2, "interval", 0.005, 8)
    ]
    assert alternatives(RECORDED, [], [], [], None) == []


def test_a_response_that_never_comes_is_null() -> None:
    intervals = {"response_s": Interval(0.1, math.inf, math.inf)}
    told = json.loads(to_json(prediction_dict(Prediction(RECORDED, intervals))))
    assert told["response_s"] == {"low": 0.1, "middle": None, "high": None}
