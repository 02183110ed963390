"""The plugin of pytest that `pytest -p headway` loads: a report of the GIL at the end of the run.

`headway.__getattr__` names this module in `pytest_plugins`, which pytest reads in each plugin. No
other module imports it, so that pytest is needed by pytest's users alone. The meter runs from
pytest's configuration to its end. With pytest-xdist each worker measures itself, and the report of
the run lists the workers as children.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any

import pytest

from headway import gil, options
from headway.errors import Unsupported
from headway.meter import engine
from headway.report import event_loops, terminal, units
from headway.report.model import GilReport

NAME = "headway-meter"
# In what a worker of pytest-xdist hands over at its end.
WORKER_REPORT = "headway_report"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("headway").addoption(
        "--headway-policy",
        metavar="P",
        type=_policy,
        help="run the tests under this policy of the GIL, such as priority (default: interval, "
        "CPython's own, which is measured and not changed)",
    )

    parser.getgroup("headway").addoption(
        "--headway-loop-limit",
        metavar="S",
        type=options.argument(options.LOOP_LIMIT),
        help="fail a test whose event loop took this long for an iteration, such as 100ms",
    )


def _policy(text: str) -> str:
    """Any text where there is no meter, because the tests run there too."""
    try:
        policy: str = options.argument(options.Policy())(text)
    except Unsupported:
        return text
    return policy


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    policy: str | None = config.getoption("headway_policy")
    limit_s: float | None = config.getoption("headway_loop_limit")
    config.pluginmanager.register(Meter(policy, limit_s), NAME)


class Meter:
    """The meter of one run of pytest. It is that of the process where HEADWAY or `headway run` have
    turned it on already, and goes on then after the run."""

    def __init__(self, policy: str | None, loop_limit_s: float | None) -> None:
        self._is_own = not gil.is_installed()
        self._refusal = ""
        self._workers: list[GilReport] = []
        self._loop_limit_s = loop_limit_s
        try:
            gil.install(policy or ("interval" if self._is_own else None), loop_limit_s=loop_limit_s)
        except Unsupported as error:
            self._refusal = str(error)

    def pytest_report_header(self) -> str | None:
        return f"headway: {self._refusal}" if self._refusal else None

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        """Fails a test whose event loop was late. The time between two runs of one loop does not
        count, nor does what fixtures do."""
        if self._loop_limit_s is None or self._refusal:
            yield
            return
        # Fixtures may have run for long since a loop ran last.
        engine.leave_loops()
        before = gil.snapshot()
        outcome = yield
        report = (gil.snapshot() - before).report()
        late = [row for row in report.event_loops or () if row.late]
        if late and outcome.excinfo is None:
            worst = max(late, key=lambda row: row.late_s)
            has_gil = report.gil != "disabled"
            limit = units.seconds(self._loop_limit_s)
            said = event_loops.described_row(worst, has_gil).removesuffix(".")
            outcome.force_exception(
                pytest.fail.Exception(
                    f"late event loop: {said} (--headway-loop-limit {limit})", pytrace=False
                )
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None and not self._refusal:
            output[WORKER_REPORT] = gil.snapshot().to_dict()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker of pytest-xdist has ended; one that crashed has no report."""
        report = getattr(node, "workeroutput", {}).get(WORKER_REPORT)
        if report is not None:
            self._workers.append(GilReport.decode(report))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._refusal:
            return
        report = gil.snapshot().report()
        report.children += self._workers
        style = terminal.Style.of_stream(1, getattr(sys.stdout, "encoding", None) or "utf-8")
        style.colour = terminalreporter.hasmarkup
        terminalreporter.section("GIL")
        terminalreporter.write(terminal.draw(report, style))

    def pytest_unconfigure(self) -> None:
        if self._is_own and gil.is_installed():
            gil.uninstall()
