"""One cell of a benchmark with wrk: a server started afresh, warmed up, loaded and weighed."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import wrk
from installed import Installed
from peers import Server
from serving import Served, serving

WARM_UP_S = 1.0


class Cell(NamedTuple):
    """`path` is a page of the application, one of `peers.APPLICATIONS`."""

    application: str
    path: str
    server: Server

    def parameters(self) -> dict[str, Any]:
        return {"application": self.application, "path": self.path, **self.server.parameters()}

    def __str__(self) -> str:
        page = self.application if self.path == "/" else self.path.removeprefix("/")
        return f"{page}, {self.server}"


def measure(
    cell: Cell, installed: Installed, options: argparse.Namespace, **environment: str
) -> dict[str, float]:
    with serving(cell.server, cell.application, installed.bin, **environment) as served:
        wrk.load(served.port, cell.path, WARM_UP_S)
        return weigh(served, cell.path, options.seconds)


def weigh(
    served: Served, path: str, seconds: float, connections: int = wrk.CONNECTIONS
) -> dict[str, float]:
    """All CPU time that the server uses meanwhile is its requests'."""
    used_before_s = served.cpu_s()
    load = wrk.load(served.port, path, seconds, connections)
    used_s = served.cpu_s() - used_before_s
    return {
        "requests_per_s": load.requests / load.duration_s,
        "p50_s": load.p50_s,
        "p99_s": load.p99_s,
        "cpu_per_request_s": used_s / max(1, load.requests),
        "wrk_cpu_share": load.cpu_share,
        "rss_bytes": float(served.rss_bytes()),
    }
