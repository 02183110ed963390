"""Results that were written are read back as they were, and shown as they were; what is no file of
results is refused in one line that names the place."""

from __future__ import annotations

import copy
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from launch import execute, headway, run_main

from headway.errors import CommandError
from headway.output.claim import Statement
from headway.output.metadata import STOCK
from headway.output.results import Parameters, Result, Results
from headway.output.table import Chart, Series, Table
from headway.programs import interpreters
from headway_lab import replay, results_file
from headway_lab.arrangement import pivot
from headway_lab.experiment import Choice, Experiment, Measured, Row
from headway_lab.histogram import histogram_of
from headway_lab.measured import EXPERIMENTS
from headway_lab.replay import Listed

BENCH = Path(__file__).resolve().parents[2] / "bench"


class Made(Experiment):
    """A table, a chart and a statement of rows by policy and threads."""

    name = "made"
    unit = "s"
    summary = "made up"
    shows = "Nothing."
    higher_is_better = False

    def rows(self, choice: Choice) -> list[Row]:
        raise NotImplementedError

    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured:
        raise NotImplementedError

    def published(self, parameters: Parameters) -> float | None:
        return None

    def tables(self, results: Results) -> list[Table]:
        return [pivot(results, "made", "policy", "threads")]

    def charts(self, results: Results) -> list[Chart]:
        histograms = [histogram for row in results if (histogram := histogram_of(row))]
        points = [(x, y, y, y) for each in histograms for x, y in each["buckets"]]
        return [Chart("made", "s", "count", [Series("all", points)])]

    def statements(self, results: Results) -> list[Statement]:
        one = results.find(policy="stock", threads=1)
        two = results.find(policy="stock", threads=2)
        assert one
        assert two
        return [Statement("Two take longer", two.median() / one.median(), 2.0, why="made up")]


MADE = Made()


def made_row(policy: str, threads: int, values: list[float]) -> Result:
    row = Result({"policy": policy, "switch_interval": 0.005, "threads": threads})
    row.values = values
    return row


def made_results() -> Results:
    one = made_row("stock", 1, [1.0, 1.1, 1.05])
    one.figures = {"p99_s": [0.2, math.nan, 0.3]}
    one.samples_s = [0.001, 0.002, 0.0300001]
    two = made_row("stock", 2, [1.5])
    two.published = 1.4
    two.failures = ["it died", "and once more"]
    three = made_row("deadline", 1, [])
    three.failures = ["it died"]
    four = Result({"policy": "deadline", "switch_interval": 0.005, "threads": 2}, None, "left out")
    return Results("made", "s", [one, two, three, four], {"decrements": 12345})


def write(path: Path, results: Results, **metadata: Any) -> Path:
    results_file.write(str(path), metadata, [(MADE, results)])
    return path


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    written = made_results()
    kept = results_file.read(str(write(tmp_path / "a.json", written, python="3.13.0")))
    assert kept.metadata == {"python": "3.13.0"}
    (experiment,) = kept.experiments
    assert experiment.higher_is_better is False
    read = experiment.results
    assert (read.name, read.unit, read.calibration) == ("made", "s", {"decrements": 12345})
    for one, other in zip(written, read, strict=True):
        assert other.parameters == one.parameters
        assert other.values == one.values
        assert other.published == one.published
        assert other.failures == one.failures
        assert other.reason == one.reason
        assert other.unstable == one.unstable
        assert other.interval() == one.interval()
        assert other.interval("p99_s") == one.interval("p99_s")
        assert histogram_of(other) == histogram_of(one)
    assert MADE.tables(read) == MADE.tables(written)
    assert MADE.charts(read) == MADE.charts(written)
    statements = MADE.statements(written)
    assert statements
    assert MADE.statements(read) == statements
    assert experiment.statements == [each.checked() for each in statements]
    # Once more, from what was read.
    again = results_file.read(str(write(tmp_path / "b.json", read, python="3.13.0")))
    assert again.metadata == kept.metadata
    assert (tmp_path / "b.json").read_bytes() == (tmp_path / "a.json").read_bytes()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_shows_the_same_from_a_file(tmp_path: Path, name: str) -> None:
    """Its rows with made-up values: all that tables, charts and statements need is in the file."""
    experiment = EXPERIMENTS[name]
    rows = experiment.rows(Choice(interpreters.this(), policies=(STOCK, "priority"), quick=True))
    results = Results(name, experiment.unit, [], {})
    for place, each in enumerate(rows):
        row = Result(each.parameters, experiment.published(each.parameters), each.left_out)
        if not each.left_out:
            row.values = [1.0 + place, 1.25 + place, 1.125 + place]
        results.rows.append(row)
    path = tmp_path / "a.json"
    results_file.write(str(path), {}, [(experiment, results)])
    read = results_file.read(str(path)).experiments[0].results
    for make in (experiment.tables, experiment.charts, experiment.statements):
        # By what they look like: NaN is not equal to itself.
        assert repr(make(read)) == repr(make(results))


def test_a_row_says_how_sure_its_interval_is(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", made_results())
    rows = json.loads(path.read_text())["experiments"][0]["rows"]
    assert [row["confidence"] for row in rows] == [0.75, 0, None, None]
    assert rows[0]["figures"]["p99_s"] == {
        "median": 0.25,
        "low": 0.2,
        "high": 0.3,
        "confidence": 0.5,
        "values": [0.2, None, 0.3],
    }


def test_a_file_that_is_shown_shows_what_was_measured(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    measured = run_main(
        *("bench", "countdown", "--policy", "stock", "--values", "2", "--seconds", "0.02"),
        *("--switch-interval", "0.005", "--threads", "1", "--threads", "2", "--json", file),
    )
    assert measured.returncode == 0, measured.stderr
    shown = run_main("bench", "--from", file)
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr == ""
    # The first line tells in addition when and where.
    assert shown.stdout.splitlines()[1:] == measured.stdout.splitlines()[1:]
    assert shown.stdout.startswith(measured.stdout.splitlines()[0] + "; measured at 20")
    by_name = run_main("bench", "countdown", "--from", file)
    assert by_name.stdout == shown.stdout
    with file.open() as stream:
        assert headway("bench", "--from", "-", stdin=stream).stdout == shown.stdout


def refused(*options: str | Path, **more: Any) -> str:
    result = run_main("bench", *options, **more)
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    line, end, rest = result.stderr.partition("\n")
    assert (end, rest) == ("\n", "")
    return line.removeprefix("headway bench: ")


@pytest.mark.parametrize(
    "options",
    [
        ("--quick",),
        ("--policy", "stock"),
        ("--switch-interval", "0.005"),
        ("--threads", "2"),
        ("--workload", "pi"),
        ("--mode", "threads"),
        ("--shape", "1x1"),
        ("--server", "mod_wsgi"),
        ("--values", "5"),
        ("--seconds", "1"),
        ("--python", sys.executable),
        ("--free-threaded", sys.executable),
        ("--json", "other.json"),
    ],
)
def test_options_that_measure_are_refused_beside_from(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    file = write(tmp_path / "a.json", made_results())
    assert refused("--from", file, *options) == (
        f"{options[0]}: --from measures nothing; beside it there are NAME and --html"
    )


def test_an_experiment_that_the_file_lacks_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", made_results())
    assert refused("mode", "--from", file) == (f"NAME 'mode': there are in '{file}': made")


def test_rows_of_another_version_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPERIMENTS, "made", MADE)
    good = write(tmp_path / "a.json", made_results())
    ((experiment, _),) = replay.read(str(good))[1]
    assert experiment is MADE
    found = json.loads(good.read_text())
    found["experiments"][0]["rows"][0]["parameters"] = {"policy": "stock", "colour": "red"}
    file = tmp_path / "b.json"
    file.write_text(json.dumps(found))
    with pytest.raises(CommandError) as caught:
        replay.read(str(file))
    assert caught.value.exit_code == 2
    assert str(caught.value) == (
        f"--from '{file}': the rows of made are not those of this version's made: "
        "KeyError 'threads'"
    )


def test_files_of_the_developer_benchmarks_are_shown_row_by_row(tmp_path: Path) -> None:
    file = tmp_path / "developer.json"
    made = execute(
        [
            sys.executable,
            "-c",
            "import sys, math\n"
            "from typing import NamedTuple\n"
            "from figures import Figures, target\n"
            "from sitting import Circumstances, write_json\n"
            "class Cell(NamedTuple):\n    policy: str\n"
            "figures = Figures()\n"
            "for value in (10.0, 11.0, math.nan):\n"
            "    figures.record(Cell('stock'), pages_per_s=value, wait_s=value / 100)\n"
            "targets = [target('enough', 10.5, 20.0)]\n"
            "experiments = figures.experiments('made', Cell._asdict, targets)\n"
            "write_json(sys.argv[1], Circumstances(), experiments)\n",
            str(file),
        ],
        cwd=BENCH,
    )
    assert made.returncode == 0, made.stderr
    pages, waits = results_file.read(str(file)).experiments
    assert (pages.results.name, pages.results.unit) == ("made pages_per_s", "pages/s")
    assert (pages.higher_is_better, waits.higher_is_better) == (True, False)
    assert pages.results.rows[0].values == [10.0, 11.0]
    shown = run_main("bench", "--from", file)
    assert shown.returncode == 0, shown.stderr
    assert "== made pages_per_s: " in shown.stdout
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["policy", "pages/s"] in lines
    assert any(line[:1] == ["stock"] and line[1].startswith("10.5") for line in lines)
    assert ["enough", "10.5", "at", "least", "20", "differs"] in lines
    assert Listed(pages).higher_is_better is True


VALID: dict[str, Any] = {
    "schema": 1,
    "metadata": {"python": "3.13.0"},
    "experiments": [
        {
            "name": "made",
            "unit": "requests/s",
            "rows": [
                {
                    "parameters": {"policy": "stock", "threads": 1},
                    "values": [1.0, 2],
                    "figures": {"p99_s": {"values": [0.1, None]}},
                    "histogram": {
                        "count": 1,
                        "sum": 0.1,
                        "min": 0.1,
                        "max": 0.1,
                        "p50": 0.1,
                        "p90": 0.1,
                        "p95": 0.1,
                        "p99": 0.1,
                        "p999": 0.1,
                        "buckets": [[0.1, 1]],
                    },
                    "failures": [],
                },
                {"parameters": {"policy": "stock", "threads": 2}, "values": []},
            ],
            "statements": [{"text": "It is so", "value": 1.0, "agrees": True}],
        }
    ],
}
ROW = ("experiments", 0, "rows", 0)


def changed(path: tuple[Any, ...], value: Any) -> str:
    """The valid file with something else in one place."""
    result = copy.deepcopy(VALID)
    place: Any = result
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(result)


def test_the_file_that_the_next_tests_spoil_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps(VALID))
    (experiment,) = results_file.read(str(file)).experiments
    assert [row.values for row in experiment.results] == [[1.0, 2], []]
    assert run_main("bench", "--from", file).returncode == 0


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("schema",), 2, "schema is 2, and must be 1"),
        (("schema",), "1", "schema is '1', and must be 1"),
        (("metadata",), [], "metadata is [], and must be an object"),
        (("metadata", "load"), "high", "metadata.load is 'high', and must be a number or null"),
        (("metadata", "python"), 3.13, "metadata.python is 3.13, and must be a string"),
        (("experiments",), {}, "experiments is {}, and must be a list"),
        (("experiments", 0), "made", "experiments[0] is 'made', and must be an object"),
        (("experiments", 0, "name"), 1, "experiments[0].name is 1, and must be a string"),
        (
            ("experiments", 0, "name"),
            "\x1b[2J",
            "experiments[0].name is '\\x1b[2J', and must be printable",
        ),
        (
            (*ROW, "parameters", "policy"),
            "two\nlines",
            "experiments[0].rows[0].parameters.policy is 'two\\nlines', and must be printable",
        ),
        (("experiments", 0, "rows"), None, "experiments[0].rows is None, and must be a list"),
        (
            ("experiments", 0, "higher_is_better"),
            "yes",
            "experiments[0].higher_is_better is 'yes', and must be a boolean or null",
        ),
        (
            ("experiments", 0, "calibration"),
            5,
            "experiments[0].calibration is 5, and must be an object",
        ),
        (
            ("experiments", 0, "statements", 0),
            {"text": "So", "value": "1", "agrees": True},
            "experiments[0].statements[0].value is '1', and must be a number or null",
        ),
        (
            ("experiments", 0, "statements", 0, "agrees"),
            "maybe",
            "experiments[0].statements[0].agrees is 'maybe', and must be a boolean",
        ),
        (ROW, [], "experiments[0].rows[0] is [], and must be an object"),
        ((*ROW, "values"), "1", "experiments[0].rows[0].values is '1', and must be a list"),
        (
            (*ROW, "values", 1),
            "2",
            "experiments[0].rows[0].values[1] is '2', and must be a number or null",
        ),
        (
            (*ROW, "values", 0),
            True,
            "experiments[0].rows[0].values[0] is True, and must be a number or null",
        ),
        (
            (*ROW, "values"),
            [1.0] * 10_001,
            "experiments[0].rows[0].values are 10,001, and must be 10,000 at most",
        ),
        (
            (*ROW, "parameters", "threads"),
            [1],
            "experiments[0].rows[0].parameters.threads is [1], and must be a string, "
            "a number, a boolean or null",
        ),
        (
            (*ROW, "published"),
            "121k",
            "experiments[0].rows[0].published is '121k', and must be a number or null",
        ),
        (
            (*ROW, "figures", "p99_s"),
            [1],
            "experiments[0].rows[0].figures.p99_s is [1], and must be an object",
        ),
        (
            (*ROW, "figures", "p99_s", "values"),
            [{}],
            "experiments[0].rows[0].figures.p99_s.values[0] is {}, and must be a number or null",
        ),
        (
            (*ROW, "histogram", "buckets", 0),
            [1],
            "experiments[0].rows[0].histogram.buckets[0] is [1], and must have 2 items",
        ),
        (
            (*ROW, "failures"),
            "died",
            "experiments[0].rows[0].failures is 'died', and must be a list",
        ),
        (
            (*ROW, "failures"),
            [1],
            "experiments[0].rows[0].failures[0] is 1, and must be a string",
        ),
        ((*ROW, "left_out"), 1, "experiments[0].rows[0].left_out is 1, and must be a string"),
        (
            ("experiments", 0, "rows", 1, "parameters"),
            {"threads": 1.0, "policy": "stock"},
            "experiments[0].rows[1].parameters is that of rows[0] again",
        ),
        (
            ("experiments",),
            [VALID["experiments"][0], VALID["experiments"][0]],
            "experiments[1].name is that of experiments[0] again",
        ),
    ],
)
def test_the_place_of_what_is_wrong_is_named(
    tmp_path: Path, path: tuple[Any, ...], value: Any, said: str
) -> None:
    file = tmp_path / "a.json"
    file.write_text(changed(path, value))
    with pytest.raises(CommandError) as caught:
        results_file.read(str(file))
    assert caught.value.exit_code == 2
    assert str(caught.value) == f"FILE '{file}' has no benchmark results: {said}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty, and must be JSON: {...}"),
        ("[1, 2]", "begins with b'[1, 2]', and must be JSON: {...}"),
        ("\x7fELF", "begins with b'\\x7fELF', and must be JSON: {...}"),
        (json.dumps(VALID)[:-20], "it is not JSON: "),
        ('{"schema": 1, "metadata": {"x": NaN}}', "NaN is in it, and numbers must be finite"),
        ('{"schema": 1, "metadata": {"x": 1e999}}', "1e999 is in it, and numbers must be finite"),
        (f'{{"schema": {"9" * 5000}}}', f"{'9' * 40} is in it, and numbers must be finite"),
        (f'{{"schema": {"[" * 200_000}', "it is not JSON: "),
        ("{}", "schema is None, and must be 1"),
        ('{"schema": 1}', "metadata is missing"),
    ],
)
def test_what_is_no_file_of_results_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    line = refused("--from", file)
    assert line.startswith(f"--from '{file}'")
    assert said in line
    assert len(line) < 300


def test_bytes_that_are_no_text_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b'{"schema": 1, "\xff\xfe": 2}')
    assert "it is not JSON: " in refused("--from", file)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    assert refused("--from", tmp_path) == f"--from '{tmp_path}': is a directory"
    missing = tmp_path / "missing.json"
    assert refused("--from", missing) == f"--from '{missing}': no such file or directory"
    assert refused("--from", "") == "--from '': no such file or directory"
    assert "begins with" in refused("--from", "/dev/zero")
    assert refused("--from", "/dev/null") == "--from '/dev/null': is empty, and must be JSON: {...}"


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("{")
    os.truncate(file, 1 << 40)
    assert (
        refused("--from", file) == f"--from '{file}': is larger than 64 MiB, which no results are"
    )
