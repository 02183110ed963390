"""Perfetto reads what `headway run --trace` writes, and finds in it what the report says."""

from __future__ import annotations

from pathlib import Path

import pytest
from launch import GIL_ENABLED
from perfetto_page import needs_node, opened, rows
from traces import CONTENDED, traced

pytestmark = [
    pytest.mark.slow("loads Perfetto's trace processor"),
    needs_node,
    pytest.mark.skipif(not GIL_ENABLED, reason="there is no GIL to trace"),
    # protobuf's, on newer interpreters.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

PROBLEMS = "SELECT name FROM stats WHERE value != 0 AND severity IN ('error', 'data_loss')"
THREADS = "SELECT tid, name FROM thread WHERE tid != 0"
SLICES = """
SELECT thread.name AS thread, slice.name AS slice, count(*), sum(slice.dur)
FROM slice JOIN thread_track ON slice.track_id = thread_track.id JOIN thread USING (utid)
GROUP BY 1, 2
"""
DROPS = """
SELECT thread.name, extract_arg(slice.arg_set_id, 'args.drop'), count(*)
FROM slice JOIN thread_track ON slice.track_id = thread_track.id JOIN thread USING (utid)
WHERE slice.name = 'hold' GROUP BY 1, 2
"""
ARROWS = """
SELECT source.name AS a, source.ts AS b, target.name AS c, target.ts AS d
FROM flow JOIN slice AS source ON source.id = slice_out JOIN slice AS target ON target.id = slice_in
"""
# A wait is over when its thread's next hold begins: to the nanosecond, in Perfetto's own numbers.
WAITS_WITHOUT_HOLD = """
SELECT count(*) FROM slice AS wait WHERE wait.name = 'wait' AND NOT EXISTS (
  SELECT 1 FROM slice AS hold
  WHERE hold.name = 'hold' AND hold.track_id = wait.track_id AND hold.ts = wait.ts + wait.dur)
"""


def test_perfetto_finds_what_the_report_says(tmp_path: Path) -> None:
    _, report, _ = traced(tmp_path, CONTENDED)
    with opened(tmp_path / "trace.json", tmp_path / "perfetto.sock") as processor:
        assert rows(processor, PROBLEMS) == []
        assert rows(processor, f"SELECT name FROM process WHERE pid = {report['pid']}") == [("-c",)]
        names = dict(rows(processor, THREADS))
        slices = {row[:2]: row[2:] for row in rows(processor, SLICES)}
        drops = {row[:2]: row[2] for row in rows(processor, DROPS)}
        arrows = rows(processor, ARROWS)
        assert rows(processor, WAITS_WITHOUT_HOLD) == [(0,)]
    for row in report["threads"]:
        name = row["name"]
        assert names[row["native_id"]] == name
        if name == "MainThread":
            continue  # it ran on between the trace and the report
        assert slices[name, "hold"] == (row["takes"], pytest.approx(row["held_s"] * 1e9))
        assert slices["GIL main", name] == slices[name, "hold"]
        waits = (row["contended_takes"], pytest.approx(row["waited_s"] * 1e9))
        assert slices.get((name, "wait"), (0, 0)) == waits
        assert drops.get((name, "forced"), 0) == row["forced_drops"]
        assert drops.get((name, "voluntary"), 0) == row["voluntary_drops"]
    (gil,) = report["gils"]
    assert len(arrows) == gil["drop_requests"]
    assert {(source, target) for source, _, target, _ in arrows} == {
        ("drop request", "asked to drop")
    }
    assert all(from_ns == to_ns for _, from_ns, _, to_ns in arrows)


def test_perfetto_reads_a_trace_whose_begin_is_lost(tmp_path: Path) -> None:
    trace, _, _ = traced(tmp_path, CONTENDED, "--trace-events", "1000")
    with opened(tmp_path / "trace.json", tmp_path / "perfetto.sock") as processor:
        assert rows(processor, PROBLEMS) == []
        assert rows(processor, "SELECT count(*) FROM slice WHERE dur < 0") == [(0,)]
        (count,) = rows(processor, "SELECT count(*) FROM slice")[0]
    assert count == len(trace.slices) + len(trace.marks)
