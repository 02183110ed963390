"""What a GIL report of schema 1 (DESIGN.md) must have before anything is done with it.

Checks only the fields that Headway itself reads, so that a later version may add others; fields
that came later than the rest may be missing. Works on
plain JSON values and knows nothing of files.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCHEMA = 1
NUMBER = (int, float)
OPTIONAL_NUMBER = (int, float, type(None))
HISTOGRAM_FIELDS: dict[str, tuple[type, ...]] = {
    "count": (int,),
    "sum": NUMBER,
    **dict.fromkeys(("min", "max", "p50", "p90", "p99"), OPTIONAL_NUMBER),
    "buckets": (list,),
}
BOOK_FIELDS: dict[str, tuple[type, ...]] = {
    "name": (str, type(None)),
    "held": NUMBER,
    **dict.fromkeys(("takes", "contended_takes", "voluntary_drops", "forced_drops"), (int,)),
    "preemptions": (int,),
    "wait": (dict,),
    "hold": (dict,),
}
GIL_FIELDS = {
    **BOOK_FIELDS,
    "id": (int,),
    "drop_requests": (int,),
    "handoff": NUMBER,
    "idle": NUMBER,
    "wall": NUMBER,
}
THREAD_FIELDS = {**BOOK_FIELDS, "gil": (int, type(None)), "waited": NUMBER}
# Reports from before there were policies lack these.
LATER_FIELDS: dict[str, tuple[type, ...]] = dict.fromkeys(
    (
        "longest_wait_io_bound",
        "longest_wait_cpu_bound",
        "longest_unanswered",
        "longest_unanswered_cpu",
    ),
    OPTIONAL_NUMBER,
)
# Of free-threaded builds; null on others, and missing in reports from before they were looked into.
STOPPING_FIELDS: dict[str, tuple[type, ...]] = {"count": (int,), "sum": NUMBER}
PARK_FIELDS: dict[str, tuple[type, ...]] = dict.fromkeys(
    ("parked", "suspended", "stopping"), (dict,)
)
FREE_THREADING_FIELDS: dict[str, tuple[type, ...]] = {
    "cpu": OPTIONAL_NUMBER,
    **PARK_FIELDS,
    "threads": (list,),
}
REPORT_FIELDS: dict[str, tuple[type, ...]] = {
    "python": (str,),
    "pid": (int,),
    "gil": (str,),
    "policy": (str,),
    "switch_interval": OPTIONAL_NUMBER,
    "wall": NUMBER,
    "gils": (list,),
    "threads": (list,),
    "children": (list,),
}


# Likewise, from before there were commands.
LATER_REPORT_FIELDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("parent_pid", "forked_from"), (int, type(None))),
    "command": (list, type(None)),
}


def find_problem(report: Any) -> str:
    """The first thing in `report` that is not as schema 1 has it, in words; "" if all is well."""
    if not isinstance(report, dict) or report.get("schema") != SCHEMA:
        found = report.get("schema") if isinstance(report, dict) else report
        return f"schema is {found!r:.40}, and must be {SCHEMA}"
    return _find_report_problem(report, "")


def _find_report_problem(report: Any, place: str) -> str:
    """The first field that the terminal needs and `report` lacks; "" if there is none."""
    problem = find_field_problem(report, REPORT_FIELDS, place)
    later = {} if problem else {k: v for k, v in LATER_REPORT_FIELDS.items() if k in report}
    problem = problem or find_field_problem(report, later, place)
    for index, word in enumerate((not problem and report.get("command")) or ()):
        if not isinstance(word, str):
            return f"{place}command[{index}] is {word!r:.40}, and must be a string"
    for key, fields in (("gils", GIL_FIELDS), ("threads", THREAD_FIELDS)):
        for index, row in enumerate(() if problem else report[key]):
            where = f"{place}{key}[{index}]."
            problem = problem or find_field_problem(row, fields, where)
            present = {} if problem else {k: v for k, v in LATER_FIELDS.items() if k in row}
            problem = problem or find_field_problem(row, present, where)
            for name in () if problem else ("wait", "hold"):
                problem = problem or find_histogram_problem(row[name], f"{where}{name}.")
    if not problem and report.get("free_threading") is not None:
        problem = _find_free_threading_problem(report["free_threading"], f"{place}free_threading.")
    for index, child in enumerate(() if problem else report["children"]):
        problem = problem or _find_report_problem(child, f"{place}children[{index}].")
    return problem


def _find_free_threading_problem(row: Any, place: str) -> str:
    problem = find_field_problem(row, FREE_THREADING_FIELDS, place)
    places = [(row, place)]
    for index, thread in enumerate(() if problem else row["threads"]):
        where = f"{place}threads[{index}]."
        problem = problem or find_field_problem(thread, {"name": (str,), **PARK_FIELDS}, where)
        places.append((thread, where))
    for each, where in () if problem else places:
        for name in ("parked", "suspended"):
            problem = problem or find_histogram_problem(each[name], f"{where}{name}.")
        problem = problem or find_field_problem(
            each["stopping"], STOPPING_FIELDS, f"{where}stopping."
        )
    return problem


def find_field_problem(row: Any, fields: dict[str, tuple[type, ...]], place: str) -> str:
    """Likewise, of the one object at `place`: an empty text, or names with a dot at the end."""
    if not isinstance(row, dict):
        return f"{place.rstrip('.')} is {row!r:.40}, and must be an object"
    for name, types in fields.items():
        if name not in row:
            return f"{place}{name} is missing"
        value = row[name]
        if not isinstance(value, types) or isinstance(value, bool):
            return f"{place}{name} is {value!r:.40}, and must be {_type_names(types)}"
    return ""


def find_histogram_problem(histogram: Any, place: str) -> str:
    problem = find_field_problem(histogram, HISTOGRAM_FIELDS, place)
    for index, bucket in enumerate(() if problem else histogram["buckets"]):
        pair = isinstance(bucket, list) and len(bucket) == 2
        if not pair or not all(isinstance(number, NUMBER) for number in bucket):
            return f"{place}buckets[{index}] is {bucket!r:.40}, and must be [seconds, count]"
    return problem


def _type_names(types: tuple[type, ...]) -> str:
    names = {
        int: "an integer",
        float: "a number",
        str: "a string",
        dict: "an object",
        list: "a list",
        type(None): "null",
    }
    shown = types[1:] if types[:2] == NUMBER else types
    return " or ".join(names[each] for each in shown)
