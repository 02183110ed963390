"""Runs CPython's own tests as plain Python and in the ways that Headway measures a program, and
compares them.

    .venvs/3.13/bin/python scripts/compare_cpython_tests.py
        [--way run|profile|telemetry]... [--policy P]... [--timeout S] [--ignore PATTERN]...
        [--json FILE] [TEST...]

A way is `headway run --follow`, the same with `--profile`, or HEADWAY=follow,telemetry=... with a
recorder that receives; each runs under each policy. The outcome of every single test must be the
same: passed, failure, error, skipped, or no end, where the test hangs or takes the whole run with
it. The exit status of a file of tests, which also says whether it left its environment as it was,
must be the same, and so must the number of processes that it leaves. A test whose outcome differs
is run again on both sides, since some of CPython's tests depend on timing; it counts as different
if it never agrees. With --json, FILE is written after each file of tests, and a run that was
interrupted resumes: files of tests whose outcomes FILE has are not run again. Exit status: 0 if all
agree, 1 if any differs, 2 if this interpreter comes without its tests or FILE belongs to another
comparison, 130 after Ctrl-C, 143 after SIGTERM. After both, no process of a test is left.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.request import urlopen

from headway import _native

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
from process_tree import Watched, descendants, state  # type: ignore[import-not-found]

TESTS = [
    "test_threading",
    "test_thread",
    "test_threading_local",
    "test_queue",
    "test_fork1",
    "test_wait3",
    "test_wait4",
    "test_subprocess",
    "test_popen",
    "test_posix",
    "test_os",
    "test_pty",
    "test_atexit",
    "test_eintr",
    "test_socket",
    "test_select",
    "test_asyncio",
    "test_concurrent_futures",
    "test_threadsignals",
    "test_faulthandler",
    "test_gc",
    "test__interpreters",
    "test_interpreters",
    "test_ssl",
    "test_multiprocessing_fork",
    "test_multiprocessing_forkserver",
    "test_multiprocessing_spawn",
    "test_multiprocessing_main_handling",
    "test_signal",
    "test_tracemalloc",
    "test_ctypes",
    "test_import",
    "test_sched",
    "test_io",
]
WAYS = ("run", "profile", "telemetry")
ATTEMPTS = 4
# From the end of a file of tests to that of its last process.
TREE_LIMIT_S = 5.0
HEADWAY = [sys.executable, "-m", "headway"]
# Outcomes of a file of tests.
EXIT_STATUS, PROCESSES_LEFT = "(exit status)", "(processes left)"
# unittest says so, with -v, before it runs a test.
BEGUN = re.compile(r"^(\w+) \(((?:test|__main__)\.[\w.]+)\)", re.MULTILINE)
NO_END = "no end"
# Tests whose outcome differs for a reason that no repair removes, by way.
EXPLAINED = {
    ("test.test_subprocess.POSIXProcessTestCase.test_pass_fds_redirected", "telemetry"): (
        "it counts the descriptors of a child, and a child that reports has three of its own"
    ),
}


class Way(NamedTuple):
    """The command that runs `-m test`, and what the environment has for it."""

    kind: str
    policy: str
    command: list[str]
    variables: dict[str, str]

    @property
    def name(self) -> str:
        return f"{self.policy}, {self.kind}"


PLAIN = Way("plain", "", [sys.executable], {})


# By name of a test: its outcomes in two ways, and what it said in the second.
Different = dict[str, dict[str, str]]


class Result(NamedTuple):
    """By name of a test: its outcome, and what the test said unless it passed."""

    outcomes: dict[str, str]
    messages: dict[str, str]


class Options(NamedTuple):
    ignore: list[str]
    timeout_s: float


def ways_of(kinds: list[str], policies: list[str], socket: str) -> list[Way]:
    """`socket` is the recorder's."""
    found = []
    for kind in kinds:
        for policy in policies:
            command = [*HEADWAY, "run", "--follow", "--policy", policy]
            variables = {}
            if kind == "profile":
                # In the folder of the run.
                command += ["--profile", "profile.txt"]
            elif kind == "telemetry":
                command = [sys.executable]
                variables = {"HEADWAY": f"{policy},follow,telemetry=unix:{socket}"}
            found.append(Way(kind, policy, command, variables))
    return found


@contextmanager
def recorder(folder: Path) -> Iterator[str]:
    """Runs a recorder that stores nothing and yields its socket; prints how much it has received at
    its end."""
    socket, log = folder / "recorder.sock", folder / "recorder.log"
    command = [*HEADWAY, "telemetry", "--listen", f"unix:{socket}", "--no-store"]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "--http", "127.0.0.1:0"], stderr=output)
    try:
        while not (found := re.search(r"http://[\d.]+:\d+", log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield str(socket)
        with urlopen(f"{found[0]}/api/v1/now") as answer:
            received = json.load(answer)["recorder"]["received"]
        print(f"the recorder received {received} datagrams", flush=True)
    finally:
        process.terminate()
        process.wait()


def existing_tests(wanted: list[str]) -> list[str]:
    """Those of `wanted` that this interpreter has, `test.` left out."""
    import importlib.util

    if importlib.util.find_spec("test.libregrtest") is None:
        print(f"{sys.executable} comes without CPython's tests (test.libregrtest)", file=sys.stderr)
        raise SystemExit(2)
    return [name for name in wanted if importlib.util.find_spec(f"test.{name}") is not None]


def run_tests(way: Way, test: str, match: list[str], options: Options) -> Result:
    """Runs the file `test`, or those of its tests that match. A test that has no end is left out of
    a next run, which has the outcomes of the others."""
    without_end: dict[str, str] = {}
    while True:
        ignore = [*options.ignore, *without_end]
        result, culprit, said = run_once(way, test, match, options._replace(ignore=ignore))
        if not culprit or culprit in without_end:
            break
        without_end[culprit] = said
        if match and set(match) <= without_end.keys():
            break
    outcomes = {**result.outcomes, **dict.fromkeys(without_end, NO_END)}
    return Result(outcomes, {**result.messages, **without_end})


def run_once(way: Way, test: str, match: list[str], options: Options) -> tuple[Result, str, str]:
    """The result of one run; if it has none, the test that ran last, and the run's last words."""
    with tempfile.TemporaryDirectory() as folder:
        report, log = Path(folder) / "junit.xml", Path(folder) / "log"
        command = [*way.command, "-m", "test", "-v", "--fail-env-changed"]
        command += ["--junit-xml", str(report)]
        for pattern in match:
            command += ["-m", pattern]
        for pattern in options.ignore:
            command += ["-i", pattern]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        before = descendants("self")
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, test],
                cwd=folder,
                env={**environment, **way.variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            wait_for_end(process, log, before, options.timeout_s)
        finally:
            # After Ctrl-C or SIGTERM it still runs.
            process.kill()
            status = process.wait()
            left = end_processes(before)
        said = log.read_text(errors="replace")
        if report.exists():
            result = read_report(report)
            result.outcomes[EXIT_STATUS] = str(status)
            result.outcomes[PROCESSES_LEFT] = str(len(left))
            result.messages[EXIT_STATUS] = said[-2000:]
            result.messages[PROCESSES_LEFT] = "\n".join(left)
            return result, "", ""
        begun = BEGUN.findall(said)
        name, place = begun[-1] if begun else ("", "")
        # Before 3.11 the place lacks the name.
        culprit = place if place.endswith(f".{name}") else f"{place}.{name}".strip(".")
        return Result({}, {}), culprit, f"exit status {status}\n{said[-4000:]}"


def wait_for_end(
    process: subprocess.Popen[bytes], log: Path, before: set[int], timeout_s: float
) -> None:
    """Waits until the run has ended. Kills it if `log` does not grow for that time."""
    written, end = 0, time.monotonic() + timeout_s
    while process.poll() is None:
        # Every test writes when it begins and when it ends.
        if log.stat().st_size != written:
            written, end = log.stat().st_size, time.monotonic() + timeout_s
        if time.monotonic() > end:
            # regrtest has faulthandler write where each thread is.
            process.send_signal(signal.SIGUSR1)
            time.sleep(1)
            process.kill()
        # A test may wait until an orphan, which this process has adopted, is gone.
        wait_for_ended(descendants("self", without=before | {process.pid}))
        time.sleep(0.1)


def end_processes(before: set[int]) -> list[str]:
    """Ends the processes that were not there `before`, and returns their command lines. This
    process has adopted those that have lost their parent."""
    end = time.monotonic() + TREE_LIMIT_S
    said: list[str] = []
    while left := descendants("self", without=before):
        with Watched(pid for pid in left if state(pid) not in ("Z", "")) as watched:
            still = watched.wait(max(0.0, end - time.monotonic()))
            said += [watched.commands[pid] for pid in still]
            for pid in still:
                watched.kill(pid)
            watched.wait(TREE_LIMIT_S)
        wait_for_ended(left)
    return said


def wait_for_ended(pids: set[int]) -> None:
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def read_report(report: Path) -> Result:
    result = Result({}, {})
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.get("name", "?")
        result.outcomes[name] = "passed"
        for child in case:
            if child.tag in ("error", "failure", "skipped"):
                result.outcomes[name] = child.tag
                result.messages[name] = child.text or child.get("message") or ""
                break
    return result


def differing(plain: Result, measured: Result) -> list[str]:
    one, other = plain.outcomes, measured.outcomes
    names = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    # Another outcome of a test makes another exit status.
    return [name for name in names if name != EXIT_STATUS or len(names) == 1]


def compare(way: Way, test: str, plain: Result, options: Options) -> tuple[Different, Different]:
    """The tests whose outcome in this way never agreed with that as plain Python, and those whose
    outcome did not agree at first: both outcomes, and what the test said."""
    measured = run_tests(way, test, [], options)
    different = differing(plain, measured)
    for name in [name for name in different if (name, way.kind) in EXPLAINED]:
        print(f"  {way.name}: {name} differs: {EXPLAINED[name, way.kind]}", flush=True)
        different.remove(name)
    at_first = rows_of(different, plain, measured)
    for _ in range(ATTEMPTS - 1):
        if not different:
            break
        print(f"  {way.name}, again: {', '.join(different)}", flush=True)
        # It takes all tests to leave a process behind, or another exit status.
        is_whole = not {EXIT_STATUS, PROCESSES_LEFT}.isdisjoint(different)
        match = [] if is_whole or not plain.outcomes else different
        plain, measured = (run_tests(each, test, match, options) for each in (PLAIN, way))
        different = [name for name in differing(plain, measured) if name in different]
    for name in different:
        del at_first[name]
    return rows_of(different, plain, measured), at_first


def rows_of(names: list[str], plain: Result, measured: Result) -> Different:
    return {
        name: {
            "plain": plain.outcomes.get(name, "none"),
            "headway": measured.outcomes.get(name, "none"),
            "said": measured.messages.get(name, ""),
        }
        for name in names
    }


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


def compare_all(tests: list[str], ways: list[Way], options: Options, record: Record) -> None:
    for test in tests:
        if test in record.tests:
            print(f"{test}: compared before", flush=True)
            continue
        plain = run_tests(PLAIN, test, [], options)
        compared = {way.name: compare(way, test, plain, options) for way in ways}
        different = {name: never for name, (never, _) in compared.items() if never}
        at_first = {name: rows for name, (_, rows) in compared.items() if rows}
        own = (EXIT_STATUS, PROCESSES_LEFT)
        outcomes = [what for name, what in plain.outcomes.items() if name not in own]
        counts = {what: outcomes.count(what) for what in sorted(set(outcomes))}
        verdict = "same" if counts else "DIFFERENT: no outcome as plain Python"
        if different:
            verdict = "DIFFERENT"
        told = ", ".join(f"{count} {what}" for what, count in counts.items())
        print(f"{test}: {told}: {verdict}", flush=True)
        for name, found in different.items():
            for each, row in found.items():
                print(f"  {name}: {each}: {row['plain']}, with Headway {row['headway']}")
        record.add(test, {"outcomes": counts, "different": different, "at_first": at_first})


def end_at_signal(number: int, frame: object) -> NoReturn:
    """Ends the script as an exception does, so that nothing that it started is left."""
    sys.exit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "tests", nargs="*", metavar="TEST", help="default: those that Headway could harm"
    )
    parser.add_argument(
        "--way",
        metavar="WAY",
        choices=WAYS,
        action="append",
        default=[],
        help=f"compare in this way ({', '.join(WAYS)}); may be given several times (default: run)",
    )
    parser.add_argument(
        "--policy",
        metavar="P",
        action="append",
        default=[],
        help="compare under this policy; may be given several times (default: interval)",
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=float,
        default=300.0,
        help="the seconds after which a single test counts as hanging (default: %(default)g)",
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
    options = Options(arguments.ignore, arguments.timeout)
    kinds, policies = arguments.way or ["run"], arguments.policy or ["interval"]
    record = Record(
        arguments.json, {"ways": kinds, "policies": policies, "ignore": arguments.ignore}
    )
    tests = existing_tests(arguments.tests or TESTS)
    # A shell's background job ignores SIGINT, and so would the tests.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, end_at_signal)
    _native.process_adopt_orphans()
    with tempfile.TemporaryDirectory() as folder, recorder(Path(folder)) as socket:
        compare_all(tests, ways_of(kinds, policies, socket), options, record)
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
