"""Blocks of a program: each is one run, under `headway run` with the setting that is tried."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import IO

from headway.errors import CommandError, reason_of
from headway.programs import signals
from headway.programs.processes import end, prepare_child
from headway.report import columns
from headway.temporary import temporary_file
from headway.tune.goals import CPU, MEMORY, TIME, Figures
from headway.tune.setting import Setting
from headway.tune.trials import Measured

MAX_MESSAGE = 200


class ProgramRuns:
    """Runs a program. `words` are what follows `headway run` and its options."""

    def __init__(self, words: Sequence[str], metric: re.Pattern[str] | None) -> None:
        self._words = list(words)
        self._metric = metric

    def measure(self, setting: Setting, control: Figures | None) -> Measured:
        """One run; a run that fails has no figures. Raises CommandError if the program prints no
        number."""
        with temporary_file() as stdout, temporary_file() as stderr:
            began_s = time.monotonic()
            with signals.held():
                process = self._start(setting, stdout.fileno(), stderr.fileno())
            try:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            finally:
                end(process)
            figures = {
                TIME.key: time.monotonic() - began_s,
                CPU.key: usage.ru_utime + usage.ru_stime,
                MEMORY.key: usage.ru_maxrss * 1024.0,
            }
            if process.returncode != 0:
                last = _last_line(stderr)
                why = f"the program {_ending(process.returncode)}; it wrote: {last}"
                return Measured({}, why, has_failed=True)
            if self._metric is not None:
                figures["metric"] = self._read_metric(self._metric, stdout)
        return Measured(figures)

    def _start(self, setting: Setting, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
        options = ["--policy", setting.policy, "--switch-interval", str(setting.switch_interval_s)]
        command = [sys.executable, "-m", "headway", "run", "--follow", *options, *self._words]
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                preexec_fn=partial(prepare_child, 0),
            )
        except OSError as error:
            raise CommandError(f"PROGRAM cannot be started: {reason_of(error)}") from error

    def _read_metric(self, pattern: re.Pattern[str], stdout: IO[bytes]) -> float:
        stdout.seek(0)
        text = stdout.read().decode(errors="replace")
        found = list(pattern.finditer(text))
        if not found:
            raise CommandError(
                f"--metric: nothing on the program's stdout matches {pattern.pattern!r}"
            )
        number = found[-1][1] if pattern.groups else found[-1][0]
        try:
            return float(number.replace(",", ""))
        except ValueError:
            raise CommandError(
                f"--metric: it matched {number!r}, and must match a number, in its first group"
            ) from None


def _ending(exit_code: int) -> str:
    if exit_code < 0:
        return f"was ended by {signal.Signals(-exit_code).name}"
    return f"ended with exit status {exit_code}"


def _last_line(stream: IO[bytes]) -> str:
    """Of what the program wrote before the report of `headway run`."""
    stream.seek(0)
    text = stream.read().decode(errors="replace").partition("headway  Python ")[0]
    lines = text.strip().splitlines()
    return columns.name(lines[-1], MAX_MESSAGE) if lines else "nothing"
