"""Measures the cost of reports to `headway serve`: hello world under wrk, with and without
--telemetry.

Both are measured in every round, each in a fresh server. The reports are received, every second,
and discarded; bench/telemetry_store.py measures the cost of a recorder.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import load_cell
import sitting
import wrk
from figures import number, table, target
from installed import Installed
from load_cell import Cell
from peers import Server
from side_by_side import Sitting, headways, ratio_text, spread_text

from headway.output.claim import Statement
from headway.programs.processes import ProgramError

NAME = "telemetry_reporter"
SHAPES = ((1, 1), (1, 4))
# A share of the throughput without reports.
SHARE_OF_SILENT = 0.99
MAX_DATAGRAM_BYTES = 65_536
HEADINGS = ("server", "requests/s", "/silent", "CPU us/request", "/silent", "p99 ms", "RSS MB")


class DatagramReceiver:
    """Receives and counts datagrams and discards them."""

    def __init__(self, path: Path) -> None:
        self.received = 0
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self._path)
        self._thread = threading.Thread(target=self._receive)
        self._thread.start()

    def _receive(self) -> None:
        while self._socket.recv(MAX_DATAGRAM_BYTES):
            self.received += 1

    def close(self) -> None:
        """Ends the thread with an empty datagram."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self._path)
        self._thread.join()
        self._socket.close()


@contextmanager
def receiving() -> Iterator[tuple[str, DatagramReceiver]]:
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder:
        path = Path(folder) / "reports.sock"
        datagrams = DatagramReceiver(path)
        try:
            yield str(path), datagrams
        finally:
            datagrams.close()


def measure_cell(
    cell: Cell, installed: Installed, options: argparse.Namespace, datagrams: DatagramReceiver
) -> dict[str, float]:
    before = datagrams.received
    found = load_cell.measure(cell, installed, options)
    if (datagrams.received > before) != (cell.server.telemetry is not None):
        raise ProgramError(f"{cell}: {datagrams.received - before} reports came")
    return found


def silent(cell: Cell) -> Cell:
    return cell._replace(server=cell.server._replace(telemetry=None))


def print_table(found: Sitting, cells: Sequence[Cell]) -> None:
    figures, lines = found.figures, []
    for cell in cells:
        other = silent(cell) if cell.server.telemetry else None
        lines.append(
            (
                str(cell.server),
                spread_text(figures.values(cell, "requests_per_s")),
                ratio_text(figures, cell, other, "requests_per_s"),
                spread_text(figures.values(cell, "cpu_per_request_s"), 1e6),
                ratio_text(figures, cell, other, "cpu_per_request_s"),
                number(figures.median(cell, "p99_s") * 1e3),
                number(figures.median(cell, "rss_bytes") / 1e6),
            )
        )
    print(table(HEADINGS, lines, names=1))
    print("Medians over rounds, with their range; /silent: of the ratios round by round.")


def targets_of(found: Sitting, cells: Sequence[Cell]) -> list[Statement]:
    return [
        target(
            f"{cell}: requests/s of those without reports",
            found.figures.ratio(cell, silent(cell), "requests_per_s"),
            SHARE_OF_SILENT,
        )
        for cell in cells
        if cell.server.telemetry is not None and silent(cell) in cells
    ]


def measure(options: argparse.Namespace) -> sitting.Experiments:
    wrk.check()
    installed = Installed([], Path())
    found = Sitting(NAME, installed)
    with receiving() as (path, datagrams):
        servers: list[Server] = []
        for processes, threads in SHAPES:
            for server in headways(options, processes, threads):
                servers += [server, server._replace(telemetry=path)]
        cells = [Cell("hello", "/", server) for server in servers]
        measure_with = partial(
            measure_cell, installed=installed, options=options, datagrams=datagrams
        )
        cells = found.run(options.rounds, cells, measure_with)
    print_table(found, cells)
    return found.conclude(targets_of(found, cells), Cell.parameters)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=15, seconds=4.0, quick_seconds=2.0, policies=())
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
