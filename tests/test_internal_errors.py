"""A panic in a call from Python is an exception, and the program goes on."""

from __future__ import annotations

import re

import pytest
from launch import environment, python

pytestmark = pytest.mark.free_threading

PLACE = r"\(crates/native/src/internal_errors\.rs:\d+\)"


@pytest.mark.parametrize(
    ("detached", "words"), [(False, "requested"), (True, "requested, detached")]
)
def test_a_panic_is_a_system_error_and_is_counted(detached: bool, words: str) -> None:
    code = f"""
from headway import _native
for _ in range(2):
    try:
        _native.internal_error({detached})
    except SystemError as error:
        print(error)
print(_native.internal_errors())
"""
    result = python("-c", code)
    *messages, count = result.stdout.splitlines()
    lines = result.stderr.splitlines()
    assert (result.returncode, count, len(lines), len(messages)) == (0, "2", 2, 2), result.stderr
    for message, line in zip(messages, lines, strict=True):
        assert re.fullmatch(
            f"internal error of Headway, the program goes on: {words} {PLACE}", message
        )
        assert re.fullmatch(f"headway: internal error: {words} {PLACE}", line)


def test_the_gil_the_thread_and_the_next_call_are_as_before() -> None:
    code = """
import sys, threading
from headway import _native

errors = []
def panic(detached):
    for _ in range(200):
        try:
            _native.internal_error(detached)
        except SystemError as error:
            errors.append(error)

threads = [threading.Thread(target=panic, args=(bool(n % 2),)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join(60)
assert not any(thread.is_alive() for thread in threads)
assert len(errors) == 800 == _native.internal_errors()
if hasattr(sys, "_is_gil_enabled") and not sys._is_gil_enabled():
    sys.exit()
_native.gil_install(None, False, None, None)
panic(True)
gil = _native.gil_snapshot()["gils"][0]
assert gil["takes"] >= 200, gil
"""
    result = python("-c", code)
    assert result.returncode == 0, result.stderr[-2000:]


def test_a_backtrace_follows_if_it_is_requested() -> None:
    code = "from headway import _native\n_native.internal_error(False)"
    result = python("-c", code, env=environment(RUST_BACKTRACE="1"))
    assert "headway: internal error: requested (crates/" in result.stderr
    assert "internal_error" in result.stderr.split("Traceback")[0]
    assert "SystemError: internal error of Headway" in result.stderr


def test_a_panic_with_a_closed_stderr_is_an_exception_too() -> None:
    code = """
import os
from headway import _native
os.close(2)
try:
    _native.internal_error(False)
except SystemError:
    print("the program goes on")
"""
    result = python("-c", code)
    assert (result.returncode, result.stdout) == (0, "the program goes on\n")
