"""/metrics: both formats as Prometheus' own parsers read them, and sums that never fall."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import Any

import prometheus
import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics
from ticks import STOPPED, Bench, message, tick

from headway import _native
from headway.recorder.diagnosis.verdict import NAMES as VERDICTS
from headway.recorder.export.exposition import OPEN_METRICS, TEXT, expose
from headway.recorder.metrics import totals
from headway.recorder.metrics.definitions import COUNTER, GIL_BOUNDS, HISTOGRAM, METRICS, STATES
from headway.recorder.query import tables
from headway.recorder.query.measuring import measure_now
from headway.recorder.records.summary import distribution
from headway.recorder.store.selection import EVERYTHING

ACCEPT = "application/openmetrics-text"
GIL = {
    "gil_name": "main",
    "gil_wall": 1.0,
    "gil_held": 0.5,
    "gil_handoff": 0.125,
    "gil_idle": 0.375,
    "gil_takes": 100,
    "gil_contended_takes": 40,
    "gil_forced_drops": 7,
    "gil_wait": [(0.001, 60), (0.000_02, 40)],
    "gil_hold": [(0.004, 90), (20.0, 10)],
}
GC = {"gc_pauses_generation2": 2, "gc_pause": [(0.01, 2)], "gc_collected_total": 5}
WITHOUT_A_GIL: dict[str, Any] = {
    "gil_mode": "disabled",
    "parked_time_histogram": [(0.002, 30), (0.5, 1)],
    "threads": [
        {"thread_name": "worker", "thread_suspended": 0.25, "thread_stopping": 0.0},
        {"thread_name": "collector", "thread_suspended": 0.0, "thread_stopping": 0.125},
    ],
}
LOOPS: dict[str, Any] = {
    "loop_iteration_histogram": [(0.001, 8), (0.25, 2)],
    "loop_polled": 0.5,
    "loop_computed": 0.125,
    "loop_waited": 0.0,
    "loop_blocked": 0.375,
    "loop_late": 2,
    "loop_late_computed": 0.125,
    "loop_late_waited": 0.0,
    "loop_late_blocked": 0.25,
    "loop_late_limit": 0.02,
}
LIVELY: dict[str, Any] = {
    "gils": [GIL],
    "gcs": [GC],
    "application_time_histogram": [(0.015, 10)],
    "gil_wait_time_histogram": [(0.002, 10)],
    "status_2xx_total": 9,
    "status_5xx_total": 1,
    "capacity_utilization": 0.375,
    "switch_interval": 0.005,
    "cpu_cores": 4.0,
    "cgroup_cpu_limit": 2.0,
    "cgroup_memory_limit": 10**9,
}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(name="bench")
def _bench() -> Any:
    bench = Bench(None)
    yield bench
    bench.stop()


def scrape(bench: Bench, accept: str = "") -> Samples:
    """Every sample, by its name and labels, as Prometheus' own parser reads it."""
    kind, body = expose(bench.history, accept)
    read = openmetrics if accept else parser
    assert kind == (OPEN_METRICS if accept else TEXT)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in read.text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset({"host": "alpha", "group": "shop", **labels}.items())]


def test_the_waits_without_a_gil(bench: Bench) -> None:
    bench.run(3, **WITHOUT_A_GIL)
    samples = scrape(bench)
    assert value(samples, "headway_parked_seconds_count") == 3 * 31
    assert value(samples, "headway_parked_seconds_sum") == pytest.approx(3 * 0.56)
    time_s = "headway_stopped_world_time_seconds_total"
    assert value(samples, time_s, state="suspended") == pytest.approx(3 * 0.25)
    assert value(samples, time_s, state="stopping") == pytest.approx(3 * 0.125)


def test_the_event_loops(bench: Bench) -> None:
    bench.run(3, **LOOPS)
    samples = scrape(bench)
    assert value(samples, "headway_loop_lag_seconds_count") == 3 * 10
    assert value(samples, "headway_loop_lag_seconds_sum") == pytest.approx(3 * 0.508)
    assert value(samples, "headway_loop_late_iterations_total") == 3 * 2
    for name, parts in (
        ("loop_time", {"computed": 0.125, "waited": 0.0, "blocked": 0.375, "polled": 0.5}),
        ("loop_late_time", {"computed": 0.125, "waited": 0.0, "blocked": 0.25}),
    ):
        for part, time_s in parts.items():
            found = value(samples, f"headway_{name}_seconds_total", part=part)
            assert found == pytest.approx(3 * time_s), part


def test_a_process_without_event_loops_has_no_metrics_of_them(bench: Bench) -> None:
    bench.run(3, **LIVELY)
    assert not {name for name, _ in scrape(bench) if name.startswith("headway_loop")}


def test_a_process_with_a_gil_has_no_waits_without_one(bench: Bench) -> None:
    bench.run(3, **LIVELY)
    names = {name for name, _ in scrape(bench)}
    assert "headway_gil_takes_total" in names
    assert not {name for name in names if name.startswith(("headway_parked", "headway_stopped"))}


def test_every_metric_is_exposed_under_its_name_and_type(bench: Bench) -> None:
    bench.run(3, **LIVELY, **LOOPS, **WITHOUT_A_GIL)
    families = {
        family.name: family
        for family in openmetrics.text_string_to_metric_families(
            expose(bench.history, ACCEPT)[1].decode()
        )
    }
    # This recorder has no store.
    absent = re.compile("headway_recorder_(store_|not_stored)")
    assert set(families) == {each.name for each in METRICS if not absent.match(each.name)}
    for metric in METRICS:
        if not absent.match(metric.name):
            family = families[metric.name]
            said = (family.type, family.documentation, family.unit)
            assert said == (metric.kind, metric.help, metric.unit)


def test_counters_are_what_ticks_told(bench: Bench) -> None:
    bench.run(3, (100, 101), **LIVELY)
    samples = scrape(bench)
    assert value(samples, "headway_requests_total") == 60
    assert value(samples, "headway_responses_total", code="2xx") == 54
    assert value(samples, "headway_responses_total", code="5xx") == 6
    assert value(samples, "headway_gil_time_seconds_total", state="held") == pytest.approx(3)
    assert value(samples, "headway_gil_time_seconds_total", state="handoff") == pytest.approx(0.75)
    assert value(samples, "headway_gil_drops_total", cause="forced") == 42
    assert value(samples, "headway_cpu_time_seconds_total", mode="user") == pytest.approx(1.5)
    assert value(samples, "headway_gc_collections_total", generation="2") == 12
    assert samples["headway_recorder_datagrams_total", frozenset()] == 6


def test_levels_are_those_of_the_last_seconds(bench: Bench) -> None:
    bench.run(12, (100, 101), memory_rss=10_000_000)
    bench.run(12, (100, 101), **LIVELY)
    samples = scrape(bench)
    assert value(samples, "headway_processes") == 2
    assert value(samples, "headway_threads") == pytest.approx(4)
    assert value(samples, "headway_threads_busy") == pytest.approx(1.5)
    assert value(samples, "headway_cpu_cores") == 4
    assert value(samples, "headway_cpu_limit_cores") == 2
    assert value(samples, "headway_memory_limit_bytes") == 10**9
    assert value(samples, "headway_switch_interval_seconds") == 0.005
    assert value(samples, "headway_resident_memory_bytes") == pytest.approx(100_000_000)


def test_a_histogram_has_exactly_the_counts_below_each_bound(bench: Bench) -> None:
    bench.run(2, **LIVELY)
    samples = scrape(bench)
    record = bench.history.record(bench.clock.now - 10, bench.clock.now + 1, EVERYTHING)
    assert record is not None
    waits = distribution(_native.telemetry_read(record), "take_wait")
    assert waits is not None
    for bound in GIL_BOUNDS:
        below = sum(count for upper, count in waits["buckets"] if upper <= bound)
        assert value(samples, "headway_gil_take_wait_seconds_bucket", le=repr(bound)) == below
    assert value(samples, "headway_gil_take_wait_seconds_count") == 200
    assert value(samples, "headway_gil_take_wait_seconds_sum") == pytest.approx(waits["sum"])
    # A duration above all bounds is in +Inf alone.
    assert value(samples, "headway_gil_hold_seconds_bucket", le=repr(GIL_BOUNDS[-1])) == 180
    assert value(samples, "headway_gil_hold_seconds_bucket", le="+Inf") == 200


def test_every_bound_is_one_of_the_scale() -> None:
    """Else a bucket of the scale would lie in two of Prometheus'."""
    for spread in totals.HISTOGRAMS:
        # A duration just below a bound is in the bucket that ends there.
        said = [(bound - 1e-9, 1) for bound in spread.bounds]
        read = _native.telemetry_parse(tick(request_time_histogram=said))[4]
        uppers = [upper for upper, _ in read["request_time_histogram"]["buckets"]]
        assert uppers == list(spread.bounds)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_a_quantile_of_promql_is_in_the_bucket_that_ours_is_in(bench: Bench, share: float) -> None:
    spread = [(0.001 * 1.17**n, 3 + n % 5) for n in range(40)]
    bench.run(1, request_time_histogram=spread)
    samples = scrape(bench)
    record = bench.history.record(bench.clock.now - 10, bench.clock.now + 1, EVERYTHING)
    assert record is not None
    ours = _native.telemetry_read(record)["request_time_histogram"][f"p{round(share * 100)}"]
    name = "headway_request_duration_seconds_bucket"
    buckets = sorted(
        (float(dict(labels)["le"]), count)
        for (each, labels), count in samples.items()
        if each == name
    )
    bounds = [bound for bound, _ in buckets]
    theirs = histogram_quantile(share, buckets)
    assert bisect_left(bounds, theirs) == bisect_left(bounds, ours)


def histogram_quantile(share: float, buckets: list[tuple[float, float]]) -> float:
    """As PromQL has it: the rank's bucket, and a straight line in it."""
    rank = share * buckets[-1][1]
    low_bound = low = 0.0
    for bound, count in buckets:
        if count >= rank:
            return low_bound + (bound - low_bound) * (rank - low) / (count - low)
        low_bound, low = bound, count
    raise AssertionError("a rank above the count")


def test_sums_do_not_fall_when_processes_end(bench: Bench) -> None:
    bench.run(3, (100, 101), **LIVELY)
    before = scrape(bench)
    bench.give(message(STOPPED, 101, 9, bench.clock.now, hostname="alpha", process_group="shop"))
    bench.clock.now += 5000
    after = scrape(bench)
    assert value(after, "headway_processes") == 0
    assert not {name for name, _ in after} & {"headway_threads", "headway_verdict"}
    sums = [name for name in before if is_sum(name[0])]
    assert len(sums) > 200
    assert {name: after[name] for name in sums if "recorder" not in name[0]} == {
        name: before[name] for name in sums if "recorder" not in name[0]
    }
    bench.run(1, (102,), **LIVELY)
    later = scrape(bench)
    assert all(later[name] >= before[name] for name in sums)
    assert value(later, "headway_requests_total") == value(before, "headway_requests_total") + 10


def is_sum(name: str) -> bool:
    return name.endswith(("_total", "_bucket", "_count", "_sum"))


def test_a_datagram_that_comes_late_takes_nothing_back(bench: Bench) -> None:
    bench.give(tick(sequence=1), tick(sequence=3))
    gaps = ("headway_recorder_sequence_gaps_total", frozenset[tuple[str, str]]())
    assert scrape(bench)[gaps] == 1
    bench.give(tick(sequence=2))
    assert bench.recorder.health()["sequence_gaps"] == 0
    assert scrape(bench)[gaps] == 1


def test_a_wrong_tick_does_not_make_a_counter_fall(bench: Bench) -> None:
    for wrong in (3.0, -2.0, float("nan")):
        bench.run(1, cgroup_throttled_time=wrong)
        throttled = value(scrape(bench), "headway_cgroup_throttled_time_seconds_total")
        assert throttled == 3.0


@pytest.mark.parametrize(
    "forged",
    [
        {"request_count": 11_000_000_000_000_000_000},
        {"input_bytes_total": 2**63},
        {"cpu_user_utilization": 1e9},
        {"cgroup_throttled_time": 1e9},
        {"request_threads_maximum": 2**60},
        {"memory_rss": 2**62},
        {"gils": [{**GIL, "gil_held": 1e9}]},
        {"gils": [{**GIL, "gil_takes": 2**63}]},
        {"gcs": [{**GC, "gc_collected_total": 2**63}]},
        {"request_time_histogram": [(0.02, 2**62)]},
        {"sample_period": 80_000.0},
    ],
    ids=lambda forged: next(iter(forged)),
)
def test_forged_counters_do_not_poison_the_sums(bench: Bench, forged: dict[str, Any]) -> None:
    bench.run(3, **LIVELY)
    before = scrape(bench)
    bench.give(tick(100, bench.sequence + 1, bench.clock.now, **{**LIVELY, **forged}))
    health = bench.recorder.health()
    assert health["malformed"] + health["refused"] == 1
    counted = {
        key: value
        for key, value in scrape(bench).items()
        if not key[0].startswith("headway_recorder_")
    }
    assert counted == {key: before[key] for key in counted}
    bench.run(1, **LIVELY)
    assert value(scrape(bench), "headway_requests_total") == 40


def test_one_verdict_holds(bench: Bench) -> None:
    bench.run(10, **LIVELY)
    verdicts = {
        dict(labels)["headway_verdict"]: held
        for (name, labels), held in scrape(bench, ACCEPT).items()
        if name == "headway_verdict"
    }
    assert list(verdicts) == list(VERDICTS)
    assert sorted(verdicts.values()) == [0] * (len(VERDICTS) - 1) + [1]


def test_mod_wsgi_has_no_metrics_of_what_it_does_not_measure(bench: Bench) -> None:
    bench.run(2, headway_version=None, process_kind=None, mod_wsgi_version="6.1.1")
    names = {name for name, _ in scrape(bench)}
    assert "headway_requests_total" in names
    assert not {name for name in names if name.startswith(("headway_gil_", "headway_gc_"))}


def test_names_of_groups_are_escaped(bench: Bench) -> None:
    bench.give(tick(process_group='a"b\\c\nd\x1b[31m'))
    labels = frozenset({("host", "alpha"), ("group", 'a"b\\c\\nd\\x1b[31m')})
    for accept in ("", ACCEPT):
        assert ("headway_requests_total", labels) in scrape(bench, accept)


def test_no_name_brings_control_characters(bench: Bench) -> None:
    odd = "\x1b]0;owned\x07\x9b2J\r\t\x00"
    bench.give(tick(1, hostname=odd, process_group=odd, policy=odd, python_version=odd))
    # The same name, written as it is shown: it is the same group, and no second sample of it.
    bench.give(tick(2, hostname=odd, process_group=r"\x1b]0;owned\x07\x9b2J\r\t\x00"))
    body = expose(bench.history, "")[1].decode()
    assert all(line.isprintable() for line in body.split("\n"))
    assert body.count("\nheadway_requests_total{") == 1
    row = {"name": odd, **measure_now(bench.history, bench.clock.now, 10.0)["total"]}
    for table in (tables.markdown([row]), tables.comparison_csv([row])):
        assert all(line.isprintable() for line in table.split("\n"))


def test_invented_groups_share_a_row(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "MAX_GROUPS", 3)
    bench.give(*(tick(pid, process_group=f"group {pid}") for pid in range(1, 11)))
    requests = {
        dict(labels)["group"]: count
        for (name, labels), count in scrape(bench).items()
        if name == "headway_requests_total"
    }
    assert requests == {"group 1": 10, "group 2": 10, "group 3": 10, "(other)": 70}


def test_groups_of_hosts_that_are_gone_are_forgotten(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pod and each container has a host name of its own."""
    monkeypatch.setattr(totals, "MAX_GROUPS", 3)
    for number in range(10):
        bench.clock.now += totals.KEPT_S * 0.6
        bench.give(
            *(
                tick(1, number + 1, bench.clock.now, hostname=host)
                for host in ("old", f"pod {number}")
            )
        )
    assert requests_by_host(bench) == {"old": 100, "pod 8": 10, "pod 9": 10}
    bench.clock.now += totals.KEPT_S * 0.6
    assert requests_by_host(bench) == {"old": 100, "pod 9": 10}


def requests_by_host(bench: Bench) -> dict[str, float]:
    return {
        dict(labels)["host"]: count
        for (name, labels), count in scrape(bench).items()
        if name == "headway_requests_total"
    }


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/html", TEXT),
        ("application/openmetrics-text", OPEN_METRICS),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3", OPEN_METRICS),
        ("application/openmetrics-text;q=0.2,text/plain;version=0.0.4;q=0.3", TEXT),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;q=x", TEXT),
    ],
)
def test_the_format_is_what_the_client_prefers(bench: Bench, accept: str, kind: str) -> None:
    bench.run(1)
    assert expose(bench.history, accept)[0] == kind


def test_promtool_finds_nothing_wrong(bench: Bench) -> None:
    bench.run(3, **LIVELY)
    prometheus.check("metrics", said=expose(bench.history, "")[1])


def test_kinds_are_known() -> None:
    assert {metric.kind for metric in METRICS} == {COUNTER, HISTOGRAM, STATES, "gauge"}
    assert len({metric.name for metric in METRICS}) == len(METRICS)
