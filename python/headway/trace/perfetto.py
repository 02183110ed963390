"""A timeline as a Chrome trace: JSON that ui.perfetto.dev opens, and chrome://tracing.

Each thread has a track with its holds and waits as slices and its drop requests as marks, from
which arrows lead to marks in the holders' slices, and one with its garbage collections if it ran
any. Above them each GIL has a track that shows its
holders. The format is "Trace Event Format"; its times are microseconds. Slices are pairs of begin
and end events rather than complete events: a begin and a duration would each be rounded, so that
adjacent slices would overlap.

This module does not depend on where a timeline comes from or where the text goes.
"""

from __future__ import annotations

from collections.abc import Iterator

from headway.json_file import to_json
from headway.trace.timeline import COLLECTION, HOLD, REQUEST, RUNNING, Span, Timeline

# Above every thread id that Linux gives out.
FIRST_GIL_TRACK = 1 << 22
FIRST_THREAD_TRACK = FIRST_GIL_TRACK + (1 << 16)
# Slices of one track must nest, so spans that overlap holds and waits have a track of their own.
BESIDE_THREAD = {REQUEST: 1 << 24, RUNNING: 1 << 25, COLLECTION: 1 << 26}
TRACK_NAMES = {
    REQUEST: "requests of {}",
    RUNNING: "{} on a core",
    COLLECTION: "garbage collections of {}",
}


def to_chrome(timeline: Timeline) -> Iterator[str]:
    """Yields the text in pieces of any size. Each event is one line."""
    notes = {
        "title": timeline.title,
        "begin_ns": timeline.begin_ns,
        "end_ns": timeline.end_ns,
        "lost_events": timeline.lost,
    }
    yield f'{{"displayTimeUnit":"ns","otherData":{to_json(notes)},"traceEvents":[\n'
    process = f'"pid":{timeline.process_id or 1}'
    yield f'{{{process},"ph":"M","name":"process_name","args":{_name(_process_name(timeline))}}}'
    for event in _events(timeline):
        yield f",\n{{{process},{event}}}"
    yield "\n]}\n"


def _process_name(timeline: Timeline) -> str:
    return timeline.process_name or timeline.title or "Python"


def _name(text: str) -> str:
    return to_json({"name": text})


def _microseconds(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _events(timeline: Timeline) -> Iterator[str]:
    """The members of all event objects but that of the process: no "pid", no braces."""
    tracks = [
        thread.native_id or FIRST_THREAD_TRACK + place
        for place, thread in enumerate(timeline.threads)
    ]
    gils = list(dict.fromkeys(thread.gil for thread in timeline.threads if thread.gil))
    gil_tracks = {gil: FIRST_GIL_TRACK + place for place, gil in enumerate(gils)}
    for gil, track in gil_tracks.items():
        yield from _track(track, f"GIL {gil}" if not gil.startswith("GIL") else gil, -1)
    for place, thread in enumerate(timeline.threads):
        yield from _track(tracks[place], thread.name, place)
    beside = {(span.thread, span.kind) for span in timeline.spans if span.kind in BESIDE_THREAD}
    for place, kind in sorted(beside):
        name = TRACK_NAMES[kind].format(timeline.threads[place].name)
        yield from _track(tracks[place] + BESIDE_THREAD[kind], name, place)

    names = [to_json(thread.name) for thread in timeline.threads]
    told_of: dict[tuple[str, str, str], str] = {}
    # A thread may hold several GILs in turn on one track, so all spans are sorted by time.
    for span in sorted(timeline.spans, key=lambda span: (span.from_ns, span.to_ns)):
        track = tracks[span.thread] + BESIDE_THREAD.get(span.kind, 0)
        gil = timeline.threads[span.thread].gil
        told = told_of.get((span.kind, span.how, gil))
        if told is None:
            told = told_of[span.kind, span.how, gil] = _told(span.kind, span.how, gil)
        yield from _slice(track, f'"{span.kind}"', span, told)
        if span.kind == HOLD and gil:
            yield from _slice(gil_tracks[gil], names[span.thread], span, told)
    for number, request in enumerate(timeline.drop_requests):
        at = f'"ts":{_microseconds(request.at_ns)},"cat":"gil"'
        waiter = tracks[request.waiter]
        if request.holder < 0:
            yield f'"tid":{waiter},"ph":"i","s":"t",{at},"name":"drop request"'
            continue
        holder = tracks[request.holder]
        asked = f'{{"holder":{names[request.holder]}}}'
        asks = f'{{"waiter":{names[request.waiter]}}}'
        # An arrow joins the latest events of its two tracks. It leads from mark to mark, because
        # Perfetto begins arrows at the older slice, and the hold is older than the wait.
        yield f'"tid":{waiter},"ph":"i","s":"t",{at},"name":"drop request","args":{asked}'
        yield f'"tid":{waiter},"ph":"s","id":{number},{at},"name":"request"'
        yield f'"tid":{holder},"ph":"i","s":"t",{at},"name":"asked to drop","args":{asks}'
        yield f'"tid":{holder},"ph":"f","bp":"e","id":{number},{at},"name":"request"'


def _track(track: int, name: str, order: int) -> Iterator[str]:
    yield f'"tid":{track},"ph":"M","name":"thread_name","args":{_name(name)}'
    yield f'"tid":{track},"ph":"M","name":"thread_sort_index","args":{{"sort_index":{order}}}'


def _told(kind: str, how: str, gil: str) -> str:
    told = {"GIL": gil} if gil else {}
    if kind == HOLD:
        told["drop"] = how or "none yet"
    return to_json(told)


def _slice(track: int, name: str, span: Span, told: str) -> Iterator[str]:
    begin, end = _microseconds(span.from_ns), _microseconds(span.to_ns)
    yield f'"tid":{track},"ph":"B","ts":{begin},"cat":"gil","name":{name},"args":{told}'
    yield f'"tid":{track},"ph":"E","ts":{end}'
