"""The benchmark results, schema 1, as a file: written, checked, and read back.

A row is written with more than is read: medians, intervals and instability are computed again from
the values. So are the tables and statements of known experiments. Those of other experiments, such
as the developer benchmarks (bench/), are read from the file. This module does not know how results
are used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn, TypedDict

from headway import json_file, json_shape
from headway.errors import CommandError, reason_of
from headway.output import statistics
from headway.output.claim import CheckedClaim
from headway.output.metadata import Metadata
from headway.output.results import Result, Results
from headway.recorder.records.histogram import Histogram
from headway_lab.experiment import Experiment, Shown
from headway_lab.histogram import histogram_of
from headway_lab.options import MAX_VALUES

SCHEMA = 1
STDIN = "-"
# A larger file has no results: the largest have some thousand rows of 25 values with a dozen
# figures each.
MAX_BYTES = 64 * 1024 * 1024
FIRST_BYTES = 4096
# The digits of 2**64 - 1.
INTEGER_DIGITS = 20
LOWER_IS_BETTER = {"s", "ms", "us", "ns", "bytes"}


class _RowOptions(TypedDict, total=False):
    published: float | None  #: The published value, in the same unit.
    left_out: str  #: The reason why the row has no values.
    #: Further figures of the row, by name.
    figures: dict[str, StoredFigure]
    histogram: Histogram | None  #: The distribution of all values of the row.
    failures: list[str]  #: What went wrong, a line for each value that is missing.


class StoredFigure(TypedDict):
    """A further figure of a row."""

    values: list[float | None]  #: A value for each round; null where it is unknown.


class StoredRow(_RowOptions):
    """The values of one combination of parameters."""

    parameters: dict[str, str | float | bool | None]  #: The names and values that identify the row.
    #: A value for each round, in the experiment's unit; null where it is unknown.
    values: list[float | None]


class _StatementOptions(TypedDict, total=False):
    value: float | None  #: The number that decides; null if it is not finite.
    allowed: str  #: The range in which the statement agrees, as text.
    why: str  #: What is known to be different, where the statement differs.


class StoredStatement(_StatementOptions):
    """A statement of a publication or of Headway, and the number that decides it."""

    text: str  #: The statement.
    agrees: bool  #: Whether the number lies in the range.


class _ExperimentOptions(TypedDict, total=False):
    higher_is_better: bool | None  #: Whether larger values are better; null if neither.
    calibration: dict[str, object]  #: How much work makes one value, as found out before.


class StoredExperiment(_ExperimentOptions):
    """An experiment with its rows."""

    name: str  #: The name of the experiment.
    unit: str  #: The unit of its values.
    rows: list[StoredRow]  #: A row for each combination of parameters.
    statements: list[StoredStatement]  #: The statements about the rows.


class Stored(TypedDict):
    """The parts of a file that are read."""

    metadata: Metadata  #: The circumstances of the measurement.
    experiments: list[StoredExperiment]  #: The experiments.


class KeptExperiment(NamedTuple):
    """An experiment in a file. `higher_is_better` is None if the file does not say."""

    results: Results
    higher_is_better: bool | None
    statements: list[CheckedClaim]


class Kept(NamedTuple):
    """The contents of a file."""

    metadata: Metadata
    experiments: list[KeptExperiment]


def write(path: str, metadata: Metadata, shown: Shown) -> None:
    """Writes results to a path that json_file.check_path() returned. Raises CommandError."""
    experiments = [
        KeptExperiment(results, experiment.higher_is_better, _statements(experiment, results))
        for experiment, results in shown
    ]
    write_kept(path, Kept(metadata, experiments))


def write_kept(path: str, kept: Kept) -> None:
    """Like `write`, for experiments that are already in the form of the file."""
    write_report(path, _to_dict(kept))


def write_report(path: str, report: dict[str, Any]) -> None:
    """Like `write`, for any report that is a JSON object."""
    try:
        json_file.write_json(report, path)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"--json {path}: {reason_of(error)}") from error


def _to_dict(kept: Kept) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "metadata": kept.metadata,
        "experiments": [
            {
                "name": results.name,
                "unit": results.unit,
                "higher_is_better": higher_is_better,
                "calibration": results.calibration,
                "rows": [_row(result) for result in results],
                "statements": [each._asdict() for each in statements],
            }
            for results, higher_is_better, statements in kept.experiments
        ],
    }


def _statements(experiment: Experiment, results: Results) -> list[CheckedClaim]:
    """The verdicts; empty if the statements fail, so that values that took hours are kept."""
    try:
        return [each.checked() for each in experiment.statements(results)]
    except Exception:
        # The function that shows the results raises and reports the same exception.
        return []


def _row(result: Result) -> dict[str, Any]:
    row: dict[str, Any] = {
        "parameters": result.parameters,
        **_figure(result, ""),
        "published": result.published,
        "unstable": result.unstable,
    }
    if result.figures:
        row["figures"] = {name: _figure(result, name) for name in result.figures}
    if (histogram := histogram_of(result)) is not None:
        row["histogram"] = histogram
    if result.left_out:
        row["left_out"] = result.left_out
    if result.failures:
        row["failures"] = result.failures
    return row


def _figure(result: Result, name: str) -> dict[str, Any]:
    """`confidence` is the coverage of the interval. JSON cannot express numbers that are not
    finite."""
    values = result.figures[name] if name else result.values
    known = [value if math.isfinite(value) else None for value in values]
    found = result.interval(name)
    if found is None:
        return {"median": None, "low": None, "high": None, "confidence": None, "values": known}
    confidence = statistics.coverage(len(known) - known.count(None))
    return {**found._asdict(), "confidence": confidence, "values": known}


class _Problem(Exception):
    """The first error in a file, with its place."""


def read(file: str, option: str = "FILE") -> Kept:
    """Reads a file. Raises CommandError (exit code 2): one line with the file, the place in it, the
    value that was found and the values that are allowed."""
    try:
        data = _read_bytes(file)
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise CommandError(f"{option} {file!r}: {reason}", exit_code=2) from error
    try:
        return _parse(data)
    except _Problem as problem:
        raise CommandError(
            f"{option} {file!r} has no benchmark results: {problem}", exit_code=2
        ) from problem


def _read_bytes(file: str) -> bytes:
    with open(0 if file == STDIN else file, "rb", closefd=file != STDIN) as stream:
        start = stream.read(FIRST_BYTES)
        # A file that does not begin with a brace has no results, whatever its size.
        if not start.lstrip().startswith(b"{"):
            found = f"begins with {start[:8]!r}" if start else "is empty"
            raise ValueError(f"{found}, and must be JSON: {{...}}")
        data = start + stream.read(MAX_BYTES + 1 - len(start))
    if len(data) > MAX_BYTES:
        raise ValueError(f"is larger than {MAX_BYTES >> 20} MiB, which no results are")
    return data


def _parse(data: bytes) -> Kept:
    try:
        kept = json.loads(
            data, parse_constant=_refuse, parse_float=_parse_float, parse_int=_parse_int
        )
    except (ValueError, RecursionError) as error:
        raise _Problem(f"it is not JSON: {error}") from error
    if kept.get("schema") != SCHEMA:
        raise _Problem(f"schema is {kept.get('schema')!r:.40}, and must be {SCHEMA}")
    _check(json_shape.find_problem(kept, Stored))
    stored: Stored = kept
    experiments = [
        _experiment(each, f"experiments[{index}].")
        for index, each in enumerate(stored["experiments"])
    ]
    _check_distinct(
        [each.results.name for each in experiments], "experiments[{}].name", "experiments[{}]"
    )
    return Kept(stored["metadata"], experiments)


def _refuse(number: str) -> NoReturn:
    raise _Problem(f"{number:.40} is in it, and numbers must be finite and of 64 bits")


def _parse_float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _parse_int(text: str) -> int:
    return int(text) if len(text) <= INTEGER_DIGITS else _refuse(text)


def _check(problem: str) -> None:
    if problem:
        raise _Problem(problem)


def _check_distinct(keys: Sequence[object], place: str, other: str) -> None:
    """The keys are names, so none may occur twice."""
    first: dict[object, int] = {}
    for index, key in enumerate(keys):
        if key in first:
            raise _Problem(f"{place.format(index)} is that of {other.format(first[key])} again")
        first[key] = index


def _experiment(found: StoredExperiment, place: str) -> KeptExperiment:
    _check_printable(found["name"], f"{place}name")
    _check_printable(found["unit"], f"{place}unit")
    direction = found.get("higher_is_better")
    if direction is None:
        direction = _direction(found["unit"])
    rows = [_result(row, f"{place}rows[{index}].") for index, row in enumerate(found["rows"])]
    _check_distinct(
        [frozenset(row.parameters.items()) for row in rows],
        f"{place}rows[{{}}].parameters",
        "rows[{}]",
    )
    statements = [
        _verdict(statement, f"{place}statements[{index}].")
        for index, statement in enumerate(found["statements"])
    ]
    results = Results(found["name"], found["unit"], rows, found.get("calibration", {}))
    return KeptExperiment(results, direction, statements)


def _check_printable(text: str, place: str) -> None:
    """The text is printed on terminals without escaping."""
    if not text.isprintable():
        raise _Problem(f"{place} is {text!r:.40}, and must be printable")


def _direction(unit: str) -> bool | None:
    """The better direction, from the unit if the file does not have it."""
    if unit.endswith("/s"):
        return True
    return False if unit in LOWER_IS_BETTER else None


def _verdict(found: StoredStatement, place: str) -> CheckedClaim:
    verdict = CheckedClaim(
        found["text"],
        found.get("value"),
        found.get("allowed", ""),
        found["agrees"],
        found.get("why", ""),
    )
    for name in ("text", "allowed", "why"):
        _check_printable(getattr(verdict, name), f"{place}{name}")
    return verdict


def _result(found: StoredRow, place: str) -> Result:
    for name, value in found["parameters"].items():
        _check_printable(name, f"a name in {place}parameters")
        if isinstance(value, str):
            _check_printable(value, f"{place}parameters.{name}")
    result = Result(found["parameters"], found.get("published"), found.get("left_out", ""))
    # A value that is not a number was not measured.
    values = _numbers(found["values"], f"{place}values")
    result.values = [value for value in values if not math.isnan(value)]
    for name, figure in found.get("figures", {}).items():
        result.figures[name] = _numbers(figure["values"], f"{place}figures.{name}.values")
    if (histogram := found.get("histogram")) is not None:
        buckets = [(bound, count) for bound, count in histogram["buckets"]]
        result.kept_histogram = {**histogram, "buckets": buckets}
    result.failures = found.get("failures", [])
    return result


def _numbers(found: list[float | None], place: str) -> list[float]:
    """The numbers, with NaN for null."""
    if len(found) > MAX_VALUES:
        raise _Problem(f"{place} are {len(found):,}, and must be {MAX_VALUES:,} at most")
    return [math.nan if number is None else number for number in found]
