"""The clients of `pages` in the benchmarks of servers: see programs/page_client.py.

Light requests form an open loop and their latency counts from the intended start, so a slow server
gains nothing from answering late: it is reported as saturated, with its rate. The heavy page is
fixed work that takes 200 ms when it has the machine to itself.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
from collections.abc import Sequence

import sitting
from figures import number
from places import PROGRAMS

from headway.output.statistics import percentile
from headway.programs.processes import Window
from headway_lab.setting import STOCK, program

CONNECTIONS = 64
HEAVY_PAGE_S = 0.2
WARM_UP_S = 1.0
# A server that answers less than this share of the requests does not keep up.
SUSTAINED_SHARE = 0.95


def page_loops(seconds: float) -> int:
    """The number of loops of `pages` that take `seconds`."""
    with program(STOCK, "pages", str(seconds), folder=PROGRAMS) as calibration:
        loops: int = calibration.answer()["loops"]
    return loops


def heavy_page_loops() -> int:
    return page_loops(HEAVY_PAGE_S)


@functools.cache
def warn_once() -> None:
    print(
        "the visitors may not run before other threads (SCHED_FIFO needs CAP_SYS_NICE): what they "
        "wait for a core counts as latency",
        file=sys.stderr,
    )


def visit(
    port: int,
    light_per_s: float,
    connections: int,
    heavy_visitors: int,
    seconds: float,
    heavy_port: int | None = None,
) -> dict[str, float]:
    """The clients' figures for one window. The heavy page may be another server's."""
    arguments = [port, light_per_s, connections, heavy_visitors, heavy_port or port]
    with program(STOCK, "page_client", *map(str, arguments), folder=PROGRAMS) as client:
        if not client.answer()["before_others"]:
            warn_once()
        client.measure(Window.after(WARM_UP_S, seconds))
        answer = client.answer()
    latencies_s = answer["latencies_s"]
    return {
        "light_answered_per_s": answer["light_within"] / seconds,
        "p50_s": percentile(latencies_s, 0.5),
        "p99_s": percentile(latencies_s, 0.99),
        "max_s": max(latencies_s, default=math.nan),
        "heavy_per_s": answer["heavy_within"] / seconds,
        "resent": answer["resent"],
    }


def sustains(answered_per_s: float, light_per_s: float) -> bool:
    return answered_per_s >= SUSTAINED_SHARE * light_per_s


def answered_text(answered_per_s: float, light_per_s: float) -> str:
    answered = number(answered_per_s)
    return answered if sustains(answered_per_s, light_per_s) else f"saturated at {answered}/s"


def add_options(parser: sitting.Parser, light_per_s: Sequence[float]) -> None:
    parser.add_argument(
        "--light",
        type=light_rate,
        nargs="+",
        default=light_per_s,
        metavar="RATE",
        help=f"light requests a second (default: {' and '.join(f'{r:g}' for r in light_per_s)})",
    )
    parser.add_argument(
        "--connections",
        type=sitting.at_least_one,
        default=CONNECTIONS,
        metavar="N",
        help=f"how many light requests may be under way at once (default: {CONNECTIONS})",
    )


def light_rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= 10_000:
        raise argparse.ArgumentTypeError(f"found {text!r}; it is a rate up to 10,000 a second")
    return rate
