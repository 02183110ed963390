"""Profiles made for tests: an ordinary one, and what is hard to write."""

from __future__ import annotations

from headway.profile.model import (
    CUT,
    FORCED,
    RUNNING,
    VOLUNTARY,
    Frame,
    Held,
    Profile,
    Totals,
    Waited,
)

MS = 1_000_000
HOSTILE = (
    "<script>alert('1')</script>&\";]]>-->\x00\x0b\r\n\t\x85\u2028\udcff\ud800\ufffe名前é\u202e"
)

MAIN = Frame("<module>", "/home/me/shop/app.py", 40)
RUN = Frame("run", "/usr/lib/python3.13/threading.py", 992)
WORK = Frame("work", "/home/me/shop/jobs/prices.py", 17)
CRUNCH = Frame("crunch", "/home/me/shop/jobs/prices.py", 8)
SORT = Frame("<lambda>", "/home/me/shop/jobs/prices.py", 9)
SERVE = Frame("serve_forever", "/usr/lib/python3.13/socketserver.py", 235)
ANSWER = Frame("do_GET", "/home/me/shop/pages.py", 61)
DUMPS = Frame("dumps", "/usr/lib/python3.13/json/__init__.py", 231)


def profile_of(
    holders: list[Held], waiters: list[Waited], handoff_ns: int = 0, program: str = "app.py"
) -> Profile:
    """A profile whose totals fit. What one side has more than the other is not recorded there."""
    totals = []
    for gil in sorted({each.gil for each in [*holders, *waiters]}):
        held_ns = sum(each.waited_ns for each in holders if each.gil == gil) + handoff_ns
        waited_ns = sum(each.waited_ns for each in waiters if each.gil == gil)
        most = max(held_ns, waited_ns)
        totals.append(Totals(gil, most, handoff_ns, most - held_ns, most - waited_ns))
    return Profile(4242, program, 1_795_550_400 * 10**9, 3_000 * MS, holders, waiters, totals)


def ordinary() -> Profile:
    """A worker computes while three threads that answer wait; 2,000 ms of waiting in all."""
    crunching, sorting = (RUN, WORK, CRUNCH), (RUN, WORK, SORT)
    answering = (RUN, SERVE, ANSWER, DUMPS)
    return profile_of(
        [
            Held("main", crunching, "worker", "http-1", FORCED, 700 * MS, 210),
            Held("main", crunching, "worker", "http-2", FORCED, 300 * MS, 90),
            Held("main", crunching, "worker", "http-3", RUNNING, 100 * MS, 9),
            Held("main", crunching, "worker", "MainThread", VOLUNTARY, 100 * MS, 30),
            Held("main", sorting, "worker", "http-1", FORCED, 400 * MS, 80),
            Held("main", answering, "http-1", "http-2", VOLUNTARY, 150 * MS, 700),
            Held("main", (MAIN,), "MainThread", "http-2", FORCED, 100 * MS, 3),
        ],
        [
            Waited("main", answering, "http-1", 1_000 * MS, 800),
            Waited("main", answering, "http-2", 600 * MS, 500),
            Waited("main", (RUN, SERVE), "http-3", 150 * MS, 20),
            Waited("main", (MAIN,), "MainThread", 200 * MS, 30),
        ],
        handoff_ns=90 * MS,
    )


def two_gils() -> Profile:
    one = ordinary()
    other = Held("worker", (RUN, CRUNCH), "other", "http-1", FORCED, 77 * MS, 5)
    waited = Waited("worker", (SERVE,), "http-1", 80 * MS, 5)
    return profile_of([*one.holders, other], [*one.waiters, waited], handoff_ns=MS)


def empty() -> Profile:
    return Profile(1, "", 0, 0)


def without_waits() -> Profile:
    return Profile(1, "app.py", 1, 1, totals=[Totals("main", 0, 0, 0, 0)])


def hostile() -> Profile:
    """Each text is what a program could choose to do harm, and one stack has no frame."""
    stack = (Frame(HOSTILE, HOSTILE, 1), Frame("", "", 0), Frame(HOSTILE, "", -1))
    return profile_of(
        [
            Held(HOSTILE, stack, HOSTILE, HOSTILE, FORCED, 5 * MS, 1),
            Held(HOSTILE, (), "", "", FORCED, 3 * MS, 1),
        ],
        [Waited(HOSTILE, stack, HOSTILE, 7 * MS, 1)],
        program=HOSTILE,
    )


def deep(stacks: int = 10, depth: int = 128) -> Profile:
    """Stacks that have nothing in common but a cut outermost frame."""
    holders, waiters = [], []
    for number in range(stacks):
        stack = (
            Frame(CUT, "", 0),
            *(
                Frame(f"call_{number}_{place}", f"/srv/deep/part{number % 20}.py", place)
                for place in range(1, depth)
            ),
        )
        holders.append(Held("main", stack, "deep", "other", FORCED, (number + 1) * MS, 1))
        waiters.append(Waited("main", stack, "other", (number + 1) * MS, 1))
    return profile_of(holders, waiters)


def wide(stacks: int = 10_000) -> Profile:
    """That many stacks, most of them far below a thousandth of the whole."""
    holders, waiters = [], []
    for number in range(stacks):
        leaf = Frame(f"leaf_{number}", f"/srv/wide/part{number % 300}.py", number % 90 + 1)
        stack = (MAIN, Frame(f"branch_{number % 50}", "/srv/wide/branch.py", 5), leaf)
        waited_ns = MS // (number + 1) + 1
        holders.append(
            Held("main", stack, f"t{number % 7}", f"w{number % 9}", FORCED, waited_ns, 1)
        )
        waiters.append(Waited("main", stack, f"w{number % 9}", waited_ns, 1))
    return profile_of(holders, waiters, handoff_ns=MS)


PROFILES = {
    "ordinary": ordinary,
    "two GILs": two_gils,
    "empty": empty,
    "without waits": without_waits,
    "hostile": hostile,
    "deep": deep,
    "wide": wide,
}
