"""Writes the trace of a program as a file for ui.perfetto.dev or as a drawing, and describes it.

`headway run --trace` calls it at the end of the program, in the program's process; `headway report
--trace` calls it in another process. It does not depend on how either reads the events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway import json_file
from headway.report.model import GilReport
from headway.trace.events import to_timeline
from headway.trace.perfetto import to_chrome
from headway.trace.timeline import HOLD, WAIT, Timeline

NS = 1e9
DRAWING = ".svg"


def write_trace(
    trace: Mapping[str, Any], report: GilReport, path: str, process_name: str = ""
) -> str:
    """Writes the events that `headway.meter.engine.read_trace()` returned. `report` is the GIL
    report of the same process. Returns a line for the user that describes the file. Raises
    OSError."""
    timeline = to_timeline(trace, report, process_name)
    if path.endswith(DRAWING):
        from headway.trace import svg

        json_file.write(svg.draw(timeline).encode(), path)
        return f"headway: trace of {describe(timeline)} drawn in {path}"
    json_file.write_blocks(json_file.to_blocks(to_chrome(timeline)), path)
    place = "stdout" if path == json_file.STDOUT else path
    return f"headway: trace of {describe(timeline)} in {place}, for ui.perfetto.dev"


def prepare(path: str) -> None:
    """Imports now the modules that `write_trace` needs, because at the program's end the file
    system may have changed."""
    if path.endswith(DRAWING):
        from headway.trace import svg  # noqa: F401 - for `write_trace`


def describe(timeline: Timeline) -> str:
    """The length of the trace, its numbers of holds and waits, and the number of lost events."""
    holds, waits = (sum(1 for span in timeline.spans if span.kind == kind) for kind in (HOLD, WAIT))
    seconds = (timeline.end_ns - timeline.begin_ns) / NS
    lost = f"; {timeline.lost:,} events before that are not kept" if timeline.lost else ""
    last = "the last " if timeline.lost else ""
    return f"{last}{seconds:.3f} s ({holds:,} holds, {waits:,} waits{lost})"
