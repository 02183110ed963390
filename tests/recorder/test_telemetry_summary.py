"""SUMMARY and CONFIG of records, with exact numbers."""

from __future__ import annotations

import pytest
from situations import MS, gil, record, requests, same, tick

from headway.recorder.records import histogram
from headway.recorder.records.configuration import configure, label
from headway.recorder.records.summary import METRICS, distribution, summarize


def test_counts_are_of_all_processes_and_rates_of_the_time_they_cover() -> None:
    one = requests(100, 20 * MS, wait=1 * MS, held=2 * MS, cpu=3 * MS, queue=5 * MS)
    two = {**requests(300, 40 * MS), "status_2xx_total": 290, "status_5xx_total": 10}
    summary = summarize(record(tick(1, **one), tick(2, **two)), 10.0)
    assert summary["period"] == pytest.approx(10.0)
    assert summary["processes"] == pytest.approx(2.0)
    assert summary["requests"] == 400
    assert summary["rps"] == pytest.approx(40.0)
    assert summary["rpm"] == pytest.approx(2400.0)
    assert summary["errors_5xx"] == summary["status"]["5xx"] == 10
    assert summary["status"]["2xx"] == 390
    assert summary["application"]["count"] == 400
    assert summary["application"]["mean"] == pytest.approx(35 * MS)
    assert (summary["application"]["min"], summary["application"]["max"]) == (20 * MS, 40 * MS)
    assert 20 * MS <= summary["application"]["p50"] <= 40 * MS
    assert summary["input_read"] is None


def test_levels_are_totals_of_the_processes_and_shares_of_their_threads() -> None:
    ticks = [
        tick(1, cpu_user_utilization=0.5, cpu_system_utilization=0.1, capacity_utilization=0.5),
        tick(2, cpu_user_utilization=0.3, cpu_system_utilization=0.1, capacity_utilization=0.1),
    ]
    summary = summarize(record(*ticks), 10.0)
    assert summary["cpu"] == pytest.approx(1.0)
    assert summary["cpu_user"] == pytest.approx(0.8)
    assert summary["cpu_per_process"] == pytest.approx(0.5)
    assert summary["rss"] == pytest.approx(100e6)
    assert summary["rss_per_process"] == pytest.approx(50e6)
    assert summary["threads"] == pytest.approx(10)
    assert summary["busy"] == pytest.approx(0.3)


def test_a_tick_more_or_less_in_a_short_range_moves_no_rate() -> None:
    ticks = [
        tick(seq=n, sample_period=1.0, **requests(100, 1 * MS), cpu_user_utilization=0.5)
        for n in range(11)
    ]
    for count in (9, 10, 11):
        summary = summarize(record(*ticks[:count]), 10.0, processes=1.0)
        assert summary["rps"] == pytest.approx(100.0)
        assert summary["cpu"] == pytest.approx(0.5)
        assert summary["period"] == pytest.approx(count)


def test_a_process_that_was_there_for_half_the_time_counts_as_half() -> None:
    summary = summarize(record(tick(sample_period=5.0, **requests(100, 1 * MS))), 10.0)
    assert summary["processes"] == pytest.approx(0.5)
    assert summary["rps"] == pytest.approx(10.0)
    assert summary["rss"] == pytest.approx(25e6)
    assert summary["rss_per_process"] == pytest.approx(50e6)


def test_the_gil_in_shares_of_its_life_and_events_per_second() -> None:
    rows = [
        gil(4.0, 1.0, gil_takes=1000, gil_contended_takes=500, gil_forced_drops=300),
        gil(2.0, 0.0, gil_name="tenant", gil_takes=10, gil_preemptions=20),
    ]
    summary = summarize(record(tick(gils=rows)), 10.0)
    assert summary["gil"] == {
        "held": pytest.approx(0.3),
        "handoff": pytest.approx(0.05),
        "idle": pytest.approx(0.65),
        "takes": pytest.approx(101.0),
        "contended_takes": pytest.approx(50.0),
        "forced_drops": pytest.approx(30.0),
        "preemptions": pytest.approx(2.0),
    }


def test_without_a_gil_there_is_nothing_to_tell_of_it() -> None:
    assert summarize(record(tick(gil_mode="disabled", gils=[gil(1.0)])), 10.0)["gil"] is None
    assert summarize(record(tick()), 10.0)["gil"] is None


def test_waits_of_all_gils_are_one_distribution() -> None:
    rows = [
        gil(gil_wait=same(1 * MS, 90), gil_hold=same(2 * MS, 50)),
        gil(gil_name="tenant", gil_wait=same(100 * MS, 10)),
    ]
    found = record(tick(gils=rows))
    summary = summarize(found, 10.0)
    assert summary["take_wait"]["count"] == 100
    assert summary["take_wait"]["mean"] == pytest.approx(10.9 * MS)
    assert summary["take_wait"]["p90"] == pytest.approx(1 * MS, rel=0.0625)
    assert summary["take_wait"]["p95"] == pytest.approx(100 * MS, rel=0.0625)
    assert summary["hold"]["count"] == 50
    assert distribution(found, "take_wait")["sum"] == pytest.approx(1.09)


def test_collections_of_all_interpreters() -> None:
    rows = [
        {"gc_interpreter": "main", "gc_pauses_generation0": 18, "gc_pauses_generation2": 2}
        | {"gc_pause": same(5 * MS, 20)},
        {"gc_interpreter": "tenant", "gc_pauses_generation1": 10, "gc_pause": same(10 * MS, 10)},
    ]
    found = summarize(record(tick(gcs=rows)), 10.0)["gc"]
    assert found["pauses"] == pytest.approx(3.0)
    assert found["share"] == pytest.approx(0.02)
    assert found["pause"]["count"] == 30


def test_nothing_at_all() -> None:
    summary = summarize({}, 10.0)
    assert summary["requests"] == summary["rps"] == summary["period"] == 0
    assert all(summary[each] is None for each in ("response", "take_wait", "gil", "gc"))
    assert configure({}, 0)["processes"] == 0


def test_mod_wsgi_alone_is_not_exact() -> None:
    coarse = {"headway_version": None, "mod_wsgi_version": "6.1.1", "process_kind": None}
    buckets = [0] * 65
    buckets[8] = 50
    told = {"application_time": 5 * MS, "application_time_buckets": buckets, "request_count": 50}
    apache = tick(1, **coarse, **told)
    assert summarize(record(apache), 10.0)["exact"] is False
    assert summarize(record(tick()), 10.0)["exact"] is True
    assert summarize(record(apache, tick(2)), 10.0)["exact"] is True


def test_what_is_configured_is_one_value_or_all_of_them() -> None:
    one = configure(record(tick(request_timeout=60.0, queue_timeout=0.0)), 2.0)
    assert one["processes"] == 2
    assert one["threads"] == 5
    assert one["switch_interval"] == pytest.approx(5 * MS)
    assert one["server"] == "headway 0.1.0"
    assert one["timeouts"] == {"request_timeout": 60.0}
    assert one["memory_limit"] is None
    assert label(one) == "2 x 5, 5 ms, interval"
    apache = tick(
        2, headway_version=None, mod_wsgi_version="6.1.1", switch_interval=0.1 * MS, policy=None
    )
    both = configure(record(tick(), apache), 2.0)
    assert both["switch_interval"] == [0.1 * MS, 5 * MS]
    assert both["server"] == ["headway 0.1.0", "mod_wsgi 6.1.1"]
    free = configure(record(tick(gil_mode="disabled")), 1.0)
    assert label(free) == "1 x 5, free-threaded"


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_has_a_distribution_where_there_is_something(metric: str) -> None:
    told = requests(10, 2 * MS, 1 * MS, 1 * MS, 1 * MS, 1 * MS)
    for name in ("server", "daemon", "input_read", "output_write"):
        told[f"{name}_time_histogram"] = same(1 * MS, 10)
    told["gils"] = [gil(gil_wait=same(1 * MS, 10), gil_hold=same(1 * MS, 10))]
    told["gcs"] = [{"gc_interpreter": "main", "gc_pause": same(1 * MS, 10)}]
    told["parked_time_histogram"] = told["loop_iteration_histogram"] = same(1 * MS, 10)
    assert distribution(record(tick(**told)), metric)["count"] == 10
    assert distribution({}, metric) is None


def test_arithmetic_on_histograms() -> None:
    waits = distribution(
        record(tick(gils=[gil(gil_wait=[(1 * MS, 50), (5 * MS, 30), (10 * MS, 20)])])), "take_wait"
    )
    assert histogram.share_from(waits, 4 * MS) == pytest.approx(0.5)
    assert histogram.time_from(waits, 4 * MS) == pytest.approx(0.35, rel=0.0625)
    assert histogram.time_from(waits, 0.0) == pytest.approx(0.4, rel=0.0625)
    assert histogram.time_from(waits, 1.0) == histogram.share_from(waits, 1.0) == 0.0
    # Standard deviation 3.5 ms of mean 4 ms, over the root of 100.
    assert histogram.mean_error(waits) == pytest.approx(0.0876, rel=0.05)
    assert histogram.total([None, waits]) == waits
    assert histogram.total([]) is None
    twice = histogram.total([waits, waits])
    assert (twice["count"], twice["p50"]) == (200, pytest.approx(waits["p50"], rel=1e-3))
    assert twice["buckets"] == [(bound, 2 * count) for bound, count in waits["buckets"]]
