"""`bandwidth`: ccbench's third test, the number of UDP packets that a thread echoes beside
others."""

from __future__ import annotations

from contextlib import ExitStack

from headway.options import DEFAULT_SWITCH_INTERVAL_S
from headway.output.claim import Statement
from headway.output.metadata import STOCK
from headway.output.results import Parameters, Results
from headway.output.table import Chart, Table
from headway.programs.processes import ProgramError, Window
from headway_lab.experiment import Choice, Measured, Row
from headway_lab.measured.ccbench import (
    SWIFT_POLICIES,
    THREADS,
    WorkloadExperiment,
    groups,
    ratio,
    ratio_series,
    tables_by_threads,
)
from headway_lab.setting import STOCK as PLAIN
from headway_lab.setting import Setting, program

SECONDS = 1.0
QUICK_SECONDS = 0.3
WARM_UP_S = 0.1
PACKET_BYTES = 1_024

# The largest share of the packets that stock may still echo beside several computing threads.
MOST_LEFT = 0.1
# The least gain from a policy that prefers I/O.
LEAST_GAIN = 5
BUSY = (
    "where others keep the other processors busy, server and client share one, and there few "
    "computing threads cost stock little, see echo"
)


class Bandwidth(WorkloadExperiment):
    name = "bandwidth"
    unit = "packets/s"
    summary = "ccbench: UDP packets echoed a second, with CPU-bound threads"
    shows = (
        "A client sends a UDP packet of 1 KB, waits until a thread has sent it back, and sends the "
        "next, while other threads of that process compute. Whenever one of those has the GIL, the "
        "echoing thread waits a switch interval or more for its packet, and of tens of thousands "
        "of packets a second few are left."
    )
    threads_are = "cpu_threads"
    least_threads = 0
    # ccbench measures only this workload here.
    workloads = ("A",)
    quick_workloads = ("A",)
    threads = (0, 1, 2, 4)
    quick_threads = (0, 1, 2)
    intervals_s = (0.005, 0.001, 0.0001)

    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured:
        seconds = choice.seconds or (QUICK_SECONDS if choice.quick else SECONDS)
        workload, cpu_threads = row.parameters["workload"], row.parameters["cpu_threads"]
        return Measured(packets_per_s(row.setting, workload, cpu_threads, seconds))

    def tables(self, results: Results) -> list[Table]:
        return tables_by_threads(results, "cpu_threads", "packets a second", 0)

    def charts(self, results: Results) -> list[Chart]:
        charts = []
        for workload in results.distinct("workload"):
            series = [
                ratio_series(schedule, group, "cpu_threads", group.find(cpu_threads=0))
                for (_, schedule), group in groups(results.where(workload=workload)).items()
            ]
            drawn = [each for each in series if len(each.points) > 1]
            if drawn:
                title = f"packets a second beside workload {workload}, of those beside none"
                charts.append(Chart(title, "computing threads", "ratio", drawn, log_y=True))
        return charts

    def statements(self, results: Results) -> list[Statement]:
        threads = self.most_threads(results)
        if not threads:
            return []
        rows = results.where(mode=THREADS, switch_interval=DEFAULT_SWITCH_INTERVAL_S, workload="A")
        stock = rows.find(policy=STOCK, cpu_threads=threads)
        share = ratio(stock, rows.find(policy=STOCK, cpu_threads=0))
        statements = []
        if share is not None:
            text = f"stock, beside {threads} A threads: packets/s, of those beside none"
            statements.append(Statement(text, share, high=MOST_LEFT, why=BUSY))
        for policy in rows.distinct("policy"):
            gain = ratio(rows.find(policy=policy, cpu_threads=threads), stock)
            if policy in SWIFT_POLICIES and gain is not None:
                text = f"{policy}, beside {threads} A threads: packets/s, of stock's"
                statements.append(Statement(text, gain, LEAST_GAIN, why=BUSY))
        return statements


def packets_per_s(setting: Setting, workload: str, cpu_threads: int, seconds: float) -> float:
    """Raises ProgramError if no packet came back."""
    with ExitStack() as running:
        words = (workload, str(cpu_threads), str(setting.switch_interval_s))
        server = running.enter_context(program(setting, "packet_server", *words))
        port = str(server.answer()["port"])
        # The client is the same for all servers.
        client_words = (port, str(PACKET_BYTES))
        client = running.enter_context(program(PLAIN, "packet_client", *client_words))
        client.answer()
        window = Window.after(WARM_UP_S, seconds)
        for told in (server, client):
            told.measure(window)
        answer = client.answer()
    if not answer["returned"]:
        raise ProgramError(f"packet_server.py under {setting.name} sent no packet back")
    found: float = answer["returned"] / answer["seconds"]
    return found
