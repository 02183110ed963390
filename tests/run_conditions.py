"""The conditions of a test run, wherever it starts, and what no test may leave: for conftest.py."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import leftovers
import pytest

from headway import _native

LINUX = sys.platform == "linux"


def pytest_configure() -> None:
    # A shell's background job ignores SIGINT, and the programs under test would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # And what nohup starts ignores SIGHUP.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("slow"):
            if len(mark.args) != 1 or not isinstance(mark.args[0], str):
                raise pytest.UsageError(
                    f"{item.nodeid}: found slow{mark.args}, where slow(reason) is allowed"
                )


@pytest.fixture(scope="session", autouse=True)
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, ...]]:
    """Where this run's processes keep temporary files."""
    # tmp_path stays where it ever was.
    tmp_path_factory.getbasetemp()
    # Without it no process would be found, and every test would pass.
    assert os.path.exists(f"/proc/self/task/{threading.get_native_id()}/children")
    # Processes that lose their parent become children of this one, which finds them.
    _native.process_adopt_orphans()
    with (
        tempfile.TemporaryDirectory(prefix="headway-tests-") as folder,
        leftovers.folders_of_the_run(Path(folder)) as folders,
    ):
        before = leftovers.snapshot(folders)
        yield folders
        left = list(leftovers.left_by_fixtures(before, folders))
    if left:
        pytest.fail("the fixtures of modules left " + "; ".join(left), pytrace=False)


@pytest.fixture(autouse=True)
def nothing_is_left(folders: tuple[Path, ...]) -> Iterator[None]:
    """Set up before a test's other fixtures, and torn down after them."""
    before = leftovers.snapshot(folders)
    yield
    if left := list(leftovers.found(before, folders)):
        pytest.fail("the test left " + "; ".join(left), pytrace=False)
