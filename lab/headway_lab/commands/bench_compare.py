"""The verb `headway bench-compare`: two files of results, and whether the second is better.

`comparison` compares the files; this module has the options, the tables and the exit codes.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

from headway import json_file
from headway.errors import CommandError
from headway.options import Percentage, argument
from headway.output import drawing, outputs
from headway.output.metadata import Metadata, doubts, interpreters_in
from headway.output.results import Result, describe
from headway.output.table import Cell, Table
from headway.report import columns
from headway.report.terminal import Style
from headway_lab import comparison, results_file
from headway_lab.comparison import Comparison, Difference
from headway_lab.rank_test import LEVEL

SCHEMA = 1
# Columns; what files hold may be any length.
MAX_LINE = 300
DESCRIPTION = """\
Compares two files of `headway bench --json FILE`, row by row: B's median with A's. Rows with the
same experiment and the same parameters are compared.

  B / A       the ratio of the medians, with its 95 % bootstrap interval
  p           how often chance alone sets the values this far apart: Mann and Whitney's test, exact
  p of all    p corrected for the number of rows (Holm); a row differs if this is under 0.05
  !           the row is unstable in one file: its interval is wider than a fifth of its median

Few values cannot prove much. With 6 values of each row, the default of `headway bench`, p is never
under 0.002: enough for 23 rows, but not for 24. 8 values are enough for 300 rows; --values N takes
more. A difference of two runs does not show its reason: measure A and B in turns on a quiet
machine, and look at the circumstances that are printed for both.
"""
EPILOG = """\
examples:
  headway bench echo --values 10 --json before.json
  headway bench echo --values 10 --json after.json
  headway bench-compare before.json after.json
  headway bench-compare before.json after.json --fail-on-regression 10     in CI

exit status:
  0  the files were compared
  1  a regression was found
  2  a file or an option is wrong
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.usage = "%(prog)s A B [--json OUT] [--fail-on-regression PERCENT]"
    parser.add_argument(
        "files",
        nargs="+",
        metavar="A B",
        help="two files of results; - is stdin",
    )
    parser.add_argument(
        "--json",
        metavar="OUT",
        help="also write the comparison to OUT as JSON; with - the JSON goes to stdout, and the "
        "text to stderr",
    )
    parser.add_argument(
        "--fail-on-regression",
        type=argument(Percentage(1000)),
        metavar="PERCENT",
        help="exit with 1 if a row is significantly worse by more than PERCENT of A's median, or "
        "was measured in A and failed in B",
    )


def run(options: argparse.Namespace) -> int:
    if len(options.files) != 2:
        raise CommandError(
            f"A B: found {len(options.files)} files; allowed: two, the earlier one first",
            exit_code=2,
        )
    json_path = None if options.json is None else json_file.check_path(options.json)
    outputs.check_apart({"--json": json_path}, dict(zip("AB", options.files, strict=True)))
    a, b = (results_file.read(file) for file in options.files)
    found = comparison.compare(a, b)
    if options.fail_on_regression is not None:
        check_provable(found)
    stream = sys.stderr if json_path == json_file.STDOUT else sys.stdout
    style = Style.of_stream(stream.fileno(), stream.encoding or "ascii")
    outputs.say(stream, style, *report(found, options.files, (a.metadata, b.metadata), style))
    if json_path is not None:
        compared = to_dict(found, options.files, (a.metadata, b.metadata))
        results_file.write_report(json_path, compared)
    if options.fail_on_regression is None:
        return 0
    regressions = find_regressions(found, options.fail_on_regression)
    none = f"No row is significantly worse by more than {options.fail_on_regression:g} %."
    outputs.say(stream, style, *(regressions or [none]))
    return int(bool(regressions))


def check_provable(found: Comparison) -> None:
    """A check that cannot fail is refused."""
    if not found.differences:
        raise CommandError("--fail-on-regression: no row has values in both files", exit_code=2)
    if not found.provable:
        raise CommandError(
            f"--fail-on-regression: {len(found.differences)} rows have too few values for any to "
            f"be significant; {found.values_needed} of each in both files are enough "
            f"(headway bench --values {found.values_needed})",
            exit_code=2,
        )


def report(
    found: Comparison,
    files: list[str],
    metadata: tuple[Metadata, Metadata],
    style: Style,
) -> list[str]:
    """Line by line."""
    lines = []
    for name, file, told in zip("AB", files, metadata, strict=True):
        lines.append(columns.name(f"{name}: {file}, {interpreters_in(told)}", MAX_LINE))
        lines += [f"   doubtful: {doubt}" for doubt in doubts(told)]
    lines += [
        columns.name(f"{name} differs: {a!r} in A, {b!r} in B", MAX_LINE)
        for name, a, b in found.metadata
    ]
    names = dict.fromkeys(each.experiment for each in found.differences)
    for name in names:
        rows = [each for each in found.differences if each.experiment == name]
        lines += ["", drawing.draw(table(name, rows), style)]
    singles = [columns.name(each, MAX_LINE) for each in found.singles]
    lines += ["", *singles] if singles else [""]
    return [*lines, *summary(found)]


def table(name: str, rows: list[Difference]) -> Table:
    parameters = list(dict.fromkeys(key for row in rows for key in row.a.parameters))
    headings = [key.replace("_", " ") for key in parameters]
    return Table(
        f"{name}, in {rows[0].unit}" if rows[0].unit else name,
        [*headings, "A", "B", "B / A", "B is", "95 % of B / A", "p", "p of all"],
        [
            [
                *(Cell(text=str(row.a.parameters.get(key, ""))) for key in parameters),
                median(row.a),
                median(row.b),
                Cell(text=f"{row.ratio.median:.3f}"),
                Cell(text=row.verdict or "-"),
                Cell(text=f"{row.ratio.low:.3f} to {row.ratio.high:.3f}"),
                Cell(text=p_text(row.p)),
                Cell(text=p_text(row.corrected)),
            ]
            for row in rows
        ],
        len(parameters),
    )


def median(row: Result) -> Cell:
    return Cell(row.median(), unstable=row.unstable)


def p_text(p: float) -> str:
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"


def summary(found: Comparison) -> list[str]:
    compared = len(found.differences)
    if not compared:
        return ["No row has values in both files."]
    counts = comparison.counts(found.differences)
    without = counts.pop("", 0)
    parts = [f"{count} {verdict}" for verdict, count in counts.items()]
    lines = [
        f"{compared} {'row' if compared == 1 else 'rows'} compared: "
        + ", ".join([*parts, f"{without} without a significant difference"])
        + f" (p of all under {LEVEL})"
    ]
    if not found.provable:
        lines.append(
            "With so few values no row can be significant, however far apart: "
            f"{found.values_needed} of each in both files are enough."
        )
    return lines


def find_regressions(found: Comparison, percent: float) -> list[str]:
    """A line for each."""
    worse = [
        f"{row.experiment}, {describe(row.a.parameters)}: {row.verdict} by {row.worse_by:.1%}"
        for row in found.regressions(percent / 100)
    ]
    broken = [columns.name(each, MAX_LINE) for each in found.singles if each.broke]
    return [f"regression: {each}" for each in (*worse, *broken)]


def to_dict(
    found: Comparison, files: list[str], metadata: tuple[Metadata, Metadata]
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "a": {"file": files[0], "metadata": metadata[0]},
        "b": {"file": files[1], "metadata": metadata[1]},
        "metadata_differences": {name: [a, b] for name, a, b in found.metadata},
        "level": LEVEL,
        "provable": found.provable,
        "rows": [_row(each) for each in found.differences],
        "not_compared": [{**each._asdict(), "broke": each.broke} for each in found.singles],
    }


def _row(row: Difference) -> dict[str, Any]:
    return {
        "experiment": row.experiment,
        "unit": row.unit,
        "higher_is_better": row.higher_is_better,
        "parameters": row.a.parameters,
        "a": _side(row.a),
        "b": _side(row.b),
        "ratio": {name: _known(value) for name, value in row.ratio._asdict().items()},
        "p": row.p,
        "p_of_all": row.corrected,
        "significant": row.significant,
        "verdict": row.verdict,
    }


def _side(row: Result) -> dict[str, Any]:
    found = row.interval()
    assert found is not None, "rows that are compared have values"
    return {**found._asdict(), "count": len(row.values), "unstable": row.unstable}


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
