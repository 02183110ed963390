"""`wsgi`: a page of 3 ms of Python, served by processes and threads of several shapes.

The rows are those of the measurements that were published with mod_wsgi 6.0, and further ones of
the same kind. The page has two versions, and only one of them reproduces the published values; see
`claims`. For the policy `stock`, which is plain python, Headway's server uses `interval`: CPython's
own rule, measured. Each value starts a new server (`server`), puts it under load
(`programs/http_load.py`), and receives the reports of its processes (`reports`).
"""

from __future__ import annotations

import os

from headway.output.claim import Statement
from headway.output.results import Parameters, Results
from headway.output.table import Chart, Table
from headway_lab.experiment import Choice, Experiment, Measured, Row
from headway_lab.measured.wsgi import charts, claims, rows, tables
from headway_lab.measured.wsgi.load import load_server, work_s

SECONDS, WARM_UP_S = 2.5, 0.5
QUICK_SECONDS, QUICK_WARM_UP_S = 0.6, 0.2
FIXED_WORK_S = 0.003
TRIAL_LOOPS = 50_000


class Wsgi(Experiment):
    name = "wsgi"
    unit = "requests/min"
    summary = "a page of 3 ms of Python, served by processes x threads, by switch interval"
    shows = (
        "Ten clients ask a web server again and again for a page of 3 ms of Python, 1 ms of "
        "waiting and 1 KB, which processes x threads of several shapes serve. A small switch "
        "interval gains, as published, if the page computes until 3 ms have passed on the clock "
        "(deadline), since threads that take turns let each other's time run out; if it computes "
        "what takes 3 ms (fixed), it gains nothing, or costs."
    )
    heeds = frozenset({"policy", "switch-interval", "workload", "shape", "server"})
    known_workloads = tuple(rows.WORKLOADS)

    def rows(self, choice: Choice) -> list[Row]:
        return rows.rows(choice)

    def calibrate(self, choice: Choice) -> Parameters:
        """The number of loops that take one thread 3 ms."""
        seconds = work_s(choice.setting(), TRIAL_LOOPS)
        return {
            "fixed_loops": round(TRIAL_LOOPS * FIXED_WORK_S / seconds),
            "cpus": len(os.sched_getaffinity(0)),
        }

    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured:
        fixed_loops = calibration["fixed_loops"]
        more: dict[str, float] = {}
        if rows.compares_builds(row.parameters):
            more["work_s"] = work_s(row.setting._replace(policy=None), fixed_loops)
        found = load_server(
            rows.shape_of(row),
            rows.WORKLOADS[row.parameters["workload"]],
            fixed_loops,
            QUICK_WARM_UP_S if choice.quick else WARM_UP_S,
            choice.seconds or (QUICK_SECONDS if choice.quick else SECONDS),
        )
        return found._replace(figures={**found.figures, **more})

    def published(self, parameters: Parameters) -> float | None:
        found = tables.published(parameters)
        return found.rpm if found else None

    def tables(self, results: Results) -> list[Table]:
        return tables.tables(results)

    def charts(self, results: Results) -> list[Chart]:
        return charts.charts(results)

    def statements(self, results: Results) -> list[Statement]:
        return claims.statements(results)
