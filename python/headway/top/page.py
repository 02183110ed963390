"""The page of `headway top` as lines of text without colour: totals, verdicts, and the details of
one row. Pure: the input are answers of the API.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headway.top import figures
from headway.top.figures import (
    age,
    clock,
    cores,
    digits,
    in_unit,
    seconds,
    sentences,
    share,
    short,
    size,
    text,
)
from headway.top.tables import LATE_PARTS, Row, difference, level, rows_of, value_at

# The names of distributions in SUMMARY, and their names for people.
DISTRIBUTIONS = (
    ("response", "response"),
    ("application", "application"),
    ("gil_wait", "GIL wait"),
    ("gil_held", "GIL held"),
    ("queue", "queue"),
    ("server", "server"),
    ("input_read", "input read"),
    ("output_write", "output write"),
    ("cpu_per_request", "CPU"),
    ("take_wait", "wait per take"),
    ("hold", "hold per take"),
    ("parked", "lock wait"),
    ("loop_iteration", "loop iteration"),
)
QUANTILES = ("mean", "p50", "p90", "p95", "p99", "max")
SEVERITIES = ("ok", "note", "warning", "critical")


def totals(measured: Any) -> list[str]:
    """A few lines that sum up the total, a group or a process."""
    summary = value_at(measured, "summary")
    if not isinstance(summary, dict) or not summary.get("processes"):
        return ["no process has reported"]
    lines = (
        []
        if is_program(measured)
        else [
            f"requests {digits(summary.get('rps'))} /s ({short(summary.get('rpm'))} rpm)   "
            f"5xx {digits(summary.get('errors_5xx'))}   4xx {digits(summary.get('errors_4xx'))}   "
            f"failed {digits(summary.get('failed'))}   "
            f"in {size(summary.get('input_bytes'))}/s   out {size(summary.get('output_bytes'))}/s",
            f"response {times(summary.get('response'))}   "
            f"application {times(summary.get('application'))}",
        ]
    )
    waits = summary.get("take_wait" if is_program(measured) else "gil_wait")
    lines += [
        f"GIL wait {times(waits)}" + gil(summary),
        f"CPU {cores(summary.get('cpu'))} ({cores(summary.get('cpu_per_process'))} a process)   "
        f"memory {size(summary.get('rss'))}"
        + ("" if is_program(measured) else f"   busy {busy(summary)}")
        + throttled(summary),
        *loops(summary),
    ]
    return lines


def is_program(measured: Any) -> bool:
    """Whether it serves no requests, and has no worker threads."""
    requests = figures.number_in(value_at(measured, "summary.requests"))
    return value_at(measured, "config.threads") is None and not requests


CHARTS = (
    ("requests /s", "rps", digits),
    ("response p95", "response.p95", seconds),
    ("GIL wait p95", "gil_wait.p95", seconds),
    ("CPU cores", "cpu", digits),
)
# Of what has no requests.
CHARTS_OF_A_PROGRAM = (
    ("GIL wait p95", "take_wait.p95", seconds),
    ("GIL held", "gil.held", share),
    ("CPU cores", "cpu", digits),
)


def history(series: Any, width: int) -> Iterator[str]:
    """A line of bars for each of a few figures over time, with its greatest value."""
    points = rows_of(series, "points")
    if not points:
        return
    length = max(min(width - 40, len(points)), 10)
    served = any(figures.number_in(value_at(row, "summary.requests")) for row in points)
    for label, path, shown in CHARTS if served else CHARTS_OF_A_PROGRAM:
        values = [figures.number_in(value_at(row, f"summary.{path}")) for row in points][-length:]
        most = max((value for value in values if value is not None), default=None)
        bars = "".join(
            " " if value is None else level(value / most if most else 0) for value in values
        )
        last = next((value for value in reversed(values) if value is not None), None)
        yield f"{label:14}{bars:{length}}  {shown(last)} (up to {shown(most)})"
    length_s = difference(series.get("to"), series.get("from"))
    yield f"{'':14}{age(length_s)} to {clock(series.get('to'))}"


def times(quantiles: Any) -> str:
    shown = (f"{name} {seconds(value_at(quantiles, name))}" for name in ("p50", "p95", "p99"))
    return " ".join(shown) if isinstance(quantiles, dict) else figures.NOTHING


def gil(summary: Row) -> str:
    """The shares of the GIL's time. The text says so if the waits are only a lower bound."""
    bound = "" if summary.get("exact", True) else " (lower bound)"
    shares = summary.get("gil")
    if not isinstance(shares, dict):
        return bound
    states = (f"{name} {share(shares.get(name))}" for name in ("held", "handoff", "idle"))
    return f"{bound}   {'   '.join(states)}"


def busy(summary: Row) -> str:
    part, threads = (
        figures.number_in(summary.get("busy")),
        figures.number_in(summary.get("threads")),
    )
    if part is None or threads is None:
        return share(part)
    return f"{digits(round(part * threads, 1))} of {digits(round(threads))} threads ({share(part)})"


def loops(summary: Row) -> Iterator[str]:
    """A line on the event loops, if there are any."""
    found = summary.get("loops")
    if not isinstance(found, dict):
        return
    parts = (f"{part} {share(found.get(f'late_{part}'))}" for part in LATE_PARTS)
    late = f"late {digits(found.get('late'))} /s: {', '.join(parts)} of the time"
    iterating = figures.number_in(found.get("iterating"))
    present = f"   not ended for {seconds(iterating)}" if iterating else ""
    yield f"event loop {times(summary.get('loop_iteration'))}   {late}{present}"


def throttled(summary: Row) -> str:
    part = figures.number_in(summary.get("throttled"))
    return f"   throttled {share(part)} of the time" if part else ""


def configuration(config: Any) -> str:
    """ "2 x 5, switch interval 5 ms, policy priority, Python 3.13.0, headway 0.1.0"."""
    if not isinstance(config, dict):
        return ""
    parts = [f"{text(config.get('processes'))} x {text(config.get('threads'))}"]
    if config.get("gil_mode") == "disabled":
        parts.append("free-threaded")
    elif config.get("switch_interval") is not None:
        parts.append(f"switch interval {varying(config['switch_interval'], seconds)}")
    for name, label in (("policy", "policy "), ("python", "Python "), ("server", "")):
        if config.get(name) is not None:
            parts.append(f"{label}{text(config[name])}")
    if config.get("cpu_limit") is not None:
        parts.append(f"limited to {varying(config['cpu_limit'], cores)}")
    return ", ".join(parts)


def varying(value: Any, shown: Any) -> str:
    """A value, or the list of values if the processes have different ones."""
    return ", ".join(map(shown, value)) if isinstance(value, list) else str(shown(value))


def severity(verdict: Any) -> str:
    found = value_at(verdict, "severity")
    return found if found in SEVERITIES else "note"


def headline(verdict: Any) -> str:
    """A verdict in one line."""
    if not isinstance(verdict, dict):
        return "no verdict"
    return text(verdict.get("title") or verdict.get("name"))


def verdict_lines(verdict: Any) -> Iterator[str]:
    """A verdict in words, with its evidence and its advice."""
    if not isinstance(verdict, dict):
        return
    yield f"{headline(verdict)} ({severity(verdict)})"
    if verdict.get("text"):
        yield sentences(verdict["text"])
    for each in rows_of(verdict, "evidence"):
        shown = in_unit(each.get("value"), each.get("unit"))
        limit = each.get("limit")
        against = "" if limit is None else f" (limit {in_unit(limit, each.get('unit'))})"
        yield f"  evidence: {text(each.get('text'))}: {shown}{against}"
    for each in rows_of(verdict, "advice"):
        yield f"  try: {text(each.get('try'))}"
        if each.get("expect"):
            yield f"       expect: {sentences(each['expect'])}"
    sample = verdict.get("sample")
    if isinstance(sample, dict):
        requests = (
            f"{digits(sample.get('requests'))} requests in " if sample.get("requests") else ""
        )
        yield f"  from {requests}{seconds(sample.get('seconds'))}"


def scope_name(row: Row) -> str:
    """The process or process group of a row's figures."""
    if "pid" in row:
        group = f" of {text(row.get('group'))}" if row.get("group") else ""
        return f"process {text(row.get('pid'))}{group} on {text(row.get('host'))}"
    if "group" in row:
        return f"group {text(row.get('group'))} on {text(row.get('host'))}"
    return "total"


def measured(row: Row) -> Iterator[str]:
    """Everything about a scope: totals, configuration, verdict, and every distribution."""
    yield from totals(row)
    yield configuration(row.get("config"))
    yield ""
    yield from verdict_lines(row.get("verdict"))
    yield ""
    yield " " * 14 + "".join(f"{name:>10}" for name in QUANTILES)
    for name, label in DISTRIBUTIONS:
        found = value_at(row, f"summary.{name}")
        if isinstance(found, dict):
            cells = "".join(f"{seconds(found.get(each)):>10}" for each in QUANTILES)
            yield f"{label:14}{cells}   {digits(found.get('count'))}"
    collections = value_at(row, "summary.gc")
    if isinstance(collections, dict):
        pauses, pause = digits(collections.get("pauses")), times(collections.get("pause"))
        part = share(collections.get("share"))
        yield f"garbage collection: {pauses} pauses /s, {part} of the time"
        yield f"{'':14}pause {pause}"


def details(row: Row) -> list[str]:
    """The details of one row, a measured scope or an event; a stack takes a line for each frame."""
    if "summary" in row:
        return [scope_name(row), "", *measured(row)]
    lines = []
    for name, value in row.items():
        label = text(name)
        if isinstance(value, str) and "\n" in value:
            lines += ["", f"{label}:", *(f"  {line}" for line in figures.lines(value))]
        elif isinstance(value, dict):
            lines.append(f"{label:28}{times(value)}")
        elif value is not None and value != "":
            lines.append(f"{label:28}{shown_as(str(name), value)}")
    return lines


def shown_as(name: str, value: Any) -> str:
    """A number with a decimal point is a time or a duration; all of an event's are."""
    if name in ("time", "started", "last_seen") or name.endswith("_stamp"):
        return clock(value)
    return seconds(value) if isinstance(value, float) else text(value)


# The losses of docs/recorder.md that remove something from the view.
LOSSES = (
    "malformed",
    "refused",
    "sequence_gaps",
    "unsent",
    "records_lost",
    "clocks_off",
    "events_left_out",
    "store.not_stored",
)


def health(recorder: Any) -> str:
    """The recorder's reports on its own losses and errors; empty if there are none."""
    if not isinstance(recorder, dict):
        return ""
    losses = [
        f"{name.replace('_', ' ').replace('.', ': ')} {digits(value_at(recorder, name))}"
        for name in LOSSES
        if figures.number_in(value_at(recorder, name))
    ]
    errors = [
        f"{text(name)}: {text(part['error'])}"
        for name, part in recorder.items()
        if isinstance(part, dict) and part.get("error")
    ]
    return ", ".join(losses + errors)
