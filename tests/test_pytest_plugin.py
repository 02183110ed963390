"""`pytest -p headway`: a report at the end of a run of tests."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from launch import GIL_ENABLED, Result, environment, python, report_in

pytestmark = pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL")

SUITE = """
import json, os, threading
from headway import gil

def test_one():
    thread = threading.Thread(target=sum, args=(range(1000),), name="the test's thread")
    thread.start()
    thread.join()
    with open(f"found-{os.getpid()}.json", "w") as file:
        json.dump(gil.snapshot().to_dict()["policy"] if gil.is_installed() else None, file)

def test_another():
    test_one()
"""


def run(folder: Path, *options: str, suite: str = SUITE, ini: str = "", **variables: str) -> Result:
    (folder / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{ini}\n")
    (folder / "test_suite.py").write_text(suite)
    words = ("-W", "error", "-m", "pytest", "-p", "no:cacheprovider", *options)
    return python(*words, cwd=folder, env=environment(**variables))


def policies_in(folder: Path) -> set[str | None]:
    """The policies that the tests of the suite ran under."""
    return {json.loads(file.read_text()) for file in folder.glob("found-*.json")}


def test_the_run_ends_with_a_report(tmp_path: Path) -> None:
    result = run(tmp_path, "-p", "headway")
    assert result.returncode == 0, result.stdout + result.stderr
    report = report_in(result.stdout)
    assert "the test's thread" in report
    assert "MainThread" in report
    assert report.rstrip().splitlines()[-1].strip("= ").startswith("2 passed")
    assert policies_in(tmp_path) == {"interval"}


def test_an_option_chooses_the_policy(tmp_path: Path) -> None:
    result = run(tmp_path, "-p", "headway", "--headway-policy", "priority")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "policy priority" in report_in(result.stdout)
    assert policies_in(tmp_path) == {"priority"}


@pytest.mark.slow("another run of pytest")
def test_the_options_of_a_project_choose_both(tmp_path: Path) -> None:
    result = run(tmp_path, ini="addopts = -p headway --headway-policy priority")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "policy priority" in report_in(result.stdout)
    assert policies_in(tmp_path) == {"priority"}


@pytest.mark.slow("another run of pytest")
def test_the_policy_of_the_variable_stays(tmp_path: Path) -> None:
    """Also no warning: pytest cannot rewrite what was imported before it."""
    result = run(tmp_path, "-p", "headway", HEADWAY="deadline")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "policy deadline" in report_in(result.stdout)
    assert policies_in(tmp_path) == {"deadline"}


def test_without_the_plugin_nothing_is_measured(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert not report_in(result.stdout)
    assert policies_in(tmp_path) == {None}


@pytest.mark.slow("starts a pytest with two workers")
def test_workers_of_xdist_are_children_in_the_report(tmp_path: Path) -> None:
    options = ("-p", "headway", "--headway-policy", "priority", "-n", "2", "--dist", "each")
    result = run(tmp_path, "-p", "xdist", *options)
    assert result.returncode == 0, result.stdout + result.stderr
    report = report_in(result.stdout)
    pids = [file.stem.removeprefix("found-") for file in tmp_path.glob("found-*.json")]
    assert len(pids) == 2
    assert all(f"pid {pid}" in report for pid in pids), report
    assert policies_in(tmp_path) == {"priority"}


@pytest.mark.slow("starts a pytest with two workers")
@pytest.mark.parametrize(("value", "policy"), [("priority", None), ("priority,follow", "priority")])
def test_the_variable_reaches_workers_with_follow(
    tmp_path: Path, value: str, policy: str | None
) -> None:
    result = run(tmp_path, "-p", "xdist", "-n", "2", "--dist", "each", HEADWAY=value)
    assert result.returncode == 0, result.stdout + result.stderr
    assert policies_in(tmp_path) == {policy}


def test_a_failure_stays_a_failure(tmp_path: Path) -> None:
    result = run(tmp_path, "-p", "headway", suite="def test_one():\n    assert 1 == 2\n")
    assert result.returncode == 1
    assert "assert 1 == 2" in result.stdout
    assert report_in(result.stdout)


def test_an_unknown_policy_is_an_error_of_usage(tmp_path: Path) -> None:
    result = run(tmp_path, "-p", "headway", "--headway-policy", "prioriy")
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert "found 'prioriy'; allowed: one of interval, priority, deadline" in result.stderr
    assert policies_in(tmp_path) == set()


def test_where_there_is_no_meter_the_tests_run_without_it(tmp_path: Path) -> None:
    """As on macOS, where the extension module does not exist."""
    (tmp_path / "test_suite.py").write_text("def test_one():\n    pass\n")
    code = """
import sys
sys.modules["headway._native"] = None
import pytest
sys.exit(pytest.main(["-p", "headway", "--headway-policy", "priority"]))
"""
    result = python("-c", code, cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "headway: the GIL meter cannot be installed: " in result.stdout
    assert "1 passed" in result.stdout
    assert not report_in(result.stdout)


def test_programs_do_not_import_pytest() -> None:
    code = "import sys, headway; from headway import gil; sys.exit('pytest' in sys.modules)"
    assert python("-c", code).returncode == 0, sys.executable
