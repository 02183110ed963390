"""`headway` whose processes report ten times a second, so that a test waits for no tick.

The option --telemetry-interval takes 0.5 seconds at least, which protects recorders; the reporter
itself takes any time.
"""

from __future__ import annotations

import sys

from served import Served

HEADWAY = (
    sys.executable,
    "-c",
    "import sys; from headway import cli; from headway.meter import reporter; "
    "reporter.MIN_INTERVAL_S = 0.1; sys.exit(cli.main())",
)
INTERVAL = ("--telemetry-interval", "0.1")


class Ticking(Served):
    """A running `headway serve APP --telemetry TARGET --telemetry-interval 0.1`."""

    def __init__(self, app: str, target: str, *options: str, **changes: str) -> None:
        super().__init__(app, "--telemetry", target, *INTERVAL, *options, **changes)

    def _start(self, command: list[str], **changes: str) -> None:
        assert command[:2] == ["-m", "headway"]
        super()._start([*HEADWAY[1:], *command[2:]], **changes)
