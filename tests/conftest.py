"""The conditions of a test run, wherever it starts."""

from __future__ import annotations

import signal

import pytest


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
