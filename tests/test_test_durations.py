"""The table of where the time of a test run went."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "test_durations.py"


def write_results(path: Path, *cases: tuple[str, str, float]) -> Path:
    rows = "".join(
        f'<testcase classname="{name}" name="{test}" time="{duration_s}"/>'
        for name, test, duration_s in cases
    )
    path.write_text(f"<testsuites><testsuite>{rows}</testsuite></testsuites>")
    return path


def show(*arguments: "str | Path") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, SCRIPT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_files_stand_in_the_order_of_their_sums(tmp_path: Path) -> None:
    now = write_results(
        tmp_path / "now.xml",
        ("tests.server.test_log", "test_one", 0.5),
        ("tests.server.test_log.TestClass", "test_two[a.b]", 0.25),
        ("tests.test_cli", "test_help", 2.0),
    )
    before = write_results(tmp_path / "before.xml", ("tests.test_gone", "test_it", 9.0))
    done = show(now, "--before", before, "--slowest", "1")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()[2:]]
    assert rows == [
        ["1", "9.0", "0", "0.0", "tests/test_gone.py"],
        ["0", "0.0", "1", "2.0", "tests/test_cli.py"],
        ["0", "0.0", "2", "0.8", "tests/server/test_log.py"],
        ["1", "9.0", "3", "2.8", "total"],
        ["2.00", "s", "tests/test_cli.py::test_help"],
    ]


def test_what_is_no_junit_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.xml").write_text("<testsuites>")
    done = show(tmp_path / "broken.xml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("test_durations: cannot read the results: ")
    assert done.stderr.count("\n") == 1
