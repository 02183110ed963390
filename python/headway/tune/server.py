"""Blocks of a running server: some seconds of its traffic under a setting.

A block counts the requests that come in it, whenever they are answered: before it, a washout leaves
the time for the former setting's queues to go, and after it as much time for answers. Latencies
are the server's own, or those of the load that Headway makes.
"""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol

from headway.report.distributions import percentiles_ns
from headway.tune.connection import RENEWAL_S, Connection, Counts
from headway.tune.goals import CPU_PER_REQUEST, P50, P99, THROUGHPUT, Figures
from headway.tune.setting import Setting
from headway.tune.trials import Measured

# Percentiles that end a block early, with the number of requests from which on at least five are
# slower. The p99 of fewer requests than 500 is the chance of a few.
LATE_PERCENTILES = ((500, "p99"), (100, "p95"))
# Errors beyond the control's share that do not end a block.
ALLOWED_ERRORS = 0.01
ERRORS = "errors"


class Timing(NamedTuple):
    """`limit` is the multiple of the control's p99 or errors at which a block ends early."""

    block_s: float
    washout_s: float
    limit: float


class Load(Protocol):
    """A load that Headway makes."""

    def figures(self, begin_ns: int, end_ns: int, target: str | None) -> Figures:
        """P50, P99 and THROUGHPUT of the requests for a target, or for all, that were due between
        two monotonic times."""


class Server:
    def __init__(
        self, connection: Connection, timing: Timing, path: str | None, load: Load | None = None
    ) -> None:
        """`path` is the only one whose requests count; None counts all."""
        self._connection = connection
        self._timing = timing
        self._path = path
        self._load = load

    def measure(self, setting: Setting, control: Figures | None) -> Measured:
        """`control` has the control's highest figures; None ends no block early. Raises
        CommandError if the server has gone."""
        timing, connection = self._timing, self._connection
        connection.try_setting(setting)
        connection.wait(timing.washout_s)
        connection.begin_block()
        begin_ns = time.monotonic_ns()
        hurt = self._watch(control)
        connection.end_block()
        end_ns = time.monotonic_ns()
        if hurt:
            return Measured({}, hurt)
        connection.wait(timing.washout_s)
        counts = connection.read_block(self._path)
        if not counts["is_whole"]:
            return Measured({})
        figures = figures_of(counts, (end_ns - begin_ns) / 1e9)
        if self._load is not None:
            figures = {**figures, **self._load.figures(begin_ns, end_ns, self._path)}
        return Measured(figures)

    def _watch(self, control: Figures | None) -> str:
        """Waits for the end of the block, or until a candidate hurts; why it does."""
        began_s = time.monotonic()
        while (left_s := self._timing.block_s - (time.monotonic() - began_s)) > 0:
            self._connection.wait(min(left_s, RENEWAL_S))
            if control:
                counts = self._connection.read_block(self._path)
                if why := harm(counts, control, self._timing.limit):
                    return why
        return ""


def figures_of(counts: Counts, seconds: float) -> Figures:
    """Empty without requests."""
    number = counts["response"]["count"]
    if not number:
        return {}
    percentiles = percentiles_ns({**counts["response"]})
    return {
        P99.key: (percentiles["p99"] or 0) / 1e9,
        P50.key: (percentiles["p50"] or 0) / 1e9,
        THROUGHPUT.key: number / seconds,
        CPU_PER_REQUEST.key: counts["cpu_ns"] / number / 1e9,
        ERRORS: counts["errors"] / number,
    }


def harm(counts: Counts, control: Figures, limit: float) -> str:
    """Why a candidate hurts; empty if it does not. `control` has the control's highest figures."""
    number = counts["response"]["count"]
    late = next((name for least, name in LATE_PERCENTILES if number >= least), None)
    if late is None:
        return ""
    late_s = (percentiles_ns({**counts["response"]})[late] or 0) / 1e9
    # The control's latencies may be the load's, which counts waiting for a connection as well.
    if late_s > limit * control[P99.key]:
        return f"{late} {P99.show(late_s)}, beyond {limit:g} times the p99 of the control"
    errors = counts["errors"] / number
    if errors > limit * control.get(ERRORS, 0.0) + ALLOWED_ERRORS:
        return f"{errors:.1%} errors, beyond {limit:g} times the control's"
    return ""
