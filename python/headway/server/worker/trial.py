"""The requests of `headway tune` to a worker: another policy and switch interval, and blocks.

The main thread runs it while worker threads serve.
"""

from __future__ import annotations

import sys
from typing import TypedDict

from headway import gil
from headway.errors import Unsupported
from headway.report.distributions import sum_distributions
from headway.server.control import Message
from headway.server.settings import ProcessGroup
from headway.server.stderr import say
from headway.server.worker.serving import Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.report.distributions import Raw


class BlockCounts(TypedDict):
    """The answered requests of a block."""

    errors: int
    cpu_ns: int
    response: Raw


def set_gil(group: ProcessGroup, message: Message) -> None:
    """Changes the policy and the switch interval. They stay as they are where the GIL cannot be
    scheduled."""
    try:
        gil.install(str(message["policy"]), kernel_hints=group.kernel_hints)
    except Unsupported as reason:
        say(f"the policy {message['policy']} is not tried: {reason}")
    sys.setswitchinterval(float(message["switch_interval_s"]))


def act_on_block(server: Server, message: Message) -> BlockCounts | None:
    """Begins or ends a block, or returns its requests, of one path or of all."""
    action, path = message["action"], message.get("path")
    if action == "begin":
        server.begin_block()
    elif action == "end":
        server.end_block()
    else:
        rows = [row for row in server.block() if path is None or row[0] == path]
        return {
            "errors": sum(row[1] for row in rows),
            "cpu_ns": sum(row[2] for row in rows),
            "response": sum_distributions(row[3] for row in rows),
        }
    return None
