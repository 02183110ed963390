"""A calibration as a file: the constants of `Machine` and `Costs`, measured on a machine.

    {"schema": 1, "metadata": {...}, "machine": {NAME: CONSTANT}, "costs": {NAME: CONSTANT},
     "also": {NAME: CONSTANT}}

A CONSTANT is `{"value", "how", "samples", "median", "quantiles", "kept"}`: the value that the
simulation uses; how it was measured; the number of samples, their median and 21 quantiles (from the
least to the greatest, evenly spaced); and the reason if the value is the shipped one. `also` has
measurements that are not constants of the simulation. Only the values are used when a file is read.
This module does not know how anything is measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields
from statistics import median
from typing import Any, NamedTuple, TypedDict, TypeVar

from headway import json_file, json_shape
from headway.errors import CommandError, reason_of
from headway.output.metadata import Metadata
from headway.output.statistics import percentile
from headway_lab.simulated.costs import Costs
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.scenario import Distribution

SCHEMA = 1
OPTION = "--calibration"
# A calibration has about 30 KB.
MAX_BYTES = 1 << 20
QUANTILES = 21
# The limits of the simulation; see `Scenario::check` of lab/crates/simulation.
MOST_NS = 1e15
MOST_CORES = 64
AT_LEAST_ONE = frozenset({"cores", "slice_ns", "tick_ns", "stolen_every_ns"})
# The names of distributions, each with its number of parameters; None is any number.
DISTRIBUTIONS = {"exponential": 0, "uniform": 2, "lognormal": 2, "quantiles": None}
Constants = TypeVar("Constants", Machine, Costs)


class Parts(TypedDict):
    """The parts of a file that are read."""

    metadata: Metadata
    machine: dict[str, object]
    costs: dict[str, object]


class Constant(NamedTuple):
    value: Distribution
    how: str
    samples: int = 0
    median: float | None = None
    quantiles: Sequence[float] = ()
    kept: str | None = None


@dataclass(frozen=True)
class Calibration:
    machine: Machine
    costs: Costs
    metadata: Metadata


def measured(value: Distribution, how: str, samples: Sequence[float]) -> Constant:
    return Constant(value, how, len(samples), median(samples), quantiles(samples, QUANTILES))


def quantiles(samples: Sequence[float], count: int) -> list[float]:
    """Evenly spaced quantiles, from the least sample to the greatest."""
    ordered = sorted(samples)
    return [percentile(ordered, index / (count - 1)) for index in range(count)]


def write(
    path: str,
    metadata: Metadata,
    machine: Mapping[str, Constant],
    costs: Mapping[str, Constant],
    also: Mapping[str, Constant],
) -> None:
    """`path` was returned by json_file.check_path(). Raises OSError."""
    parts = {"machine": machine, "costs": costs, "also": also}
    told = {
        part: {name: constant._asdict() for name, constant in constants.items()}
        for part, constants in parts.items()
    }
    json_file.write_json({"schema": SCHEMA, "metadata": metadata, **told}, path)


class _Problem(Exception):
    """The first error in a file, with its place."""


def read(file: str) -> Calibration:
    """Reads a file. Raises CommandError (exit code 2): one line with the file, the place in it, the
    value that was found and the values that are allowed."""
    try:
        with open(file, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise CommandError(f"{OPTION} {file!r}: {reason}", exit_code=2) from error
    try:
        return _parse(data)
    except _Problem as problem:
        raise CommandError(f"{OPTION} {file!r} is none: {problem}", exit_code=2) from problem


def _parse(data: bytes) -> Calibration:
    if len(data) > MAX_BYTES:
        raise _Problem(f"it is larger than {MAX_BYTES >> 20} MiB")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _Problem(f"it is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise _Problem("it must be JSON: {...}")
    if found.get("schema") != SCHEMA:
        raise _Problem(f"schema is {found.get('schema')!r:.40}, and must be {SCHEMA}")
    if problem := json_shape.find_problem(found, Parts):
        raise _Problem(problem)
    return Calibration(
        _constants(Machine, found["machine"], "machine"),
        _constants(Costs, found["costs"], "costs"),
        found["metadata"],
    )


def _constants(kind: type[Constants], found: Mapping[str, Any], part: str) -> Constants:
    """A constant that is missing has the shipped value."""
    known = {field.name: field for field in fields(kind)}
    values = {}
    for name, constant in found.items():
        place = f"{part}.{name:.40}"
        if name not in known:
            raise _Problem(f"{place} is no constant; there are {', '.join(sorted(known))}")
        if not isinstance(constant, dict) or "value" not in constant:
            raise _Problem(f"{place} must be {{'value': ...}}")
        values[name] = constant["value"]
        if (allowed := _allowed(known[name], values[name])) is not None:
            raise _Problem(f"{place}.value is {values[name]!r:.60}, and must be {allowed}")
    return kind(**values)


def _allowed(field: Field[Any], value: object) -> str | None:
    """The allowed values as text; None if the value is allowed."""
    if field.name == "cores":
        is_count = type(value) is int and 1 <= value <= MOST_CORES
        return None if is_count else f"a whole number from 1 to {MOST_CORES}"
    least = 1 if field.name in AT_LEAST_ONE else 0
    if _is_time(value, least):
        return None
    times = f"nanoseconds from {least} to {MOST_NS:g}"
    if field.type != "Distribution":
        return times
    return None if _is_distribution(value) else f"{times}, or a distribution of such"


def _is_time(value: object, least: float = 0) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return least <= value <= MOST_NS


def _is_distribution(value: object) -> bool:
    """Whether the value is a `scenario.Distribution`."""
    if not isinstance(value, dict) or len(value) != 1:
        return False
    ((word, numbers),) = value.items()
    if word not in DISTRIBUTIONS:
        return False
    count = DISTRIBUTIONS[word]
    if count == 0:
        return _is_time(numbers)
    if not isinstance(numbers, list) or not numbers or count not in (None, len(numbers)):
        return False
    return all(map(_is_time, numbers))
