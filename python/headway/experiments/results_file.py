"""The benchmark results, schema 1 (DESIGN.md), as a file: written, checked, and read back.

A row is written with more than is read of it: medians, intervals and what is unstable are made of
the values again. So are the tables and the statements of an experiment that is known; those of
another are read as they are. Files of the developer benchmarks (bench/) have fewer keys, and can be
read too. It knows nothing of what is done with results.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

from headway import json_file
from headway.errors import CommandError, reason_of
from headway.experiments import statistics
from headway.experiments.experiment import Experiment
from headway.experiments.options import MAX_VALUES
from headway.experiments.results import Result, Results
from headway.json_check import OPTIONAL_NUMBER, find_field_problem, find_histogram_problem

SCHEMA = 1
STDIN = "-"
# More are not results: the largest are some thousand rows of 25 values with a dozen figures each.
MAX_BYTES = 64 * 1024 * 1024
FIRST_BYTES = 4096
# Of 2**64 - 1.
INTEGER_DIGITS = 20
# Those that are read; each may be missing.
METADATA_FIELDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("python", "time", "cpu"), (str,)),
    **dict.fromkeys(("load", "steal", "cpus", "seconds"), OPTIONAL_NUMBER),
    **dict.fromkeys(("governor", "beside"), (str, type(None))),
    "policies": (list,),
    "simulated": (dict,),
}
EXPERIMENT_FIELDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("name", "unit"), (str,)),
    **dict.fromkeys(("rows", "statements"), (list,)),
}
LOWER_IS_BETTER = {"s", "ms", "us", "ns", "bytes"}


class KeptExperiment(NamedTuple):
    """`higher_is_better` is None where the file does not tell. `statements` are those of the file,
    as it has them."""

    results: Results
    higher_is_better: bool | None
    statements: list[dict[str, Any]]


class Kept(NamedTuple):
    """What a file has."""

    metadata: dict[str, Any]
    experiments: list[KeptExperiment]


def write(path: str, metadata: dict[str, Any], shown: Iterable[tuple[Experiment, Results]]) -> None:
    """`path` is one that json_file.check_path() found. Raises CommandError."""
    write_report(path, to_dict(metadata, shown))


def write_report(path: str, report: dict[str, Any]) -> None:
    """The same of any report."""
    try:
        json_file.write_json(report, path)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"--json {path}: {reason_of(error)}") from error


def to_dict(
    metadata: dict[str, Any], shown: Iterable[tuple[Experiment, Results]]
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "metadata": metadata,
        "experiments": [
            {
                "name": experiment.name,
                "unit": experiment.unit,
                "higher_is_better": experiment.higher_is_better,
                "calibration": results.calibration,
                "rows": [_row(result) for result in results],
                "statements": _statements(experiment, results),
            }
            for experiment, results in shown
        ],
    }


def _statements(experiment: Experiment, results: Results) -> list[dict[str, Any]]:
    """None if they cannot be computed: the values, of hours maybe, do not go with them."""
    try:
        return [each.to_dict() for each in experiment.statements(results)]
    except Exception:
        # Whoever shows the results runs into the same.
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
    if (histogram := result.histogram) is not None:
        row["histogram"] = histogram
    if result.left_out:
        row["left_out"] = result.left_out
    if result.failures:
        row["failures"] = result.failures
    return row


def _figure(result: Result, name: str) -> dict[str, Any]:
    """`confidence` is how sure the interval is. JSON has no word for what is not finite."""
    values = result.figures[name] if name else result.values
    known = [value if math.isfinite(value) else None for value in values]
    found = result.interval(name)
    if found is None:
        return {"median": None, "low": None, "high": None, "confidence": None, "values": known}
    confidence = statistics.coverage(len(known) - known.count(None))
    return {**found._asdict(), "confidence": confidence, "values": known}


class _Problem(Exception):
    """What is wrong with a file, and where in it."""


def read(file: str, option: str = "FILE") -> Kept:
    """Raises CommandError (exit code 2): one line with the file, the place in it, what was found
    and what is allowed."""
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
        # Whatever it is, and however much of it: it is none of ours.
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
    _check(find_field_problem(kept, {"metadata": (dict,), "experiments": (list,)}, ""))
    known = {name: types for name, types in METADATA_FIELDS.items() if name in kept["metadata"]}
    _check(find_field_problem(kept["metadata"], known, "metadata."))
    experiments = [
        _experiment(each, f"experiments[{index}].")
        for index, each in enumerate(kept["experiments"])
    ]
    _check_distinct(
        [each.results.name for each in experiments], "experiments[{}].name", "experiments[{}]"
    )
    return Kept(kept["metadata"], experiments)


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
    """Each is a name, so none may come twice."""
    first: dict[object, int] = {}
    for index, key in enumerate(keys):
        if key in first:
            raise _Problem(f"{place.format(index)} is that of {other.format(first[key])} again")
        first[key] = index


def _experiment(found: Any, place: str) -> KeptExperiment:
    _check(find_field_problem(found, EXPERIMENT_FIELDS, place))
    for name in ("name", "unit"):
        _check_printable(found[name], f"{place}{name}")
    direction = found.get("higher_is_better")
    if not isinstance(direction, bool):
        if direction is not None:
            raise _Problem(f"{place}higher_is_better is {direction!r:.40}, and must be a boolean")
        direction = _direction(found["unit"])
    calibration = found.get("calibration", {})
    _check(find_field_problem(calibration, {}, f"{place}calibration."))
    rows = [_result(row, f"{place}rows[{index}].") for index, row in enumerate(found["rows"])]
    _check_distinct(
        [frozenset(row.parameters.items()) for row in rows],
        f"{place}rows[{{}}].parameters",
        "rows[{}]",
    )
    for index, statement in enumerate(found["statements"]):
        _check_statement(statement, f"{place}statements[{index}].")
    results = Results(found["name"], found["unit"], rows, calibration)
    return KeptExperiment(results, direction, found["statements"])


def _check_printable(text: str, place: str) -> None:
    """It goes to terminals as it is."""
    if not text.isprintable():
        raise _Problem(f"{place} is {text!r:.40}, and must be printable")


def _direction(unit: str) -> bool | None:
    """By the unit, where the file has nothing else."""
    if unit.endswith("/s"):
        return True
    return False if unit in LOWER_IS_BETTER else None


def _check_statement(found: Any, place: str) -> None:
    _check(find_field_problem(found, {"text": (str,)}, place))
    _check_printable(found["text"], f"{place}text")
    _number(found.get("value"), f"{place}value")
    if not isinstance(found.get("agrees"), bool):
        raise _Problem(f"{place}agrees is {found.get('agrees')!r:.40}, and must be a boolean")
    for name in ("allowed", "why"):
        _check(find_field_problem({name: "", **found}, {name: (str,)}, place))
        _check_printable(found.get(name, ""), f"{place}{name}")


def _result(found: Any, place: str) -> Result:
    _check(find_field_problem(found, {"parameters": (dict,), "values": (list,)}, place))
    for name, value in found["parameters"].items():
        _check_printable(name, f"a name in {place}parameters")
        if isinstance(value, str):
            _check_printable(value, f"{place}parameters.{name}")
        elif not isinstance(value, (bool, type(None))):
            _number(value, f"{place}parameters.{name}", "text, a number, a boolean or null")
    left_out = found.get("left_out", "")
    _check(find_field_problem({"left_out": left_out}, {"left_out": (str,)}, place))
    result = Result(
        found["parameters"], _number(found.get("published"), f"{place}published"), left_out
    )
    # What was not measured is no value; developer benchmarks keep its place.
    values = _numbers(found["values"], f"{place}values")
    result.values = [value for value in values if not math.isnan(value)]
    figures = found.get("figures", {})
    _check(find_field_problem(figures, {}, f"{place}figures."))
    for name, figure in figures.items():
        where = f"{place}figures.{name}."
        _check(find_field_problem(figure, {"values": (list,)}, where))
        result.figures[name] = _numbers(figure["values"], f"{where}values")
    if (histogram := found.get("histogram")) is not None:
        _check(find_histogram_problem(histogram, f"{place}histogram."))
        result.kept_histogram = histogram
    failures = found.get("failures", [])
    _check(find_field_problem({"failures": failures}, {"failures": (list,)}, place))
    for index, failure in enumerate(failures):
        if not isinstance(failure, str):
            raise _Problem(f"{place}failures[{index}] is {failure!r:.40}, and must be a string")
    result.failures = failures
    return result


def _numbers(found: list[Any], place: str) -> list[float]:
    """NaN for null."""
    if len(found) > MAX_VALUES:
        raise _Problem(f"{place} are {len(found):,}, and must be {MAX_VALUES:,} at most")
    numbers = (_number(value, f"{place}[{index}]") for index, value in enumerate(found))
    return [math.nan if number is None else number for number in numbers]


def _number(found: Any, place: str, allowed: str = "a number or null") -> float | None:
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise _Problem(f"{place} is {found!r:.40}, and must be {allowed}")
    return found
