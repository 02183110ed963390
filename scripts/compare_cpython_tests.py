"""Runs CPython's own tests as plain Python and under `headway run --follow`, and compares them.

    .venvs/3.13/bin/python scripts/compare_cpython_tests.py
        [--policy P]... [--profile] [--ignore PATTERN]... [--json FILE] [TEST...]

The outcome of every single test must be the same: passed, failed, error or skipped. A test whose
outcome differs is run again on both sides, since some of CPython's tests depend on timing; it
counts as different if it never agrees. With --json, FILE is written after each file of tests, and a
run that was interrupted resumes: files of tests whose outcomes FILE has are not run again. Exit
status: 0 if all agree, 1 if any differs, 2 if this interpreter comes without its tests or FILE
belongs to another comparison, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

TESTS = [
    "test_threading",
    "test_thread",
    "test_queue",
    "test_fork1",
    "test_subprocess",
    "test_socket",
    "test_asyncio",
    "test_concurrent_futures",
    "test_threadsignals",
    "test_faulthandler",
    "test_gc",
    "test_interpreters",
    "test_ssl",
    "test_multiprocessing_fork",
    "test_multiprocessing_spawn",
    "test_signal",
    "test_ctypes",
    "test_import",
    "test_sched",
    "test_io",
]
ATTEMPTS = 4
TIMEOUT_S = 1500

Outcomes = dict[str, str]


def existing_tests(wanted: list[str]) -> list[str]:
    """Those of `wanted` that this interpreter has, `test.` left out."""
    import importlib.util

    if importlib.util.find_spec("test.libregrtest") is None:
        print(f"{sys.executable} comes without CPython's tests (test.libregrtest)", file=sys.stderr)
        raise SystemExit(2)
    return [name for name in wanted if importlib.util.find_spec(f"test.{name}") is not None]


def run_tests(prefix: list[str], test: str, match: list[str], ignore: list[str]) -> Outcomes:
    """Returns the outcomes of one run of the file `test` behind `prefix`; none if it hangs."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        command = [*prefix, "-m", "test", "--junit-xml", str(report), "--timeout", "600"]
        for pattern in match:
            command += ["-m", pattern]
        for pattern in ignore:
            command += ["-i", pattern]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        try:
            subprocess.run(
                [*command, test],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {}
        return read_outcomes(report) if report.exists() else {}


def read_outcomes(report: Path) -> Outcomes:
    outcomes: Outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        parts = {child.tag for child in case}
        found = [outcome for outcome in ("error", "failure", "skipped") if outcome in parts]
        outcomes[case.get("name", "?")] = found[0] if found else "passed"
    return outcomes


def differing(plain: Outcomes, metered: Outcomes) -> list[str]:
    names = plain.keys() | metered.keys()
    return sorted(name for name in names if plain.get(name) != metered.get(name))


def compare(
    test: str, policy: str, profiled: bool, plain: Outcomes, ignore: list[str]
) -> list[str]:
    """The tests whose outcome under `policy` never agreed with that as plain Python."""
    headway = [sys.executable, "-m", "headway", "run", "--follow", "--policy", policy]
    if profiled:
        headway += ["--profile", os.path.join(tempfile.gettempdir(), f"{os.getpid()}.txt")]
    sides = [[sys.executable], headway]
    metered = run_tests(headway, test, [], ignore)
    different = differing(plain, metered)
    for _ in range(ATTEMPTS - 1):
        if not different:
            break
        print(f"  {policy}, again: {', '.join(different)}", flush=True)
        # A test that did not come out at all took the whole run with it.
        match = [] if not plain or not metered else different
        again = [run_tests(prefix, test, match, ignore) for prefix in sides]
        different = [name for name in different if again[0].get(name) != again[1].get(name)]
    return different


class Record:
    """The results by file of tests, kept in a file if there is one."""

    def __init__(self, file: Path | None, options: dict[str, Any]) -> None:
        self.file = file
        self.options = {"python": sys.version, **options}
        self.tests: dict[str, dict[str, Any]] = {}
        if file is not None and file.exists():
            self._read(file)

    def _read(self, file: Path) -> None:
        """Exits unless the file is a record of the same comparison."""
        try:
            recorded = json.loads(file.read_text())
            self.tests = recorded.pop("tests")
        except (OSError, ValueError, KeyError, AttributeError):
            recorded = None
        if recorded != self.options:
            print(
                f"{file}: found something else than a record of these options under this Python; "
                "name another file, or remove it",
                file=sys.stderr,
            )
            raise SystemExit(2)

    def add(self, test: str, row: dict[str, Any]) -> None:
        self.tests[test] = row
        if self.file is not None:
            partial = self.file.with_name(self.file.name + ".new")
            partial.write_text(json.dumps({**self.options, "tests": self.tests}, indent=1))
            partial.replace(self.file)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "tests", nargs="*", metavar="TEST", help="default: those the meter could harm"
    )
    parser.add_argument(
        "--policy",
        metavar="P",
        action="append",
        default=[],
        help="compare under this policy; may be given several times (default: interval)",
    )
    parser.add_argument(
        "--profile", action="store_true", help="keep a contention profile of each file of tests"
    )
    parser.add_argument(
        "--ignore",
        metavar="PATTERN",
        action="append",
        default=[],
        help="leave out tests that match, such as one that hangs here without Headway too",
    )
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="write outcomes to FILE, and resume from it"
    )
    arguments = parser.parse_args()
    policies = arguments.policy or ["interval"]
    options = {"policies": policies, "profile": arguments.profile, "ignore": arguments.ignore}
    record = Record(arguments.json, options)
    tests = existing_tests(arguments.tests or TESTS)
    for test in tests:
        if test in record.tests:
            print(f"{test}: compared before", flush=True)
            continue
        plain = run_tests([sys.executable], test, [], arguments.ignore)
        different = {
            policy: names
            for policy in policies
            if (names := compare(test, policy, arguments.profile, plain, arguments.ignore))
        }
        counts = {what: list(plain.values()).count(what) for what in sorted(set(plain.values()))}
        each = (f"under {policy}: {', '.join(names)}" for policy, names in different.items())
        verdict = f"DIFFERENT {'; '.join(each)}" if different else "same"
        if not plain:
            verdict = "DIFFERENT: no outcome as plain Python"
        told = ", ".join(f"{count} {what}" for what, count in counts.items())
        print(f"{test}: {told}: {verdict}", flush=True)
        record.add(test, {"outcomes": counts, "different": different})
    result = {test: record.tests[test] for test in tests}
    bad = [test for test, row in result.items() if row["different"] or not row["outcomes"]]
    total = sum(sum(row["outcomes"].values()) for row in result.values())
    print(
        f"{sys.version.split()[0]}: {total} tests of {len(result)} files, {len(bad)} files differ"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
