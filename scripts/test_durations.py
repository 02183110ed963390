"""Shows where the time of test runs went, from the JUnit files that they left in target/tests.

A row for each file with its number of tests and the sum of their seconds, fixtures included, the
largest first; with `--slowest N` the N slowest tests; with `--before FILE...` two more columns for
comparison. Tests run at the same time, so that the sum is larger than what a run takes.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

RESULTS = Path(__file__).resolve().parent.parent / "target" / "tests"


class Test(NamedTuple):
    """One item of a run: its file below the root, its name with parameters, its time."""

    file: str
    name: str
    duration_s: float


class Sums(NamedTuple):
    """By file."""

    tests: Counter[str]
    seconds: defaultdict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "files", nargs="*", type=Path, help="JUnit files (default: target/tests/*.xml)"
    )
    parser.add_argument(
        "--before", nargs="+", type=Path, default=[], help="JUnit files of the run to compare with"
    )
    parser.add_argument(
        "--slowest", type=int, default=0, metavar="N", help="also list the N slowest tests"
    )
    arguments = parser.parse_args()
    files = arguments.files or sorted(RESULTS.glob("*.xml"))
    if not files:
        print(
            f"test_durations: found no *.xml in {RESULTS}; run `make test` first", file=sys.stderr
        )
        return 2
    try:
        tests = [test for file in files for test in read(file)]
        former = [test for file in arguments.before for test in read(file)]
    except (OSError, ElementTree.ParseError, ValueError) as error:
        print(f"test_durations: cannot read the results: {error}", file=sys.stderr)
        return 2
    print_table(sum_by_file(tests), sum_by_file(former) if arguments.before else None)
    for test in sorted(tests, key=lambda each: -each.duration_s)[: arguments.slowest]:
        print(f"{test.duration_s:9.2f} s  {test.file}::{test.name}")
    return 0


def read(path: Path) -> list[Test]:
    """The tests of a JUnit file as pytest writes it: the class name has the module's path."""
    found = []
    for case in ElementTree.parse(path).iter("testcase"):
        module, _, last = case.get("classname", "").rpartition(".test_")
        file = f"{module.replace('.', '/')}/test_{last.partition('.')[0]}.py"
        found.append(Test(file, case.get("name", ""), float(case.get("time", "0"))))
    return found


def sum_by_file(tests: list[Test]) -> Sums:
    sums = Sums(Counter(), defaultdict(float))
    for test in tests:
        sums.tests[test.file] += 1
        sums.seconds[test.file] += test.duration_s
    return sums


def print_table(now: Sums, former: Sums | None) -> None:
    files = set(now.tests) | set(former.tests if former else ())
    order = sorted(
        files, key=lambda file: -max(now.seconds[file], former.seconds[file] if former else 0)
    )
    heading = f"{'tests':>6} {'seconds':>9}"
    print(
        (f"{'before':>16}   {'after':>16}\n" if former else "")
        + (f"{heading}   " * (2 if former else 1))
        + "file"
    )
    for file in [*order, "total"]:
        columns = [
            f"{sums.tests[file]:6d} {sums.seconds[file]:9.1f}   "
            if file != "total"
            else f"{sum(sums.tests.values()):6d} {sum(sums.seconds.values()):9.1f}   "
            for sums in ([former] if former else []) + [now]
        ]
        print("".join(columns) + file)


if __name__ == "__main__":
    sys.exit(main())
