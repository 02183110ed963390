"""The bookshop of examples/site under `headway serve` and under what people would choose instead.

A Django site on PostgreSQL with twelve queries a page, a search, an API, logins, uploads, a report,
a slow service behind it, and visitors who think between their pages. Each server's best shape,
processes x threads, is searched first, at one rate. Then all servers are measured at the same rates
in turn, in rounds, so that a slow minute of the machine meets all of them, and with the same
visitors. A server *sustains* a rate if the p99 of the light pages is below 100 ms, in the median of
the rounds, and no request fails. Its score is the highest such rate, interpolated between two that
were measured; its further figures are taken at half of its rate and at 130 % of it.

Every window is a file of FOLDER, with each request's page, begin, latency and status. A command
that is given again goes on with the windows that are not there. Two runs are two folders; with
`--sweep` they share the search of the shapes, and with `--seed` they have different visitors.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

import site_window
import sitting
from builds import FREE_THREADED_PYTHON
from figures import number, table
from peers import GUNICORN_SYNC, HEADWAY, SITE, UVICORN, Server
from server_hello import shape
from site_window import LIGHT, PAGES, Site, Window

from headway.errors import CommandError
from headway.programs import signals
from headway.programs.processes import ProgramError
from headway.programs.progress import clear_progress, progress

sys.path.insert(0, str(SITE))
import services

NAME = "site_servers"
LIGHT_P99_S = 0.1
# Beyond its rate a server is useful if a visitor of a light page waits no longer than this.
USEFUL_S = 1.0
OVERLOAD = 1.3
# The rates that all servers are measured at, as shares of the first one.
STEPS = (0.5, 0.7, 0.85, 1.0, 1.2, 1.4)
# A server that is this slow at a rate, or fails so often, is not measured at higher ones.
HOPELESS_P99_S = 1.0
HOPELESS_FAILURES = 0.01
OVERLOAD_S, RECOVERY_S = 15.0, 25.0
SHAPES = ((2, 8), (4, 4), (6, 2))
# The visitors of the search, so that a shape that was lucky with them is measured with others.
SWEEP_SEED = 1000
# The pages that compute. Of the peers, mod_wsgi can serve them in a process of their own.
COMPUTING = ("/login", "/export", "/photo", "/report")
PROCESSES_ALONE = tuple((count, 1) for count in (4, 6, 8))

SERVERS: dict[str, tuple[Server, Sequence[tuple[int, int]]]] = {
    "headway": (Server(HEADWAY, 1, 1, preload=True), SHAPES),
    "headway-background": (
        Server(HEADWAY, 1, 1, preload=True, background=COMPUTING),
        ((2, 8), (3, 5)),
    ),
    "gunicorn": (Server("gunicorn", 1, 1, preload=True), SHAPES),
    "gunicorn-priority": (Server("gunicorn", 1, 1, "priority", preload=True), SHAPES),
    "gunicorn-sync": (Server(GUNICORN_SYNC, 1, 1, preload=True), PROCESSES_ALONE),
    "granian": (Server("granian", 1, 1), SHAPES),
    "uwsgi": (Server("uwsgi", 1, 1), SHAPES),
    "mod_wsgi": (Server("mod_wsgi", 1, 1), SHAPES),
    "mod_wsgi-background": (Server("mod_wsgi", 1, 1, background=COMPUTING), SHAPES),
    "waitress": (Server("waitress", 1, 1), tuple((1, threads) for threads in (4, 8, 16))),
    "free-threaded": (
        Server(HEADWAY, 1, 1, free_threading=True, python=FREE_THREADED_PYTHON),
        ((1, 4), (1, 8), (1, 16)),
    ),
    "fastapi": (Server(UVICORN, 1, 1), ((1, 1), (2, 1), (3, 1))),
    "fastapi-priority": (Server(UVICORN, 1, 1, "priority"), ((1, 1), (2, 1), (3, 1))),
}


def candidates(
    name: str, shapes: Sequence[tuple[int, int]] | None
) -> tuple[Server, Sequence[tuple[int, int]]]:
    server, its_shapes = SERVERS[name]
    return server, shapes or its_shapes


def application_of(server: Server) -> str:
    return "bookshop_fastapi" if server.name == UVICORN else "bookshop"


class Windows:
    """The windows of a folder: measured where their file is missing."""

    def __init__(self, folder: Path, site: Callable[[], Site], seconds: float) -> None:
        self._folder = folder
        self._site = site
        self._seconds = seconds
        # By the window.
        self.failed: dict[str, str] = {}

    def window(self, server: Server, rate: float, seed: int = 0) -> Window | None:
        """A window at a rate, with the visitors of `seed`. None if the server fails, which `failed`
        then tells."""
        return self._kept(server, rate, self._seconds, None, seed, f"{rate:.1f}-{seed}")

    def overload(self, server: Server, rate: float, seed: int = 0) -> Window | None:
        """A window at 130 % of `rate`, and then at half of it."""
        after = (rate / 2, RECOVERY_S)
        name = f"{rate:.1f}-overload-{seed}"
        return self._kept(server, OVERLOAD * rate, OVERLOAD_S, after, seed, name)

    def told(self, server: Server, rate: float) -> str:
        """Returns the text of `headway top` about a window."""
        file = self._file(server, f"{rate:.1f}-told.txt")
        if not file.exists():
            progress(f"{NAME}: {server} at {rate:.1f} requests/s, reporting")
            text = self._site().told(server, application_of(server), rate, self._seconds)
            clear_progress()
            file.write_text(text)
        return file.read_text()

    def _file(self, server: Server, name: str) -> Path:
        return self._folder / f"{server.label.replace(' ', '-')}-{server.shape}-{name}"

    def _kept(
        self,
        server: Server,
        rate: float,
        seconds: float,
        after: tuple[float, float] | None,
        seed: int,
        name: str,
    ) -> Window | None:
        file = self._file(server, f"{name}.json.gz")
        if file.exists():
            return Window.read(file)
        if file.name in self.failed:
            return None
        if signals.continued.is_set():
            raise KeyboardInterrupt
        progress(f"{NAME}: {server} at {rate:.1f} requests/s")
        application = application_of(server)
        try:
            # Once more if k6 was late: another guest of the machine may have had the core.
            for _ in range(2):
                found = self._site().window(
                    server, application, rate, seconds, after=after, seed=seed
                )
                if not found.late:
                    break
        except ProgramError as error:
            self.failed[file.name] = str(error)
            return None
        finally:
            clear_progress()
        found.written(file)
        print(line(found), flush=True)
        return found


def line(window: Window) -> str:
    said = (
        f"{window.server} at {window.rate:.1f}/s: light p99 "
        f"{window.latency_s(LIGHT, 0.99) * 1e3:.0f} ms, {window.failures} failed, CPU "
        f"{window.site_cpu:.2f} site, {window.database_cpu:.2f} database, {window.load_cpu:.2f} k6"
    )
    return f"{said}; discarded, k6 was late" if window.late else said


class Score(NamedTuple):
    """`rate` is the highest that the server sustains; `p99_s` are those of the light pages by the
    rates that were measured, medians of the rounds, infinite where requests failed."""

    server: Server
    rate: float
    p99_s: dict[float, float]
    near: Window
    at_half: Window
    overload: Window


def best_shape(
    windows: Windows, base: Server, shapes: Sequence[tuple[int, int]], rate: float
) -> Server | None:
    """The shape that does best at one rate: the fewest fail, and the p99 of the light pages is low.
    None if none serves."""
    found = []
    for processes, threads in shapes:
        server = base._replace(processes=processes, threads=threads)
        window = windows.window(server, rate, SWEEP_SEED)
        if window is not None and not window.late:
            found.append((window.failures, window.latency_s(LIGHT, 0.99), server))
    return min(found, key=lambda each: each[:2])[2] if found else None


def measure_in_turn(
    windows: Windows, servers: Sequence[Server], rates: Sequence[float], seeds: Sequence[int]
) -> dict[Server, dict[float, list[Window]]]:
    """The windows of each server by rate, one for each seed, without those in which k6 was late."""
    found: dict[Server, dict[float, list[Window]]] = {each: {} for each in servers}
    hopeless_above: dict[Server, float] = {}
    for seed in seeds:
        for rate in rates:
            for server in servers:
                if rate > hopeless_above.get(server, math.inf):
                    continue
                window = windows.window(server, rate, seed)
                if window is None or window.late:
                    continue
                found[server].setdefault(rate, []).append(window)
                if is_hopeless(window):
                    hopeless_above[server] = rate
    return found


def is_hopeless(window: Window) -> bool:
    failed = window.failures > HOPELESS_FAILURES * len(window.requests)
    return failed or window.latency_s(LIGHT, 0.99) > HOPELESS_P99_S


def light_p99_s(windows: Sequence[Window]) -> float:
    """The median of the rounds, infinite if a request failed in half of them."""
    return median(math.inf if w.failures else w.latency_s(LIGHT, 0.99) for w in windows)


def highest_rate(p99_s: dict[float, float]) -> float:
    """The rate at which the p99 crosses the limit, on a line between the logarithms of the p99 at
    the two rates around it; 0.0 if the server sustains none of the rates. No rate above those that
    were measured counts."""
    sustained = 0.0
    for rate in sorted(p99_s):
        if p99_s[rate] < LIGHT_P99_S:
            sustained = rate
            continue
        if sustained and math.isfinite(p99_s[rate]):
            low, high = math.log(p99_s[sustained]), math.log(p99_s[rate])
            share = (math.log(LIGHT_P99_S) - low) / (high - low)
            sustained += share * (rate - sustained)
        break
    return sustained


def score(
    windows: Windows, measured: dict[Server, dict[float, list[Window]]], seed: int = 0
) -> list[Score]:
    """The scores of the servers that sustain a rate, the highest first."""
    rates = {
        server: {rate: light_p99_s(each) for rate, each in by_rate.items()}
        for server, by_rate in measured.items()
    }
    highest = {server: highest_rate(p99_s) for server, p99_s in rates.items()}
    halves = {
        server: windows.window(server, rate / 2, seed)
        for server, rate in highest.items()
        if rate > 0
    }
    overloads = {server: windows.overload(server, highest[server], seed) for server in halves}
    scores = []
    for server, half in halves.items():
        overload, rate = overloads[server], highest[server]
        if half is not None and overload is not None:
            # The highest of the measured rates that it sustains.
            nearest = max(each for each in measured[server] if each <= rate)
            near = measured[server][nearest][0]
            scores.append(Score(server, rate, rates[server], near, half, overload))
    return sorted(scores, key=lambda each: -each.rate)


def useful_per_s(window: Window) -> float:
    """Light pages that were answered in time, a second, before the rate fell."""
    return (
        sum(
            not request.failed and request.latency_s <= USEFUL_S and request.begin_s < OVERLOAD_S
            for request in window.of(LIGHT)
        )
        / OVERLOAD_S
    )


def recovery_s(window: Window) -> float:
    """The seconds from the fall of the rate until nine of ten light pages of each further second
    are answered within 100 ms."""
    slow = [
        second
        for second in range(math.floor(RECOVERY_S))
        if not answered_in_time(window, OVERLOAD_S + second)
    ]
    return 0.0 if not slow else slow[-1] + 1.0


def answered_in_time(window: Window, from_s: float) -> bool:
    begun = [r for r in window.of(LIGHT) if from_s <= r.begin_s < from_s + 1]
    slow = sum(r.failed or r.latency_s > LIGHT_P99_S for r in begun)
    return slow <= 0.1 * len(begun)


HEADINGS = (
    *("server", "shape", "requests/s", "p99 at half", "memory MB", "CPU s/1000"),
    *("useful/s", "failed", "recovery s", "k6's CPU"),
)


def shown(window: Window, value: float) -> str:
    """The figure, or - where k6 was late."""
    return "-" if window.late else number(value)


def print_scores(scores: Sequence[Score]) -> None:
    rows = []
    for each in scores:
        rows.append(
            (
                each.server.label,
                each.server.shape,
                f"{each.rate:.1f}",
                shown(each.at_half, each.at_half.latency_s(LIGHT, 0.99) * 1e3),
                number(each.near.pss_bytes / 1e6),
                shown(each.at_half, 1000 * each.at_half.site_cpu / each.at_half.answered_per_s),
                shown(each.overload, useful_per_s(each.overload)),
                shown(each.overload, each.overload.failures),
                shown(each.overload, recovery_s(each.overload)),
                number(each.near.load_cpu),
            )
        )
    print(table(HEADINGS, rows))
    print(
        "requests/s: the highest rate at which the p99 of the light pages stays below 100 ms and\n"
        "nothing fails. p99: of the light pages, in ms. memory: PSS at the rate below it.\n"
        "CPU: of the server's processes, at half. useful: light pages within a second, at 130 %;\n"
        "failed: then and while the load falls to half; recovery: from then. k6's CPU: of a core.\n"
        "-: k6 was late."
    )


def page_s(window: Window, page: str) -> tuple[float, float] | None:
    """The p50 and the p99 of a page, or None where k6 was late or nobody asked for it."""
    if window.late or not window.of([page]):
        return None
    low, high = (round(window.latency_s([page], share), 6) for share in (0.5, 0.99))
    return low, high


def print_pages(scores: Sequence[Score]) -> None:
    headings = ("p50, p99 in ms at half", *PAGES)
    rows = []
    for each in scores:
        cells = []
        for page in PAGES:
            latencies_s = page_s(each.at_half, page)
            if latencies_s is not None:
                low, high = latencies_s
                cells.append(f"{number(low * 1e3)}, {number(high * 1e3)}")
            else:
                cells.append("-")
        rows.append((each.server.label, *cells))
    print(table(headings, rows, names=1))


def print_curves(scores: Sequence[Score]) -> None:
    """The p99 of the light pages at the same rates under every server."""
    rows = []
    for rate in sorted({rate for each in scores for rate in each.p99_s}):
        p99_s = (each.p99_s.get(rate, math.inf) for each in scores)
        cells = (number(each * 1e3) if math.isfinite(each) else "-" for each in p99_s)
        rows.append((f"{rate:.0f}", *cells))
    print(table(("requests/s", *(each.server.label for each in scores)), rows, names=1))
    print(
        "The p99 of the light pages in ms, medians of the rounds. -: requests failed, here or at\n"
        "a lower rate."
    )


def write(
    scores: Sequence[Score],
    measured: dict[Server, dict[float, list[Window]]],
    failed: dict[str, str],
    file: Path,
) -> None:
    """Writes the figures of the scores and of all windows, without the requests."""
    kept = [
        {
            **each.server.parameters(),
            "rate": each.rate,
            "near": summary(each.near),
            "at_half": summary(each.at_half),
            "overload": summary(each.overload),
            "useful_per_s": useful_per_s(each.overload),
            "recovery_s": recovery_s(each.overload),
        }
        for each in scores
    ]
    windows = [
        summary(window)
        for by_rate in measured.values()
        for each in by_rate.values()
        for window in each
    ]
    found = {"scores": kept, "windows": windows, "failed": failed}
    file.write_text(json.dumps(found) + "\n")


def summary(window: Window) -> dict[str, object]:
    return {
        **window._asdict(),
        "requests": len(window.requests),
        "failures": window.failures,
        "light_p99_s": window.latency_s(LIGHT, 0.99),
        # The p50 and the p99.
        "pages_s": {page: page_s(window, page) for page in PAGES},
    }


@contextmanager
def sites() -> Iterator[Callable[[], Site]]:
    """Starts the database and the service when the first window needs them."""
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder, ExitStack() as stack:

        @cache
        def site() -> Site:
            progress(f"{NAME}: filling the database")
            return Site(stack.enter_context(services.services()), Path(folder))

        yield site


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the windows are kept")
    parser.add_argument(
        "--server",
        nargs="+",
        choices=tuple(SERVERS),
        default=tuple(SERVERS),
        metavar="NAME",
        help=f"which servers: {', '.join(SERVERS)} (default: all)",
    )
    parser.add_argument(
        "--shape",
        type=shape,
        nargs="+",
        metavar="PxT",
        help="processes x threads, instead of those that each server is tried with",
    )
    parser.add_argument(
        "--rate",
        type=sitting.at_least_one,
        default=60,
        metavar="N",
        help="requests a second at which all shapes are tried; the others are shares of it "
        "(default: 60)",
    )
    parser.add_argument(
        "--rounds",
        type=sitting.at_least_one,
        default=2,
        metavar="N",
        help="windows of each server at each rate (default: 2)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="which visitors the first round has, and each further round the next (default: 0)",
    )
    parser.add_argument(
        "--sweep",
        type=Path,
        metavar="FOLDER",
        help="where the windows are kept that choose the shapes (default: the first FOLDER)",
    )
    parser.add_argument(
        "--seconds",
        type=sitting.positive_seconds,
        default=15.0,
        metavar="S",
        help="how long a window is (default: 15)",
    )
    signals.watch()
    try:
        options = parser.parse_args(arguments)
        site_window.check()
        sweep_folder = options.sweep or options.folder
        for folder in (options.folder, sweep_folder):
            folder.mkdir(parents=True, exist_ok=True)
        with sites() as site:
            windows = Windows(options.folder, site, options.seconds)
            sweep = Windows(sweep_folder, site, options.seconds)
            found = (
                best_shape(sweep, *candidates(name, options.shape), options.rate)
                for name in options.server
            )
            servers = [server for server in found if server is not None]
            rates = [step * options.rate for step in STEPS]
            seeds = range(options.seed, options.seed + options.rounds)
            measured = measure_in_turn(windows, servers, rates, seeds)
            scores = score(windows, measured, options.seed)
            print_scores(scores)
            for server in measured.keys() - {each.server for each in scores}:
                print(f"without a score: {server}, which sustains none of the rates")
            print()
            print_pages(scores)
            print()
            print_curves(scores)
            failed = {**sweep.failed, **windows.failed}
            for name, why in failed.items():
                print(f"without {name}: {why}")
            write(scores, measured, failed, options.folder / "scores.json")
            for each in scores:
                if each.server.name == HEADWAY:
                    for rate in (each.rate, OVERLOAD * each.rate):
                        print(f"\nheadway top at {rate:.1f} requests/s:")
                        print(windows.told(each.server, rate))
    except (CommandError, services.Missing) as error:
        clear_progress()
        print(f"bench {NAME}: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, CommandError) else 2
    except KeyboardInterrupt:
        clear_progress()
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
