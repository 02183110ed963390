"""The tables and charts of `echo`, from its results alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headway.bench import statistics
from headway.bench.experiment import DEFAULT_SWITCH_INTERVAL_S, STOCK
from headway.bench.experiments.echo_value import FREE, PROCESSES, THREADS
from headway.bench.results import Result, Results
from headway.bench.table import Cell, Chart, Series, Table, cell_of, pivot


def reference_interval_s(intervals_s: Sequence[float]) -> float:
    """The one at which all is compared that does not differ in it."""
    there = DEFAULT_SWITCH_INTERVAL_S in intervals_s
    return DEFAULT_SWITCH_INTERVAL_S if there else intervals_s[0]


def convoy(results: Results, policy: str) -> Results:
    """From the longest interval to the shortest."""
    found = results.where(policy=policy, mode=THREADS, cores=FREE)
    found.rows.sort(
        key=lambda row: (-row.parameters["switch_interval"], row.parameters["cpu_threads"])
    )
    return found


def tables(results: Results) -> list[Table]:
    if not results.rows:
        return []
    interval_s = reference_interval_s(results.distinct("switch_interval"))
    at_reference = results.where(switch_interval=interval_s)
    plain = at_reference.where(policy=STOCK, cores=FREE)
    found = [by_interval(results, policy) for policy in results.distinct("policy")]
    found += [figures(at_reference.where(mode=THREADS, cores=FREE), plain, interval_s)]
    if set(plain.distinct("mode")) - {THREADS}:
        found += [by_mode(plain, "requests/s"), by_mode(plain, "CPU work", "work_share")]
    if set(results.distinct("cores")) - {FREE}:
        found += [by_cores(at_reference.where(mode=THREADS))]
    return [table for table in found if table.rows]


def by_interval(results: Results, policy: str) -> Table:
    return pivot(
        convoy(results, policy),
        f"{policy}: requests/s, by switch interval and CPU-bound threads",
        "switch_interval",
        "cpu_threads",
        down_text=interval_text,
        across_text=threads_text,
    )


def figures(rows: Results, plain: Results, interval_s: float) -> Table:
    """Policies beside each other, and how long a request takes."""
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
    return [*filter(None, found), *threads_chart(results)]


def interval_chart(results: Results, policy: str) -> Chart | None:
    rows = convoy(results, policy)
    if len(rows.distinct("switch_interval")) < 2:
        return None
    series = [
        Series(
            threads_text(count),
            points(rows.where(cpu_threads=count), "switch_interval"),
            # A logarithm has no place for nought.
            [
                (row.parameters["switch_interval"], row.published)
                for row in rows.where(cpu_threads=count)
                if row.published
            ],
        )
        for count in sorted(rows.distinct("cpu_threads"))
    ]
    return Chart(
        f"{policy}: an echo server beside CPU-bound threads",
        "switch interval (s)",
        "requests/s",
        series,
        log_x=True,
        log_y=True,
    )


def threads_chart(results: Results) -> Iterator[Chart]:
    if not results.rows:
        return
    interval_s = reference_interval_s(results.distinct("switch_interval"))
    rows = results.where(switch_interval=interval_s, cores=FREE)
    if len(rows.distinct("cpu_threads")) < 2:
        return
    lines = [(policy, convoy(rows, policy)) for policy in results.distinct("policy")]
    lines.append((PROCESSES, rows.where(mode=PROCESSES)))
    series = [Series(name, points(line, "cpu_threads")) for name, line in lines if line.rows]
    yield Chart(
        f"an echo server at {interval_text(interval_s)}, by policy",
        "CPU-bound threads",
        "requests/s",
        series,
        log_y=True,
    )


def points(rows: Results, parameter: str) -> list[tuple[float, float, float, float]]:
    found = []
    for row in rows:
        interval = row.interval()
        if interval is not None and interval.median > 0:
            found.append((row.parameters[parameter], *interval))
    return sorted(found)


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
    assert isinstance(interval_s, (int, float))
    return f"{interval_s * 1e3:g} ms"


def threads_text(count: object) -> str:
    return f"{count} threads" if count != 1 else "1 thread"
