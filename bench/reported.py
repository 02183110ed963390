"""Captures datagrams that a real `headway serve` sends under load, to resend them as those of
other processes.

This module does not know what is measured with them.
"""

from __future__ import annotations

import socket
import struct
import sys
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from places import PROGRAMS

from headway import _native
from headway.programs.processes import ProgramError
from headway_lab.setting import started

PROCESSES, THREADS = 2, 5
CLIENTS = 6
PATHS = ("/", "/fixed", "/deadline", "/heavy")
THINKING_S = 0.03
START_TIMEOUT_S = 30.0
MAX_DATAGRAM_BYTES = 65_536
KIND_AT, PID_AT, SEQUENCE_AT, STAMP_AT = 5, 8, 12, 16
TICK = 2


def read_ticks(count: int) -> list[bytes]:
    """Returns `count` ticks of all processes together, which takes half as many seconds. The ticks
    that name lines and calls come before them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reports.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inlet:
            inlet.bind(str(path))
            inlet.settimeout(START_TIMEOUT_S)
            return _read_served(inlet, path, count)


def _read_served(inlet: socket.socket, path: Path, count: int) -> list[bytes]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        *(sys.executable, "-m", "headway", "serve", "pages:app", "--app-dir", str(PROGRAMS)),
        *("--bind", f"127.0.0.1:{port}", "--processes", str(PROCESSES)),
        *("--threads", str(THREADS), "--telemetry", f"unix:{path}"),
    ]
    stopped = threading.Event()
    found: list[bytes] = []
    names: list[bytes] = []
    loops = {"PAGE_LOOPS": "20000", "FIXED_LOOPS": "60000"}
    with started(command, "headway serve", speaks=False, environment=loops):
        clients = [
            threading.Thread(target=_ask, args=(port, number, stopped)) for number in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        try:
            # The first datagrams report starts.
            began = time.monotonic()
            while len(found) < count:
                try:
                    datagram = inlet.recv(MAX_DATAGRAM_BYTES)
                except TimeoutError:
                    raise ProgramError("headway serve reports nothing") from None
                if datagram[KIND_AT] != TICK:
                    continue
                if time.monotonic() - began > 3:
                    found.append(datagram)
                elif {"line_names", "calls"} & _native.telemetry_parse(datagram)[4].keys():
                    names.append(datagram)
        finally:
            stopped.set()
            for client in clients:
                client.join()
    return names + found


def records_of(ticks: Sequence[bytes], holders: Sequence[bytes] | None = None) -> list[bytes]:
    """The records that a recorder makes of these ticks. The lines and stacks are those of the ticks
    of `holders`, of which there may be none."""
    names: defaultdict[int, object] = defaultdict(_native.telemetry_holder_names)
    records = []
    for at, tick in enumerate(ticks):
        record = _native.telemetry_record(tick)
        if (source := tick if holders is None else holders[at] if holders else None) is not None:
            pid = _native.telemetry_parse(source)[1]
            record, _ = _native.telemetry_add_holders(names[pid], source, record)
        records.append(record)
    return records


def only(tick: bytes, names: Sequence[str]) -> bytes:
    """The tick with some of its fields."""
    kind, pid, sequence, stamp_s, fields = _native.telemetry_parse(tick)
    found = {name: fields[name] for name in names if name in fields}
    return _native.telemetry_encode(kind, pid, sequence, stamp_s, found)


def _ask(port: int, number: int, stopped: threading.Event) -> None:
    while not stopped.wait(THINKING_S):
        number += 1
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}{PATHS[number % len(PATHS)]}", timeout=30
            ) as response:
                response.read()
        except OSError:
            # The server does not accept connections yet, or no longer.
            continue


def as_another(datagram: bytes, pid: int, sequence: int, stamp: float) -> bytes:
    """The datagram as another process would send it at another time."""
    changed = bytearray(datagram)
    struct.pack_into("<I", changed, PID_AT, pid)
    struct.pack_into("<I", changed, SEQUENCE_AT, sequence)
    struct.pack_into("<d", changed, STAMP_AT, stamp)
    return bytes(changed)


def mean_bytes(datagrams: Sequence[bytes]) -> float:
    return sum(map(len, datagrams)) / len(datagrams)
