"""Late event loops: whether Headway's figures are true, and what else finds a stall.

known   The loops of asyncio, uvloop and trio are stalled by a sleep, by Python code, by a C call,
        by a thread whose C calls keep the GIL, and by all four (tests/programs/event_loop.py). The
        report of `headway run` is held against the program's own clocks: the shares of the three
        parts of late iterations (computed with the GIL, waited for the GIL, blocked) within 2
        points, the duration within 1 %, the line and the callback of the cause. *lines* is the
        share of the late time that is charged to lines: the first late iteration starts the reader
        of stacks, so it has none. The program runs before all others if it may (SCHED_FIFO); else
        what it waits for a core is in the differences.
others  FastAPI on uvicorn, aiohttp's server and a Jupyter kernel are stalled for 150 to 300 ms at
        known moments, while a task wakes the loop every 10 ms. Who finds the stalls, with which
        cause and which line: `headway run`, asyncio's debug mode (PYTHONASYNCIODEBUG=1), and that
        task itself, which notes how late it comes. *price*: the requests/s of a light page, for the
        two servers, that wrk gets under the first two and without them, round by round, and the
        server's CPU time for each.

`known` needs uvloop and trio (bench/requirements.txt), `others` what scripts/recipes installs into
.venvs/recipes, and wrk for the price. What is not installed is named and left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import known_stalls
import planted_stalls
import sitting
import wrk
from figures import Figures, number, print_targets, table, target
from known_stalls import ALL, CASES, LOOPS, Case, Comparison
from planted_stalls import FINDERS, PLAIN, PRICED, SERVERS, Found, Server

from headway.output.claim import Statement
from headway.programs.processes import ProgramError
from headway.report import columns, units

NAME = "event_loops"
PARTS = ("known", "others")
MOST_POINTS = 2.0
MOST_PERCENT = 1.0
# Variables that would change what is compared.
VARIABLES = ("HEADWAY", "PYTHONASYNCIODEBUG", "PYTHONDEVMODE")

KNOWN_HEADINGS = (
    "loop",
    "cause",
    "",
    "late",
    "own",
    "duration %",
    "computed/waited/blocked %",
    "own",
    "points",
    "lines %",
    "first line",
)
FOUND_HEADINGS = ("server", "finder", "found", "cause", "line", "others", "missed", "without line")
PRICE_HEADINGS = ("server", "under", "requests/s", "of plain", "CPU µs each", "of plain")


class Price(NamedTuple):
    server: str
    finder: str

    def parameters(self) -> dict[str, Any]:
        return self._asdict()

    def __str__(self) -> str:
        return f"{self.server}, {self.finder}"


class Look(NamedTuple):
    """A finder on a server with planted stalls."""

    server: Server
    finder: str

    def __str__(self) -> str:
        return f"{self.server.name}, {self.finder}"


def shares(parts: dict[str, float]) -> str:
    total_s = sum(parts.values())
    return "/".join(f"{100 * parts[part] / total_s:.1f}" for part in known_stalls.PARTS)


def measure_known(options: argparse.Namespace) -> sitting.Experiments:
    loops = []
    for loop in options.loop or LOOPS:
        reason = known_stalls.missing(loop)
        if reason:
            print(f"{loop} is left out: {reason}")
        else:
            loops.append(loop)
    causes = options.cause or (*known_stalls.CAUSES, ALL)
    cases = [case for case in CASES if case.loop in loops and case.cause in causes]
    if not cases:
        raise ProgramError("no event loop is installed that could be measured", 2)
    found: dict[Case, list[Comparison]] = {}
    figures: Figures[Case] = Figures()
    with known_stalls.before_others() as is_before:
        if not is_before:
            print(
                "the programs may not run before others (SCHED_FIFO needs CAP_SYS_NICE): what they "
                "wait for a core is in the differences",
                file=sys.stderr,
            )
        for case, compared in sitting.rounds(NAME, options.rounds, cases, known_stalls.compare):
            found.setdefault(case, []).append(compared)
            figures.record(
                case,
                share_off_points=compared.share_off_points(),
                duration_off_percent=abs(compared.duration_off_percent()),
                lines_share=compared.lines_share(),
                right_lines=float(not compared.wrong_line(case)),
            )
    print_known(found)
    targets = known_targets(figures, cases)
    print_targets(targets)
    print()
    return figures.experiments(f"{NAME} known", Case.parameters, targets)


def known_targets(figures: Figures[Case], cases: Sequence[Case]) -> list[Statement]:
    def highest(figure: str) -> float:
        return max(figures.highest(case, figure) for case in cases)

    right = min(min(figures.values(case, "right_lines")) for case in cases)
    return [
        target(
            "the shares of late time",
            highest("share_off_points"),
            MOST_POINTS,
            at_most=True,
            unit="points",
        ),
        target(
            "the duration of late time",
            highest("duration_off_percent"),
            MOST_PERCENT,
            at_most=True,
            unit="%",
        ),
        target("each cause has its line and callback", right, 1.0),
    ]


def print_known(found: dict[Case, list[Comparison]]) -> None:
    """Of several rounds, the one with the largest difference for its limit."""

    def badness(compared: Comparison) -> float:
        return max(
            compared.share_off_points() / MOST_POINTS,
            abs(compared.duration_off_percent()) / MOST_PERCENT,
        )

    lines = []
    for case, rounds in found.items():
        worst = max(rounds, key=badness)
        wrong = next(filter(None, (each.wrong_line(case) for each in rounds)), "")
        first = known_stalls.described(worst.lines[0]) if worst.lines else "none"
        lines.append(
            (
                *case,
                "pass" if badness(worst) <= 1 and not wrong else "FAIL",
                f"{worst.number} x {units.seconds(worst.late_s)}",
                f"{worst.own_number} x {units.seconds(worst.own_late_s)}",
                f"{worst.duration_off_percent():+.2f}",
                shares(dict(worst.found)),
                shares(dict(worst.own)),
                f"{worst.share_off_points():.2f}",
                f"{100 * worst.lines_share():.0f}",
                f"WRONG: {wrong}" if wrong else first,
            )
        )
    print(table(KNOWN_HEADINGS, lines, names=3))
    print(
        "late: number and sum of late iterations in the report; own: as the program's clocks have "
        "them.\nOf several rounds, the one with the largest difference.\n"
    )


def measure_others(options: argparse.Namespace) -> sitting.Experiments:
    servers = []
    for server in SERVERS:
        if server.name not in (options.server or (server.name,)):
            continue
        reason = server.missing()
        if reason:
            print(f"{server.name} is left out: {reason}")
        else:
            print(f"{server.name}: {server.versions()}")
            servers.append(server)
    if not servers:
        raise ProgramError("no server is installed that could be measured", 2)
    looks = [Look(server, finder) for server in servers for finder in FINDERS]
    found: dict[Look, list[Found]] = {}
    for look, of_round in sitting.rounds(
        NAME, options.rounds, looks, lambda look: planted_stalls.find(*look)
    ):
        found.setdefault(look, []).append(of_round)
    print_found(found)
    return measure_prices([server for server in servers if not server.is_kernel], options)


def summed(counters: Sequence[Counter[str]]) -> Counter[str]:
    return sum(counters, Counter())


def causes_text(counter: Counter[str]) -> str:
    return ", ".join(f"{number} {cause}" for cause, number in counter.items() if number) or "-"


def print_found(found: dict[Look, list[Found]]) -> None:
    lines, examples = [], []
    for look, rounds in found.items():
        planted = summed([each.planted for each in rounds])
        met = summed([each.found for each in rounds])
        with_line = summed([each.with_line for each in rounds])
        lines.append(
            (
                look.server.name,
                look.finder,
                f"{met.total()} of {planted.total()}",
                str(summed([each.with_cause for each in rounds]).total()),
                str(with_line.total()),
                str(sum(each.others for each in rounds)),
                causes_text(planted - met),
                causes_text(met - with_line),
            )
        )
        example = next((each.example for each in rounds if each.example), "nothing")
        examples.append(f"{look}: {columns.name(example, 400)}")
    print(table(FOUND_HEADINGS, lines))
    print(
        "cause, line: of how many stalls the finder tells the part of the iteration, and the "
        "function and line\nof the stall. others: late iterations or callbacks of 100 ms or longer "
        "that were not planted.\n"
    )
    print("\n".join(examples), end="\n\n")


def measure_prices(servers: Sequence[Server], options: argparse.Namespace) -> sitting.Experiments:
    if not servers:
        return []
    if shutil.which("wrk") is None:
        print(f"without prices: {wrk.MISSING}")
        return []
    by_name = {server.name: server for server in servers}
    figures: Figures[Price] = Figures()
    cells = [Price(server, finder) for server in by_name for finder in PRICED]

    def price(cell: Price, seconds: float) -> dict[str, float]:
        return planted_stalls.price(by_name[cell.server], cell.finder, seconds)

    measure_with = partial(price, seconds=options.seconds)
    for cell, of_round in sitting.rounds(NAME, options.rounds, cells, measure_with):
        figures.record(cell, **of_round)
    lines = []
    for cell in cells:
        plain = Price(cell.server, PLAIN)
        lines.append(
            (
                *cell,
                number(figures.median(cell, "requests_per_s")),
                number(figures.ratio(cell, plain, "requests_per_s")),
                number(figures.median(cell, "cpu_per_request_s") * 1e6),
                number(figures.ratio(cell, plain, "cpu_per_request_s")),
            )
        )
    print(table(PRICE_HEADINGS, lines))
    print(
        "Medians over rounds; of plain: median of the ratios round by round. The server's CPU time "
        "for a\nrequest depends less on what else the machine does.\n"
    )
    return figures.experiments(f"{NAME} price", Price.parameters, [])


def measure(options: argparse.Namespace) -> sitting.Experiments:
    if options.policy:
        raise ProgramError("--policy: found one, where no policy is compared", 2)
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ProgramError(f"{sys.executable} runs without a GIL, for which nobody waits", 2)
    for name in VARIABLES:
        os.environ.pop(name, None)
    parts = options.part or PARTS
    experiments: sitting.Experiments = []
    if "known" in parts:
        experiments += measure_known(options)
    if "others" in parts:
        experiments += measure_others(options)
    return experiments


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=3, seconds=5.0, quick_seconds=1.0, policies=())
    parser.add_argument(
        "--part", action="append", choices=PARTS, help="may be given again (default: both)"
    )
    parser.add_argument(
        "--loop", action="append", choices=LOOPS, help="of `known`; may be given again"
    )
    parser.add_argument(
        "--cause",
        action="append",
        choices=(*known_stalls.CAUSES, ALL),
        help="of `known`; may be given again",
    )
    parser.add_argument(
        "--server",
        action="append",
        choices=[server.name for server in SERVERS],
        help="of `others`; may be given again",
    )
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
