"""Names a process of a report in one line of text, from its command line, and finds the processes
of one program. Pure."""

from __future__ import annotations

from headway.report import columns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.report.model import GilReport

# The code that well-known programs pass to `python -c`, and the role of such a process.
ROLES = (
    ("from multiprocessing.spawn import", "multiprocessing spawn"),
    ("from multiprocessing.forkserver import", "multiprocessing forkserver"),
    ("from multiprocessing.resource_tracker import", "multiprocessing resource tracker"),
    ("import sys;exec(eval(sys.stdin.readline()))", "execnet worker"),
)
# Options of the interpreter that take the next word as their value.
WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")
# Labels are cut here, because a command line may contain a whole program.
MAX_LABEL = 200


def label(process: GilReport, limit: int = columns.MAX_NAME) -> str:
    """The command of a process, and whether it was forked, as printable text; "" if unknown."""
    said = role(process.command or ())
    if process.forked_from:
        said = f"fork of {said}" if said else f"fork of pid {process.forked_from}"
    return columns.name(said, limit)


def title(process: GilReport, limit: int = columns.MAX_NAME) -> str:
    """The process's pid and label, for a sentence."""
    said = label(process, limit)
    return f"pid {process.pid} ({said})" if said else f"pid {process.pid}"


def role(command: Sequence[str]) -> str:
    """The program of a command line, without the interpreter's path and options."""
    if not command:
        return ""
    name = command[0].rpartition("/")[2]
    words = list(command[1:])
    if not name.startswith(("python", "pypy")):
        # A program that embeds Python.
        return " ".join([name, *words])[:MAX_LABEL]
    while words and words[0].startswith("-") and len(words[0]) > 1:
        option = words.pop(0)
        if option in WITH_VALUE:
            del words[:1]
        elif option == "--":
            break
        elif option.startswith("--"):
            continue
        elif option.endswith("m") and words:
            return f"python -m {' '.join(words)}"[:MAX_LABEL]
        elif option.endswith("c") and words:
            return _role_of_code(words)
    if not words:
        return name
    return " ".join([words[0].rpartition("/")[2] or words[0], *words[1:]])[:MAX_LABEL]


def _role_of_code(words: Sequence[str]) -> str:
    code = words[0].strip()
    for start, what in ROLES:
        if code.startswith(start):
            return what
    return f"python -c {' '.join(words)}"[:MAX_LABEL]


def programs(reports: Sequence[GilReport]) -> list[GilReport]:
    """A report for each program: the processes that another one of `reports` started, directly or
    not, are children of that one, as with `headway run --follow`."""
    starters: dict[int, int] = {}
    for index, report in enumerate(reports):
        for process in report.processes():
            starters.setdefault(process.pid, index)

    def root_of(start: int) -> int:
        index, seen = start, {start}
        while (starter := starters.get(reports[index].parent_pid or 0)) is not None:
            if starter in seen:
                # The kernel reuses pids, so that reports of several days may lead in a circle.
                return start
            seen.add(starter)
            index = starter
        return index

    roots = [root_of(index) for index in range(len(reports))]
    made = []
    for root in dict.fromkeys(roots):
        children = list(reports[root].children)
        unlisted = reports[root].unlisted_children
        for report, its_root in zip(reports, roots, strict=True):
            if its_root == root and report is not reports[root]:
                children += [report.replaced(children=[], unlisted_children=0), *report.children]
                unlisted += report.unlisted_children
        made.append(reports[root].replaced(children=children, unlisted_children=unlisted))
    return made
