"""The tables, the chart and the statements of `refcount`, from its results."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from headway.output.claim import Statement
from headway.output.results import Result, Results
from headway.output.table import Cell, Chart, Series, Table, cell_of

# The native kinds, and the builds of CPython; the objects on which threads count.
KINDS = ("plain", "immortal", "atomic", "buffered", "biased")
WITH_GIL = "CPython with a GIL"
WITHOUT_GIL = "CPython without a GIL"
OWN = "each its own"
ONE = "one"

# CPython's test suite has 1.1 increments and 1.3 decrements for each executed bytecode, and 55 % of
# them are the interpreter's own (faster-cpython/ideas, issue 443). Only these are compared with a
# bytecode here, because the timed loop calls nothing.
PAIRS_PER_BYTECODE = (1.1 + 1.3) / 2 * 0.55
# The time that atomic counts added to single-threaded programs (seed 002).
PUBLISHED_ATOMIC_PERCENT = 30
# In that publication CPython 3.9 took 6.53 s for 100,000,000 iterations of a loop of nine
# bytecodes.
PUBLISHED_BYTECODE_NS = 6.53e9 / 100_000_000 / 9
# The time that all of PEP 703 added to single-threaded programs on Intel's Skylake, most of it by
# biased counts; on AMD's Zen 3 it was 5 %.
PUBLISHED_BIASED_PERCENT = 6


def tables(results: Results) -> list[Table]:
    costs = [_costs(results)] if results.where(threads=1).rows else []
    return [*costs, _by_threads(results)]


def charts(results: Results) -> list[Chart]:
    series = [
        Series(f"{kind}, {objects}", points)
        for kind, objects in _lines(results)
        if len(points := list(_points(results, kind, objects))) > 1
    ]
    title = "An increment and a decrement, by threads that count"
    return [Chart(title, "threads", "ns of CPU time", series, log_y=True)] if series else []


def statements(results: Results) -> list[Statement]:
    """The statements that the measured rows support."""
    return [
        *_of_one_thread(results),
        *_of_whole_programs(results),
        *_of_several_threads(results),
        *_of_right_and_wrong(results),
        *_of_cpython(results),
    ]


def _costs(results: Results) -> Table:
    """The costs with one thread."""
    plain = _alone(results, "plain")
    rows = []
    for kind in results.distinct("kind"):
        found = results.find(kind=kind, threads=1, objects=OWN)
        native = kind in KINDS
        ratio = found.median() / plain.median() if found and plain and native else None
        percent = _added_percent(results, kind) if native else None
        published = {"atomic": PUBLISHED_ATOMIC_PERCENT, "biased": PUBLISHED_BIASED_PERCENT}
        rows.append(
            [
                Cell(text=kind),
                cell_of(found),
                cell_of(found, "elapsed_ns") if native else Cell(text="-"),
                cell_of(found, "bytecode_ns"),
                cell_of(found, "bytecode_percent"),
                _number(ratio),
                _number(percent)._replace(published=published.get(kind)),
            ]
        )
    headings = ("kind", "CPU", "elapsed", "bytecode", "% of it", "x plain", "slows by %")
    note = (
        "elapsed: without what another thread counts for it. bytecode: one of this interpreter's. "
        f"slows by %: a program that counted plainly, estimated at {PAIRS_PER_BYTECODE:.2f} pairs "
        "a bytecode. CPython's own counts are those of list.copy(), with the copying."
    )
    return Table("One thread: ns for an increment and a decrement", headings, rows, 1, note)


def _by_threads(results: Results) -> Table:
    threads = results.distinct("threads")
    rows = [
        [
            Cell(text=kind),
            Cell(text=objects),
            *(cell_of(_of_line(results, kind, objects, count)) for count in threads),
        ]
        for kind, objects in _lines(results)
    ]
    headings = ["kind", "objects", *map(_threads, threads)]
    return Table("CPU ns for an increment and a decrement, by threads", headings, rows, 2)


def _lines(results: Results) -> list[tuple[str, str]]:
    """The kinds, each with the objects on which several threads counted, if there were several."""
    return [
        (kind, objects)
        for kind in results.distinct("kind")
        for objects in (OWN, ONE)
        if results.where(kind=kind, objects=objects).rows
    ]


def _of_line(results: Results, kind: str, objects: str, threads: int) -> Result | None:
    return results.find(kind=kind, threads=threads, objects=OWN if threads == 1 else objects)


def _points(
    results: Results, kind: str, objects: str
) -> Iterator[tuple[float, float, float, float]]:
    for threads in results.distinct("threads"):
        found = _of_line(results, kind, objects, threads)
        interval = found.interval() if found else None
        if interval:
            yield (threads, *interval)


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _number(value: float | None) -> Cell:
    return Cell(text="-") if value is None else Cell(value)


def _alone(results: Results, kind: str) -> Result | None:
    return results.measured(kind=kind, threads=1, objects=OWN)


def _together(results: Results, kind: str, objects: str) -> Result | None:
    """The row with the most threads, if there are several."""
    found = [each for each in results.where(kind=kind, objects=objects) if each.values]
    found = [each for each in found if each.parameters["threads"] > 1]
    return max(found, key=lambda each: int(each.parameters["threads"]), default=None)


def _added_percent(results: Results, kind: str, bytecode_ns: float | None = None) -> float | None:
    """The estimated loss of a single-threaded program with such counts instead of plain ones. The
    bytecodes have the interpreter's own speed, unless their time is given."""
    plain, other = _alone(results, "plain"), _alone(results, kind)
    if plain is None or other is None:
        return None
    added_ns = other.median() - plain.median()
    return added_ns * PAIRS_PER_BYTECODE / (bytecode_ns or plain.median("bytecode_ns")) * 100


def _of_one_thread(results: Results) -> Iterator[Statement]:
    plain, atomic = _alone(results, "plain"), _alone(results, "atomic")
    buffered, biased = _alone(results, "buffered"), _alone(results, "biased")
    if plain and atomic:
        text = "by one thread, an atomic count costs several times a plain one: ratio"
        yield Statement(text, atomic.median() / plain.median(), 2)
    if atomic and buffered:
        text = "a buffered count takes a thread less time than an atomic one: ratio"
        why = (
            "the thread that counts needs a processor of its own, and the log goes from one "
            "processor's cache to the other's"
        )
        ratio = buffered.median("elapsed_ns") / atomic.median("elapsed_ns")
        yield Statement(text, ratio, high=1, why=why)
    if plain and buffered:
        text = "and still costs too much, that other thread's work included: ratio to a plain one"
        yield Statement(text, buffered.median() / plain.median(), 2)
    if plain and biased:
        text = "a biased count costs its owner about what a plain one does: ratio"
        why = "it reads and compares the owner besides, where a plain one is a single addition"
        yield Statement(text, biased.median() / plain.median(), high=2, why=why)


def _of_whole_programs(results: Results) -> Iterator[Statement]:
    published = f"published: {PUBLISHED_ATOMIC_PERCENT} %, estimated here: %"
    then = _added_percent(results, "atomic", PUBLISHED_BYTECODE_NS)
    now = _added_percent(results, "atomic")
    why = "a locked addition takes 7 cycles on some processors and 18 on others"
    if then is not None and now is not None:
        text = (
            f"were a bytecode to take {PUBLISHED_BYTECODE_NS:.1f} ns, as with CPython 3.9, atomic "
            f"counts would slow a single-threaded program by a third, {published}"
        )
        yield Statement(text, then, 15, 60, why)
        text = f"a program whose bytecodes are as quick as here they slow by more, {published}"
        yield Statement(text, now, PUBLISHED_ATOMIC_PERCENT, why=why)
    biased = _added_percent(results, "biased")
    if biased is not None:
        text = (
            "biased counts slow it little, published for all of PEP 703: "
            f"{PUBLISHED_BIASED_PERCENT} %, estimated here: %"
        )
        yield Statement(text, biased, high=10)


def _of_several_threads(results: Results) -> Iterator[Statement]:
    busy = (
        "threads that take turns on a processor do not contend: there are few, or others use them"
    )
    for kind, text, low, high in (
        ("atomic", "an atomic count that several threads change at once collapses", 2, inf),
        ("buffered", "a buffered count that several threads change at once does not", -inf, 2),
        ("immortal", "nor does that of an immortal object, which nobody writes", -inf, 1.5),
    ):
        alone, together = _alone(results, kind), _together(results, kind, ONE)
        if alone and together:
            ratio = together.median() / alone.median()
            text = f"{text}: CPU time of a pair, to one thread's"
            yield Statement(text, ratio, low, high, busy if kind == "atomic" else "")
    for kind in ("atomic", "biased"):
        alone, together = _alone(results, kind), _together(results, kind, OWN)
        if alone and together:
            text = f"{kind} counts of objects of their own do not hinder each other: ratio"
            yield Statement(text, together.median() / alone.median(), high=1.5)
    alone, together = _alone(results, "biased"), _together(results, "biased", ONE)
    if alone and together:
        text = "a biased count is cheap for its owner alone: several threads on one object, ratio"
        yield Statement(text, together.median() / alone.median(), 2, why=busy)


def _of_right_and_wrong(results: Results) -> Iterator[Statement]:
    errors: dict[bool, list[float]] = {True: [], False: []}
    for each in results:
        lost = each.parameters["kind"] == "plain" and each.parameters["objects"] == ONE
        errors[lost] += each.figures.get("wrong_by", [])
    if errors[True]:
        text = "without a GIL, plain counts of one object lose updates: most by which one was wrong"
        why = "the threads took turns on one processor"
        yield Statement(text, max(errors[True]), 1, why=why)
    if errors[False]:
        text = "all other counts come out right: most by which one was wrong"
        yield Statement(text, max(errors[False]), 0, 0)


def _of_cpython(results: Results) -> Iterator[Statement]:
    with_gil, without = _alone(results, WITH_GIL), _alone(results, WITHOUT_GIL)
    if with_gil and without:
        text = "CPython's own biased counts cost its threads little more than plain ones: ratio"
        why = "the two builds may differ in version, compiler and options"
        yield Statement(text, without.median() / with_gil.median(), 0.7, 2, why)
    own, one = _together(results, WITHOUT_GIL, OWN), _together(results, WITHOUT_GIL, ONE)
    if without and own:
        text = "without a GIL, threads that count on objects of their own do not hinder each other"
        yield Statement(f"{text}: ratio", own.median() / without.median(), high=1.5)
    if without and one:
        text = (
            "without a GIL, an object that another thread made costs several times as much: ratio"
        )
        yield Statement(text, one.median() / without.median(), 2)
