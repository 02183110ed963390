"""The page of `headway tune --html`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from launch import run_main
from made_experiments import CONTROL, DEADLINE, PRIORITY, experiment

pytest.importorskip("matplotlib", reason="matplotlib is not installed here")

from headway.output.metadata import Circumstances
from headway.programs import interpreters
from headway.tune import page, text
from headway.tune.setting import Shape
from headway.tune.trials import Trials


def drawn(trials: Trials, file: Path) -> str:
    page.write(str(file), trials, Circumstances().to_dict(interpreters.this()))
    return file.read_text()


def test_a_page_has_the_advice_the_effects_and_every_block(tmp_path: Path) -> None:
    trials = experiment(1, {CONTROL: 0.1, PRIORITY: 0.02, DEADLINE: 0.1})
    trials.run()
    html = drawn(trials, tmp_path / "page.html")
    assert f"<p>{text.advice(trials)}</p>" in html
    assert "Measured by <code>headway tune</code>" in html
    for setting in (CONTROL, PRIORITY, DEADLINE):
        assert html.count(f'<th scope="row" class="name">{setting}</th>') == 2
        blocks = len(trials.blocks_of(setting))
        assert f'<th scope="row" class="name">{blocks}</th>' in html
    # Each block is a marker of its setting's line.
    markers = re.findall(r"<use ", html)
    assert len(markers) >= len(trials.blocks) - 1


def test_a_page_names_the_shapes_of_servers(tmp_path: Path) -> None:
    one, eight = (CONTROL._replace(shape=Shape(threads=count)) for count in (1, 8))
    trials = experiment(1, {one: 0.1, eight: 0.02})
    trials.run()
    html = drawn(trials, tmp_path / "page.html")
    assert '<th scope="row" class="name">interval at 5 ms (threads = 8)</th>' in html
    assert f"<p>{text.advice(trials)}</p>" in html


def test_a_page_without_a_block_is_one(tmp_path: Path) -> None:
    html = drawn(experiment(1, {CONTROL: 0.1, PRIORITY: 0.1}, rounds=0), tmp_path / "page.html")
    assert "Undecided after 0 s" in html
    assert html.rstrip().endswith("</html>")


@pytest.mark.slow("an experiment, and its page by matplotlib")
def test_an_experiment_writes_its_page(tmp_path: Path) -> None:
    options = ("--for", "1", "--policy", "priority", "--switch-interval", "5ms")
    command = [sys.executable, "-m", "headway", "tune", "run", *options]
    done = subprocess.run(
        [*command, "--html", "-", "-c", "import time; time.sleep(0.1)"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("<!doctype html>")
    assert "Ratios to interval at 5 ms" in done.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--html", "/nonexistent/x.html"), "--html '/nonexistent/x.html' cannot be written"),
        (("--json", "-", "--html", "-"), "--html '-': that is the file of --json"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_before_the_first_block(
    words: tuple[str, ...], complaint: str
) -> None:
    done = run_main("tune", "run", *words, "-c", "0")
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "round 1" not in done.stderr
