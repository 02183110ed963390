"""The charts of `wsgi`: requests and waits by the switch interval, and the lengths of single waits.

They show shapes whose threads share GILs, in rows without a policy. Made from `Results` alone.
"""

from __future__ import annotations

from headway.output.metadata import STOCK
from headway.output.results import Result, Results
from headway.output.table import Chart, Series
from headway_lab.arrangement import series_of
from headway_lab.histogram import histogram, histogram_of
from headway_lab.measured.wsgi.rows import GIL, UNSCHEDULED
from headway_lab.measured.wsgi.tables import BASE, is_theirs, one_thread_each, published, shape_of

PERCENTILES = ("p50", "p95", "p99")
# The number of switch intervals of single waits in a chart, and of parts of each.
INTERVALS = 5
PARTS = 8
NS = 1e9


def charts(results: Results) -> list[Chart]:
    found = []
    for server in results.distinct("server"):
        for workload in results.distinct("workload"):
            some = results.where(server=server, workload=workload)
            name = f"{server}, workload {workload}"
            found += [requests(name, some), waits(name, some), single_waits(name, some)]
    return [chart for chart in found if any(series.points for series in chart.series)]


def shapes(results: Results) -> list[tuple[str, Results]]:
    """The rows of each shape, in the order of the charts."""
    rows = [
        each
        for each in results.where(mode=GIL)
        if each.parameters["threads"] > 1 and each.parameters["policy"] in (STOCK, UNSCHEDULED)
    ]
    some = Results(results.name, results.unit, rows, results.calibration)
    pairs = dict.fromkeys(
        (each.parameters["processes"], each.parameters["threads"]) for each in rows
    )
    return [
        (f"{processes} x {threads}", some.where(processes=processes, threads=threads))
        for processes, threads in pairs
    ]


def requests(name: str, results: Results) -> Chart:
    base = one_thread_each(results)
    series = []
    for shape, some in shapes(results) if base else ():
        assert base is not None
        points = series_of(some, shape, "switch_interval", per=base.median()).points
        # The published values, relative to their own baseline.
        theirs = [
            (each.parameters["switch_interval"], found.rpm / BASE.rpm)
            for each in some
            if is_theirs(base) and (found := published(each.parameters)) is not None
        ]
        series.append(Series(shape, points, sorted(theirs)))
    title = f"{name}: requests, by switch interval"
    whose = shape_of(base) if base else "one thread each"
    return Chart(title, "switch interval (s)", f"share of {whose}'s requests", series, log_x=True)


def waits(name: str, results: Results) -> Chart:
    """The waits of the first shape."""
    series = []
    shape, some = next(iter(shapes(results)), ("", Results("", "", [], {})))
    for percentile in PERCENTILES:
        figure = f"gil_wait_{percentile}_s"
        points = series_of(some, percentile, "switch_interval", figure=figure).points
        theirs = [
            (each.parameters["switch_interval"], getattr(found, figure))
            for each in some
            if (found := published(each.parameters)) is not None
        ]
        known = sorted((x, wait_s) for x, wait_s in theirs if wait_s is not None)
        series.append(Series(percentile, points, known))
    title = f"{name}: waits for the GIL in {shape}, by switch interval"
    return Chart(title, "switch interval (s)", "wait (s)", series, log_x=True, log_y=True)


def single_waits(name: str, results: Results) -> Chart:
    """The single waits of the first shape, at its longest interval. mod_wsgi does not measure
    them."""
    _, some = next(iter(shapes(results)), ("", Results("", "", [], {})))
    known = [
        each for each in some if histogram_of(each) and "contended_gil_wait_p50_s" in each.figures
    ]
    longest = max(known, key=lambda each: float(each.parameters["switch_interval"]), default=None)
    if longest is None:
        return Chart(name, "", "", [])
    interval_s = longest.parameters["switch_interval"]
    shape = f"{longest.parameters['processes']} x {longest.parameters['threads']}"
    title = f"{name}: waits for the GIL in {shape} at {interval_s * 1e3:g} ms, by their length"
    points = distribution(longest, interval_s)
    series = [Series("share of the waits", points)]
    return Chart(title, "wait (s)", "share of the waits", series, multiples_of=interval_s)


def distribution(result: Result, interval_s: float) -> list[tuple[float, float, float, float]]:
    """The share of the waits in each part of an interval. A histogram's bucket is divided among the
    parts that it overlaps."""
    found = histogram_of(result) or histogram(())
    width_s = interval_s / PARTS
    counts = [0.0] * (PARTS * INTERVALS)
    for bound_s, count in found["buckets"]:
        began_s = lower_bound_s(bound_s)
        for part in range(int(began_s / width_s), min(int(bound_s / width_s) + 1, len(counts))):
            low_s, high_s = max(began_s, part * width_s), min(bound_s, (part + 1) * width_s)
            counts[part] += count * max(0.0, high_s - low_s) / (bound_s - began_s)
    total = max(1, found["count"])
    shares = [count / total for count in counts]
    return [((part + 0.5) * width_s, each, each, each) for part, each in enumerate(shares)]


def lower_bound_s(bound_s: float) -> float:
    """The lower bound of the bucket with this upper bound: a bucket is a sixteenth of a power of
    two nanoseconds wide."""
    ns = max(2, round(bound_s * NS))
    return (ns - (1 << ((ns - 1).bit_length() - 1)) / 16) / NS
