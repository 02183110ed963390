"""The answer that a flame graph is drawn from: calls as wide as the time that others waited, or for
which event loops were late."""

from __future__ import annotations

from typing import TypedDict

from headway.profile.flame_tree import walk
from headway.recorder.query.history import History
from headway.recorder.query.measuring import read
from headway.recorder.query.query import Range
from headway.recorder.query.stacks import NS, by_endpoint, late_stacks_of, stacks_of, tree
from headway.recorder.store.selection import Selection


class FlameCall(TypedDict):
    """A call with all its charges: it is a line, and calls of it from one caller are one."""

    #: The function, the endpoint, or a name in parentheses for no code.
    function: str
    #: The file; empty for no code.
    file: str
    #: The line in the file; 0 if it is unknown.
    line: int
    #: The index of the caller, which comes before this call; null for the outermost one.
    caller: int | None
    #: The seconds that other threads waited during the call, by all threads together; with
    #: `of=late` the seconds for which event loops were late during it.
    waited: float
    #: The part of them in which the call itself ran, and no call of it.
    self: float
    #: The number of callees that are too small for a call of their own.
    small: int
    #: The seconds that other threads waited during those.
    small_waited: float


class EndpointWaits(TypedDict):
    """An endpoint during whose requests others waited."""

    #: The beginning of the path.
    name: str
    #: The seconds that other threads waited.
    waited: float


class FlameGraph(TypedDict):
    """A range of time, or the part of one endpoint."""

    #: The length of the range in seconds.
    seconds: float
    #: False if the processes report lines without their callers.
    has_stacks: bool
    #: The endpoints of the whole range, the longest waits first.
    endpoints: list[EndpointWaits]
    #: The calls. The outermost one is `all`, and those below it are endpoints and functions; with
    #: `of=late`, what event loops did: `(computed)`, `(waited)`, `(blocked)`.
    calls: list[FlameCall]


def flame_graph(
    history: History, span: Range, selection: Selection, endpoint: str, is_late: bool = False
) -> FlameGraph:
    """`endpoint` chooses the requests of one endpoint; "" chooses everything. `is_late` chooses the
    late iterations of event loops."""
    record = read(history, span, selection)
    stacks = late_stacks_of if is_late else stacks_of
    found = stacks(record, lambda ids: history.calls(ids, selection.recording))
    endpoints = by_endpoint(found)
    if endpoint:
        found = [each for each in found if each.endpoint == endpoint]
    nodes = walk(tree(found))
    places = {id(node): place for place, node in enumerate(nodes)}
    callers = {id(child): places[id(node)] for node in nodes for child in node.children}
    return {
        "seconds": span.seconds,
        "has_stacks": bool(record.get("late_stacks" if is_late else "stacks")),
        "endpoints": [{"name": name, "waited": waited_ns / NS} for name, waited_ns in endpoints],
        "calls": [
            {
                "function": node.frame.function,
                "file": node.frame.file,
                "line": node.frame.line,
                "caller": callers.get(id(node)),
                "waited": node.waited_ns / NS,
                "self": node.self_ns / NS,
                "small": node.small,
                "small_waited": node.small_ns / NS,
            }
            for node in nodes
        ],
    }
