"""Measures a selection of processes in a range: a summary of figures to compare, the configuration
and a verdict. Reads from `History`, and does not depend on HTTP.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TypedDict, cast

from headway import _native
from headway.recorder.diagnosis import is_worse, judge, worst
from headway.recorder.diagnosis.inputs import Hold
from headway.recorder.diagnosis.verdict import SEVERITIES, Measured, Verdict
from headway.recorder.query.history import History
from headway.recorder.query.process import Process
from headway.recorder.query.query import Range
from headway.recorder.records import configuration
from headway.recorder.records.summary import Record, count_processes, summarize, values
from headway.recorder.store.selection import Selection


class MeasuredGroup(Measured):
    host: str
    group: str


class MeasuredProcess(MeasuredGroup):
    pid: int
    started: float
    kind: str
    alive: bool
    last_seen: float


class Now(TypedDict):
    time: float
    total: Measured
    groups: list[MeasuredGroup]
    processes: list[MeasuredProcess]


# The resolution of the search for the part of a range that has data.
STEPS = 60
LEAST_STEP_S = 1.0
# A range up to SHORT_S has so few ticks that those at its ends matter. There processes are counted
# by their pids, unless they reported for less than this share of the range on average: then some
# processes replaced others.
SHORT_S = 30.0
HERE_ALL_ALONG = 0.6
HOLDS_PER_VERDICT = 16
# The most holds that are read for all processes together.
MAX_HOLDS = 5_000
# Up to this number, groups are judged one by one for a verdict on all; beyond it, only their sum.
MAX_JUDGED = 16
# In ranges up to this length processes are judged one by one. The records of all processes over
# days are many.
LONGEST_BY_PROCESS_S = 3_600.0


def measure(history: History, span: Range, selection: Selection) -> Measured:
    """SUMMARY, CONFIG and VERDICT. Rates refer to the time with data, so that a server that was
    started in the middle of a range does not appear half as fast. The verdict on several groups is
    the worst of theirs, because cores and GILs of different groups do not add up."""
    measured = _measure(history, span, selection)
    groups: dict[tuple[str, str], list[Process]] = defaultdict(list)
    for process in history.processes(span.end, span.seconds, selection.recording):
        if selection.has(process.host, process.group, process.pid):
            groups[process.host, process.group].append(process)
    if len(groups) > MAX_JUDGED:
        return measured
    if len(groups) == 1:
        (processes,) = groups.values()
        verdict: Verdict | None = _verdict_in_range(history, span, selection, measured, processes)
    else:
        verdict = worst(
            (
                group or "(no group)",
                _verdict_in_range(
                    history,
                    span,
                    selection,
                    _measure(history, span, _of_group(selection, host, group)),
                    processes,
                ),
            )
            for (host, group), processes in sorted(groups.items())
        )
    return {**measured, "verdict": verdict or measured["verdict"]}


def _verdict_in_range(
    history: History,
    span: Range,
    selection: Selection,
    of_group: Measured,
    processes: Sequence[Process],
) -> Verdict:
    if not 1 < len(processes) <= MAX_JUDGED or span.seconds > LONGEST_BY_PROCESS_S:
        return of_group["verdict"]
    group = _of_group(selection, processes[0].host, processes[0].group)
    measured = {}
    for process, packed in history.per_process(span.start, span.end, group):
        if process in processes:
            record = _native.telemetry_read(packed)
            one = group._replace(pids=frozenset([process.pid]))
            holds = _holds(history, span, one, HOLDS_PER_VERDICT)
            reported_s = min(span.seconds, record.get("process_seconds", 0.0))
            measured[process] = _judged(holds, record, reported_s, 1.0)
    return _worst_of(of_group, measured)


def _of_group(selection: Selection, host: str, group: str) -> Selection:
    return selection._replace(hosts=frozenset([host]), groups=frozenset([group]))


def _measure(history: History, span: Range, selection: Selection) -> Measured:
    step = history.step_of(span.start, span.end, max(span.seconds / STEPS, LEAST_STEP_S), selection)
    found = [
        (at, record)
        for at, record, _ in history.records(span.start, span.end, step, selection)
        if record is not None
    ]
    record = _native.telemetry_read(_native.telemetry_merge([each for _, each in found]))
    covered_s = 0.0
    if found:
        # From the first step with data to the last. A tick may be longer than a step.
        tick_s = record.get("process_seconds", 0.0) / max(1, record.get("ticks", 1))
        covered_s = min(span.seconds, found[-1][0] - found[0][0] + max(step, tick_s))
    processes = count_processes(record, covered_s)
    if span.seconds <= SHORT_S:
        reported = record.get("process_seconds", 0.0) / covered_s if covered_s else 0.0
        heard = len(history.per_process(span.start, span.end, selection))
        processes = float(heard if reported > HERE_ALL_ALONG * heard else round(reported))
    holds = _holds(history, span, selection, HOLDS_PER_VERDICT)
    return _judged(holds, record, covered_s, processes)


def measure_now(history: History, now: float, window_s: float) -> Now:
    """Measures the last seconds in total, by group and by process, from one read of memory."""
    span = Range(now - window_s, now)
    everybody = history.processes(now, max(60.0, window_s))
    found = dict(history.per_process(span.start, span.end, Selection()))
    holds = Holds(history, span)
    measured = {
        process: _of_some(history, span, _selection_of(process), [process], found, holds)
        for process in everybody
    }
    groups = _measure_groups(history, span, everybody, found, holds, measured)
    total = _of_some(history, span, Selection(), everybody, found, holds)
    alive = Counter((each.host, each.group) for each in everybody if each.alive)
    verdict = worst((each["group"] or "(no group)", each["verdict"]) for each in groups)
    return {
        "time": now,
        "total": {**total, "verdict": verdict or total["verdict"]},
        "groups": groups,
        "processes": [
            _of_process(process, each, has_others=alive[process.host, process.group] > 1)
            for process, each in measured.items()
        ],
    }


def _of_process(process: Process, measured: Measured, has_others: bool) -> MeasuredProcess:
    """The measurements of one process. If its group has other processes, advice is left to the
    group, because one process knows neither their number nor their use of the cores."""
    verdict = measured["verdict"]
    return {
        "host": process.host,
        "pid": process.pid,
        "started": process.started,
        "group": process.group,
        "kind": process.kind,
        "alive": process.alive,
        "last_seen": process.last_seen,
        **measured,
        "verdict": {**verdict, "advice": []} if has_others else verdict,
    }


def measure_groups(
    history: History, span: Range, processes: Sequence[Process], records: dict[Process, bytes]
) -> list[MeasuredGroup]:
    """Measures each process group of `processes`, whose records over the range are known."""
    holds = Holds(history, span)
    measured = {
        process: _of_some(history, span, _selection_of(process), [process], records, holds)
        for process in processes
    }
    return _measure_groups(history, span, processes, records, holds, measured)


def _measure_groups(
    history: History,
    span: Range,
    processes: Sequence[Process],
    records: dict[Process, bytes],
    holds: Holds,
    measured: Mapping[Process, Measured],
) -> list[MeasuredGroup]:
    by_group: dict[tuple[str, str], list[Process]] = defaultdict(list)
    for process in processes:
        by_group[process.host, process.group].append(process)
    groups: list[MeasuredGroup] = []
    for (host, group), some in sorted(by_group.items()):
        selection = _of_group(Selection(), host, group)
        of_all = _of_some(history, span, selection, some, records, holds)
        verdict = _worst_of(of_all, {each: measured[each] for each in some})
        groups.append({"host": host, "group": group, **of_all, "verdict": verdict})
    return groups


def _worst_of(of_group: Measured, processes: Mapping[Process, Measured]) -> Verdict:
    """The verdict of a group, or of that process of it which carries load and is worse off: an idle
    parent halves the figures of its busy child. An event loop that blocks needs no CPU time. Advice
    that counts processes is left to groups."""
    verdict = of_group["verdict"]
    load = of_group["summary"]["cpu_per_process"]
    worse = [
        (process, each)
        for process, each in processes.items()
        if (each["summary"]["cpu"] >= load or each["verdict"]["name"] == "late-loop")
        and is_worse(each["verdict"], verdict)
    ]
    if not worse:
        return verdict
    process, measured = max(worse, key=lambda one: _severity_and_cpu(one[1]))
    found = measured["verdict"]
    serves = of_group["summary"]["requests"] > 0
    return {
        **found,
        "text": f"Process {process.pid}: {found['text']}",
        "advice": [] if serves else found["advice"],
    }


def _severity_and_cpu(measured: Measured) -> tuple[int, float]:
    return SEVERITIES.index(measured["verdict"]["severity"]), measured["summary"]["cpu"]


def _of_some(
    history: History,
    span: Range,
    selection: Selection,
    processes: Sequence[Process],
    records: dict[Process, bytes],
    holds: Holds,
) -> Measured:
    """Measures processes whose records over the range are known. Their average number follows from
    the time that each reported."""
    heard = [each for each in processes if each in records]
    record = _native.telemetry_read(_native.telemetry_merge([records[each] for each in heard]))
    since = min((each.started for each in heard), default=span.start)
    since = max(since, history.listens_since)
    covered_s = span.seconds if since <= span.start else max(span.end - since, 1.0)
    alive = sum(each.alive for each in processes)
    # Ticks do not end exactly with the range, so a number close to that of the living processes is
    # replaced by it, and none is larger than that of all processes.
    count = min(record.get("process_seconds", 0.0) / covered_s, float(len(heard)))
    count = count if abs(count - alive) > 0.5 else float(alive)
    return _judged(holds.of(selection), record, covered_s, count)


class Holds:
    """The latest long holds of a range, from one read of the store for all groups and processes."""

    def __init__(self, history: History, span: Range) -> None:
        found = _holds(history, span, Selection(), MAX_HOLDS)
        self._by_process: dict[tuple[str, str, int], list[Hold]] = defaultdict(list)
        for hold in found:
            self._by_process[hold["host"], hold["group"], hold["pid"]].append(hold)

    def of(self, selection: Selection) -> list[Hold]:
        """The latest long holds of the selection, the latest first."""
        found = [
            hold
            for key, holds in self._by_process.items()
            if selection.has(*key)
            for hold in holds[:HOLDS_PER_VERDICT]
        ]
        return sorted(found, key=lambda hold: -hold["time"])[:HOLDS_PER_VERDICT]


def _holds(history: History, span: Range, selection: Selection, limit: int) -> list[Hold]:
    """The latest long holds, the latest first."""
    return cast(list[Hold], history.events("hold", span.start, span.end, selection, limit))


def _judged(holds: list[Hold], record: Record, covered_s: float, processes: float) -> Measured:
    summary = summarize(record, covered_s, processes or None)
    config = configuration.configure(record, processes)
    return {"summary": summary, "config": config, "verdict": judge(record, summary, config, holds)}


def read(history: History, span: Range, selection: Selection) -> Record:
    """The merged record of a range; empty if nothing was recorded."""
    found = history.record(span.start, span.end, selection)
    return {} if found is None else _native.telemetry_read(found)


def switch_intervals(record: Record) -> list[float]:
    return sorted(value for value in values(record, "switch_interval") if value > 0)


def _selection_of(process: Process) -> Selection:
    return Selection(
        frozenset([process.host]), frozenset([process.group]), frozenset([process.pid])
    )
