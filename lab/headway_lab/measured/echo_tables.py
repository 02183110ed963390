"""The tables and charts of `echo`, from its results alone."""

from __future__ import annotations

from collections.abc import Sequence

from headway.options import DEFAULT_SWITCH_INTERVAL_S
from headway.output import statistics
from headway.output.metadata import STOCK
from headway.output.results import Result, Results
from headway.output.table import Cell, Chart, Table, cell_of, text_of
from headway_lab.arrangement import label_of, pivot, series_by, series_of
from headway_lab.measured.echo_value import CLIENT_ELSEWHERE, FREE, PROCESSES, THREADS


def reference_interval_s(intervals_s: Sequence[float]) -> float:
    """The interval for comparisons of rows that do not differ in it."""
    there = DEFAULT_SWITCH_INTERVAL_S in intervals_s
    return DEFAULT_SWITCH_INTERVAL_S if there else intervals_s[0]


def convoy(results: Results, policy: str, cores: str = FREE) -> Results:
    """The rows of one policy, by number of threads."""
    found = results.where(policy=policy, mode=THREADS, cores=cores)
    found.rows.sort(key=lambda row: row.parameters["cpu_threads"])
    return found


def tables(results: Results) -> list[Table]:
    if not results.rows:
        return []
    interval_s = reference_interval_s(results.distinct("switch_interval"))
    at_reference = results.where(switch_interval=interval_s)
    plain = at_reference.where(policy=STOCK, cores=FREE)
    found = [by_interval(results, policy) for policy in results.distinct("policy")]
    alone = convoy(results, STOCK, CLIENT_ELSEWHERE)
    if len(alone.distinct("switch_interval")) > 1:
        title = f"{STOCK}, a processor for the server alone"
        found.insert(1, by_interval_of(without_gaps(alone), title))
    found += [figures(at_reference.where(mode=THREADS, cores=FREE), plain, interval_s)]
    if set(plain.distinct("mode")) - {THREADS}:
        found += [by_mode(plain, "requests/s"), by_mode(plain, "CPU work", "work_share")]
    if set(results.distinct("cores")) - {FREE}:
        found += [by_cores(at_reference.where(mode=THREADS))]
    return [table for table in found if table.rows]


def by_interval(results: Results, policy: str) -> Table:
    return by_interval_of(convoy(results, policy), policy)


def without_gaps(rows: Results) -> Results:
    """The rows with numbers of threads that were measured at every interval."""
    intervals = len(rows.distinct("switch_interval"))
    counts = [row.parameters["cpu_threads"] for row in rows]
    kept = [row for row in rows if counts.count(row.parameters["cpu_threads"]) == intervals]
    return Results(rows.name, rows.unit, kept, rows.calibration)


def by_interval_of(rows: Results, title: str) -> Table:
    """A table from the longest interval to the shortest."""
    table = pivot(
        rows,
        f"{title}: requests/s, by switch interval and CPU-bound threads",
        "switch_interval",
        "cpu_threads",
        down_text=interval_text,
        across_text=threads_text,
    )
    lines = zip(rows.distinct("switch_interval"), table.rows, strict=True)
    ordered = sorted(lines, key=lambda line: line[0], reverse=True)
    return table._replace(rows=[cells for _, cells in ordered])


def figures(rows: Results, plain: Results, interval_s: float) -> Table:
    """A table of policies, with the time of a request."""
    lines = []
    for cpu_threads in sorted(rows.distinct("cpu_threads")):
        stock = rows.measured(policy=STOCK, cpu_threads=cpu_threads)
        processes = plain.measured(mode=PROCESSES, cpu_threads=cpu_threads)
        for row in rows.where(cpu_threads=cpu_threads):
            lines.append(
                [
                    Cell(text=str(cpu_threads)),
                    Cell(text=row.parameters["policy"]),
                    cell_of(row),
                    ratio(row, stock),
                    ratio(row, processes),
                    *(milliseconds(row, figure) for figure in ("p50_s", "p99_s", "max_s")),
                    cell_of(row, "work_share"),
                    cell_of(row, "left_share"),
                ]
            )
    return Table(
        f"requests at {interval_text(interval_s)}, by policy",
        (
            "CPU-bound",
            "policy",
            "requests/s",
            "/stock",
            "/processes",
            "p50 ms",
            "p99 ms",
            "max ms",
            "CPU work",
            "left",
        ),
        lines,
        2,
        "CPU work: of all CPU-bound threads together, of what one alone gets done; left: the share "
        "of the GIL's time that the echo thread and the handoffs left them.",
    )


def by_mode(plain: Results, title: str, figure: str = "") -> Table:
    return pivot(
        plain,
        f"{STOCK}: {title}, by where the CPU-bound work runs",
        "mode",
        "cpu_threads",
        across_text=threads_text,
        figure=figure,
    )


def by_cores(rows: Results) -> Table:
    counts = sorted(rows.distinct("cpu_threads"))
    lines = [
        [
            Cell(text=policy),
            Cell(text=cores),
            *(
                cell_of(rows.find(policy=policy, cores=cores, cpu_threads=count))
                for count in counts
            ),
        ]
        for policy in rows.distinct("policy")
        for cores in rows.where(policy=policy).distinct("cores")
    ]
    return Table(
        "requests/s, by the processors that server and client may use",
        ("policy", "processors", *map(threads_text, counts)),
        lines,
        2,
        "free: all; client elsewhere: one for the server, another for its client; one: the same "
        "for both.",
    )


def charts(results: Results) -> list[Chart]:
    found = [interval_chart(results, policy) for policy in results.distinct("policy")]
    return [chart for chart in (*found, threads_chart(results)) if chart is not None]


def interval_chart(results: Results, policy: str) -> Chart | None:
    rows = convoy(results, policy)
    if len(rows.distinct("switch_interval")) < 2:
        return None
    return Chart(
        f"{policy}: an echo server beside CPU-bound threads",
        "switch interval (s)",
        "requests/s",
        series_by(rows, "cpu_threads", "switch_interval", name=threads_text),
        log_x=True,
        log_y=True,
    )


def threads_chart(results: Results) -> Chart | None:
    """A chart of policies and processes at one interval."""
    if len(results.distinct("cpu_threads")) < 2:
        return None
    interval_s = reference_interval_s(results.distinct("switch_interval"))
    rows = results.where(switch_interval=interval_s, cores=FREE)
    lines = [
        series_of(convoy(rows, policy), policy, "cpu_threads")
        for policy in results.distinct("policy")
    ]
    lines.append(series_of(rows.where(mode=PROCESSES), PROCESSES, "cpu_threads"))
    return Chart(
        f"an echo server at {interval_text(interval_s)}, by policy",
        "CPU-bound threads",
        "requests/s",
        [line for line in lines if line.points],
        log_y=True,
    )


def ratio(row: Result, other: Result | None) -> Cell:
    if other is None or not row.values:
        return Cell(text="-")
    return Cell(*statistics.paired_ratio(row.values, other.values))


def milliseconds(row: Result, figure: str) -> Cell:
    found = row.interval(figure)
    if found is None:
        return Cell(text="-")
    return Cell(found.median * 1e3, found.low * 1e3, found.high * 1e3)


def interval_text(interval_s: object) -> str:
    return text_of("switch_interval", interval_s)


def threads_text(count: object) -> str:
    return label_of("threads", count)
