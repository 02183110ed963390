"""Where `headway bench` puts results: files that are stdout, the same, or full; terminals that
cannot show everything; readers that go away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from launch import HEADWAY, environment, headway, run_main
from made_results import METADATA, Made, made_results

from headway import json_file
from headway.output.claim import Statement
from headway.output.results import Results
from headway_lab import results_file

SHORT = (
    *("--policy", "stock", "--values", "1", "--seconds", "0.02"),
    *("--switch-interval", "0.005", "--threads", "1"),
)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A file of results, times of microseconds among them."""
    path = tmp_path / "kept.json"
    results_file.write(str(path), METADATA, [(Made(), made_results())])
    found = json.loads(path.read_text())
    found["experiments"][0]["rows"][0]["parameters"]["wait"] = (
        "10 µs \N{CJK UNIFIED IDEOGRAPH-4E00}"
    )
    path.write_text(json.dumps(found))
    return path


def refused(*arguments: str | Path) -> str:
    result = run_main(*arguments)
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    line, end, rest = result.stderr.partition("\n")
    assert (end, rest) == ("\n", "")
    return line.partition(": ")[2]


def test_json_on_stdout_has_it_to_itself() -> None:
    result = run_main("bench", "countdown", *SHORT, "--json", "-")
    assert result.returncode == 0, result.stderr
    assert [each["name"] for each in json.loads(result.stdout)["experiments"]] == ["countdown"]
    assert "== countdown: " in result.stderr


def test_a_page_on_stdout_has_it_to_itself(kept: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed here")
    result = run_main("bench", "--from", kept, "--html", "-")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("<!doctype html>")
    assert result.stdout.rstrip().endswith("</html>")
    assert "== made: " in result.stderr


def test_two_things_are_not_written_to_one_file(kept: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed here")
    before = kept.read_bytes()
    link = tmp_path / "link"
    link.symlink_to(kept)
    both = ("--json", tmp_path / "out", "--html", tmp_path / "out")
    same = f"--html '{tmp_path / 'out'}': that is the file of --json"
    assert refused("bench", "countdown", *SHORT, *both) == same
    assert refused("bench", "countdown", *SHORT, "--json", "-", "--html", "-") == (
        "--html '-': that is the file of --json"
    )
    for source, page in ((kept, kept), (link, kept), (kept, link)):
        assert refused("bench", "--from", source, "--html", page) == (
            f"--html '{kept}': that is the file of --from"
        )
    assert kept.read_bytes() == before


def test_a_comparison_is_not_written_over_what_is_compared(kept: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_bytes(kept.read_bytes())
    said = refused("bench-compare", kept, other, "--json", other)
    assert said == f"--json '{other}': that is the file of B"
    assert other.read_bytes() == kept.read_bytes()


def test_a_full_disk_is_one_line_and_costs_no_other_results(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    with open("/dev/full", "wb") as full:
        result = headway(
            *("bench", "countdown", *SHORT, "--json", file),
            capture_output=False,
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == "headway bench: stdout: no space left on device"
    assert "Traceback" not in result.stderr
    assert [each["name"] for each in json.loads(file.read_text())["experiments"]] == []


def test_a_page_on_a_full_disk_is_one_line(kept: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed here")
    result = run_main("bench", "--from", kept, "--html", "/dev/full")
    assert result.returncode == 1
    assert "== made: " in result.stdout
    assert result.stderr == "headway bench: --html /dev/full: no space left on device\n"


def test_a_reader_that_goes_away_leaves_the_file(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    command = [*HEADWAY, "bench", "countdown", "hash", *SHORT, "--json", str(file)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("CPython ")
            process.stdout.close()
            assert process.wait(60) == 1
        finally:
            process.kill()
    (experiment,) = json.loads(file.read_text())["experiments"]
    assert {len(row["values"]) for row in experiment["rows"] if "left_out" not in row} == {1}


def test_a_terminal_without_the_characters_has_others(kept: Path) -> None:
    ascii_only = environment(PYTHONIOENCODING="ascii")
    for verb in (("bench", "--from", kept), ("bench-compare", kept, kept)):
        result = headway(*verb, env=ascii_only)
        assert result.returncode == 0, result.stderr
        assert result.stdout.isascii()
    assert "10 us \\u4e00" in headway("bench-compare", kept, kept, env=ascii_only).stdout


def test_what_was_measured_is_kept_before_the_next_experiment(tmp_path: Path) -> None:
    """An experiment that cannot be calibrated has rows that say so."""
    dying = tmp_path / "python"
    dying.write_text(
        '#!/bin/sh\ncase "$*" in *"hash_threads.py"*) echo "out of luck" >&2; exit 3;; esac\n'
        f'exec "{sys.executable}" "$@"\n'
    )
    dying.chmod(0o755)
    file = tmp_path / "results.json"
    options = (*SHORT, "--json", file, "--python", dying)
    result = run_main("bench", "hash", "countdown", *options)
    assert result.returncode == 1, result.stderr
    assert "not calibrated: hash_threads.py under stock 5 ms ended; " in result.stdout
    unknown, known = json.loads(file.read_text())["experiments"]
    assert {len(row["values"]) for row in unknown["rows"]} == {0}
    assert {len(row["values"]) for row in known["rows"] if "left_out" not in row} == {1}


def test_an_interruption_leaves_no_half_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: str) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "kept.json"
    path.write_text("what there was")
    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        json_file.write_json({"schema": 1}, str(path))
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "what there was"


def test_values_outlive_a_statement_that_cannot_be_computed(tmp_path: Path) -> None:
    class Wrong(Made):
        def statements(self, results: Results) -> list[Statement]:
            raise ZeroDivisionError

    path = tmp_path / "kept.json"
    results_file.write(str(path), METADATA, [(Wrong(), made_results())])
    (experiment,) = json.loads(path.read_text())["experiments"]
    assert experiment["statements"] == []
    assert experiment["rows"][0]["values"] == [100.0, 101.0, 102.0]
