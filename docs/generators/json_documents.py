"""The page of the JSON documents: keys, types and meanings from the types that the code uses.

The meaning of a key is its documentation comment (`#:`). A key without one fails the build.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple, get_args, get_origin, get_type_hints, is_typeddict

from sphinx.errors import ExtensionError
from sphinx.pycode import ModuleAnalyzer

from generators.markdown import code, table
from headway.commands import attach_comparison
from headway.output import metadata
from headway.recorder.query import flame_graph
from headway.recorder.records import histogram
from headway.report import model
from headway.server.supervisor import status_document
from headway.tune import document as tune_document
from headway_lab import results_file

INTRODUCTION = """\
# JSON documents

This page is generated from the types that the code uses. Keys that end in `_s` are seconds, and
keys that end in `_bytes` are bytes. A program that reads a document must ignore keys that it does
not know: a later version may add some.
"""
HEAD = ("key", "type", "meaning")
# The headings of types that share a name with another one.
HEADINGS: dict[object, str] = {histogram.Histogram: "Histogram of results"}
NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


class Document(NamedTuple):
    title: str
    introduction: str
    types: tuple[type, ...]


DOCUMENTS = (
    Document(
        "The report",
        "`headway run --json FILE` and `headway report --json` write it, and `Snapshot.to_dict()` "
        "returns it. [Words](../design/words.md) defines the terms.",
        (
            model.GilReport,
            model.GilRow,
            model.ThreadRow,
            model.Histogram,
            model.EventLoopRow,
            model.LateLine,
            model.FreeThreading,
            model.Machine,
            model.ParkedThreadRow,
            model.EventLoopRow,
            model.LateLine,
            model.Stopping,
        ),
    ),
    Document(
        "The status document",
        "`headway status --json` writes it, and the socket of `--status-socket` sends it to each "
        "client.",
        (
            status_document.Status,
            status_document.GroupStatus,
            status_document.ProcessStatus,
            status_document.InterpreterStatus,
            status_document.DeathsStatus,
            status_document.Death,
        ),
    ),
    Document(
        "A flame graph",
        "The recorder's `/api/v1/flame_graph` answers with it. The parameters are those of "
        "[all requests](../telemetry.md#the-api), and `endpoint`, which chooses one endpoint.",
        (flame_graph.FlameGraph, flame_graph.FlameCall, flame_graph.EndpointWaits),
    ),
    Document(
        "An experiment with settings",
        "`headway tune --json FILE` writes it. The keys of figures and effects carry their units: "
        "`p99_s`, `requests_per_s`, `memory_bytes`; `metric` is the number that a program prints.",
        (
            tune_document.TuneDocument,
            tune_document.SettingDocument,
            tune_document.ShapeDocument,
            tune_document.ExcludedDocument,
            tune_document.CandidateDocument,
            tune_document.EffectDocument,
            tune_document.BlockDocument,
        ),
    ),
    Document(
        "A comparison in a running process",
        "`headway attach --compare --json FILE` writes it.",
        (
            attach_comparison.ComparisonDocument,
            attach_comparison.ComparedThreadDocument,
            attach_comparison.TurnDocument,
            attach_comparison.TurnThreadDocument,
        ),
    ),
    Document(
        "Results of experiments",
        "`headway bench --json`, `headway simulate --json` and the benchmarks in `bench/` write it "
        "with the further key `schema`, which is 1. Each list of values comes with `median`, its "
        "interval from `low` to `high`, and the `confidence` of that. A row also has `unstable`. A "
        "reader computes these from the values again.",
        (
            results_file.Stored,
            metadata.Metadata,
            results_file.StoredExperiment,
            results_file.StoredRow,
            results_file.StoredFigure,
            results_file.StoredStatement,
            histogram.Histogram,
        ),
    ),
)


def page() -> str:
    parts = [INTRODUCTION]
    for document in DOCUMENTS:
        parts += [f"## {document.title}\n\n{document.introduction}\n"]
        for kind in document.types:
            parts += [f"### {_heading(kind)}\n\n{_summary(kind)}\n", table(HEAD, _rows(kind))]
    return "\n".join(parts)


def _heading(kind: type) -> str:
    return HEADINGS.get(kind, kind.__name__)


def _summary(kind: type) -> str:
    if not kind.__doc__ or kind.__doc__ == dict.__doc__:
        raise ExtensionError(f"{kind.__module__}.{kind.__name__} has no docstring")
    return re.sub(r"\s*\n\s*", " ", kind.__doc__)


def _rows(kind: type) -> Iterator[list[str]]:
    meanings = _meanings(kind)
    optional: frozenset[str] = getattr(kind, "__optional_keys__", frozenset())
    # The report's module imports nothing, so these names of its annotations are not in it.
    hints = get_type_hints(kind, localns={"ClassVar": ClassVar, "Fields": object})
    for name, hint in hints.items():
        if get_origin(hint) is ClassVar:
            continue
        if name not in meanings:
            raise ExtensionError(f"{kind.__module__}.{kind.__name__}.{name} has no comment #:")
        may_lack = " May be absent." if name in optional else ""
        yield [code(name), _type(hint), f"{meanings[name]}{may_lack}"]


def _meanings(kind: type) -> dict[str, str]:
    """Those of the class and, for a `TypedDict`, of the classes that it continues."""
    comments = ModuleAnalyzer.for_module(kind.__module__).find_attr_docs()
    names = [kind.__name__, *(base.__name__ for base in getattr(kind, "__orig_bases__", ()))]
    return {
        key: " ".join(lines).strip()
        for (owner, key), lines in comments.items()
        if owner in names and any(lines)
    }


def _type(hint: Any) -> str:
    if hint is object:
        return "any"
    if hint in NAMES:
        return NAMES[hint]
    items = [_type(each) for each in get_args(hint)]
    origin = get_origin(hint)
    if origin is dict:
        return f"object of {items[1]}"
    if origin is tuple:
        return f"[{', '.join(items)}]"
    if origin is not None and items and origin.__name__ in ("list", "Sequence"):
        return f"list of {items[0]}{'s' if items[0] in NAMES.values() else ''}"
    if items:
        return " or ".join(items)
    if is_typeddict(hint) or issubclass(hint, model.Record):
        heading = _heading(hint)
        return f"[{heading}](#{heading.lower().replace(' ', '-')})"
    raise ExtensionError(f"a JSON document has no type {hint}")
