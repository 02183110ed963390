"""Makes the datagrams beside it anew, from a real Apache with mod_wsgi: `capture.py` as root.

Root, because Apache runs under a host name made up for it, in a UTS namespace of its own: what is
kept here is to say nothing of the machine that it was taken on.
"""

from __future__ import annotations

import shutil
import socket
import struct
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from apache import MISSING, Apache, Shape  # noqa: E402

HOST = "web1"
AS_HOST = ("unshare", "--uts", "sh", "-c", f'hostname {HOST} && exec "$@"', "sh")
HEADER = struct.Struct("<4sBBHIId")
KINDS = {
    2: "tick",
    4: "slow_request",
    5: "process_started",
    6: "process_stopping",
    7: "process_stopped",
    8: "gc_snapshot",
    9: "gc_event",
}
# Types of values: the fixed ones take 8 bytes, the others say how many items follow.
FIXED = (1, 2, 3)
ITEM_BYTES = {4: 1, 5: 4, 6: 8}
# The fields whose values distinguish datagrams of one kind with the same fields: the process group,
# the interpreter, why a process ends, whether a slow request is still active.
TELLING = (6, 8, 130, 200)
CLIENTS = 10
LOAD_S = 2.5
# <script>, and a terminal's escape sequence for red.
ESCAPED = "/slow/%3Cscript%3E%1B%5B31m"


def fields(datagram: bytes) -> dict[int, bytes]:
    """The values as they came, by field."""
    found, at = {}, HEADER.size
    while at < len(datagram):
        number, kind = struct.unpack_from("<HB", datagram, at)
        at += 3
        if kind in FIXED:
            size = 8
        else:
            (length,) = struct.unpack_from("<H", datagram, at)
            at, size = at + 2, length * ITEM_BYTES[kind]
        found[number] = datagram[at : at + size]
        at += size
    return found


def shape_of(datagram: bytes) -> object:
    found = fields(datagram)
    return frozenset(found), tuple(found.get(number) for number in TELLING)


class Receiver:
    """Everything that comes in, by what was going on then."""

    def __init__(self, path: Path) -> None:
        self.situation = "start"
        self.received: dict[tuple[str, str], list[bytes]] = defaultdict(list)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        path.chmod(0o666)
        self._thread = threading.Thread(target=self._receive)
        self._thread.start()

    def _receive(self) -> None:
        while datagram := self._socket.recv(65_536):
            kind = HEADER.unpack_from(datagram)[2]
            self.received[self.situation, KINDS[kind]].append(datagram)

    def close(self, path: Path) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", str(path))
        self._thread.join()
        self._socket.close()


def at_once(count: int, seconds: float, ask: Callable[[], object]) -> None:
    end_s = time.monotonic() + seconds

    def again() -> None:
        while time.monotonic() < end_s:
            ask()

    threads = [threading.Thread(target=again) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def take(folder: Path) -> Receiver:
    path = folder / "telemetry.sock"
    receiver = Receiver(path)
    shape = Shape(options="switch-interval=0.005")
    try:
        site = folder / "site"
        site.mkdir()
        site.chmod(0o755)
        with Apache(site, path, shape, *AS_HOST) as apache:
            receiver.situation = "idle"
            time.sleep(1.5)
            receiver.situation = "loaded"
            at_once(CLIENTS, LOAD_S, lambda: apache.get("/deadline"))
            receiver.situation = "mixed"
            for page in ("/slow", "/collect", "/hold", "/raises", ESCAPED):
                apache.get(page)
            apache.get("/echo", b"x" * 100_000)
            time.sleep(1.5)
            receiver.situation = "stopped"
        interpreter = folder / "interpreter"
        interpreter.mkdir()
        interpreter.chmod(0o755)
        shape = Shape(1, 2, application_group="tenant", options="maximum-requests=40")
        with Apache(interpreter, path, shape, *AS_HOST) as apache:
            receiver.situation = "maximum_requests"
            for _ in range(60):
                apache.get("/collect" if _ % 20 == 0 else "/")
            time.sleep(3)
    finally:
        receiver.close(path)
    return receiver


def main() -> int:
    if MISSING:
        print(f"capture: {MISSING}", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="headway-datagrams-"))
    folder.chmod(0o755)
    try:
        receiver = take(folder)
    finally:
        shutil.rmtree(folder)
    for old in HERE.glob("*.bin"):
        old.unlink()
    seen = set()
    for (situation, kind), datagrams in receiver.received.items():
        number = 0
        for datagram in reversed(datagrams):
            shape = kind, shape_of(datagram), kind == "tick" and situation == "loaded"
            if shape not in seen:
                seen.add(shape)
                (HERE / f"{kind}-{situation}-{number}.bin").write_bytes(datagram)
                number += 1
        print(f"{situation:17} {kind:17} {len(datagrams):4}, kept {number}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
