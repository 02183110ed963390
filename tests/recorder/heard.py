"""The reports of processes as a recorder receives them: real datagrams on a real socket."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from headway import _native

TICK, SLOW, STARTED, STOPPING, STOPPED, GC_SNAPSHOT, GC_EVENT = 2, 4, 5, 6, 7, 8, 9
TIMEOUT_S = 60
# Begins a datagram that no process sends.
MARK = b"mark "


class Datagram(NamedTuple):
    kind: int
    pid: int
    sequence: int
    stamp: float
    fields: dict[str, Any]


class Ear:
    """Listens until it is left."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "telemetry.sock"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.path))
        self._heard: list[Datagram] = []
        # The same as they came.
        self.raw: list[bytes] = []
        self._marks: set[bytes] = set()
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._listen)

    @property
    def target(self) -> str:
        return f"unix:{self.path}"

    def __enter__(self) -> Ear:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"over", str(self.path))
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while (datagram := self._socket.recv(65_536)) != b"over":
            if datagram.startswith(MARK):
                with self._more:
                    self._marks.add(datagram)
                    self._more.notify_all()
                continue
            heard = Datagram(*_native.telemetry_parse(datagram))
            with self._more:
                self._heard.append(heard)
                self.raw.append(datagram)
                self._more.notify_all()

    def catch_up(self) -> None:
        """Until everything was heard that has been sent so far."""
        mark = MARK + str(time.monotonic_ns()).encode()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(mark, str(self.path))
        with self._more:
            assert self._more.wait_for(lambda: mark in self._marks, TIMEOUT_S)

    def heard(self, kind: int) -> list[Datagram]:
        with self._more:
            return [each for each in self._heard if each.kind == kind]

    def wait_for(self, kind: int, condition: Callable[[dict[str, Any]], object]) -> Datagram:
        """The first datagram of that kind whose fields are as wanted."""
        end = time.monotonic() + TIMEOUT_S
        seen = 0
        with self._more:
            while True:
                for each in self._heard[seen:]:
                    if each.kind == kind and condition(each.fields):
                        return each
                seen = len(self._heard)
                left = end - time.monotonic()
                assert left > 0, f"not heard: {[each for each in self._heard if each.kind == kind]}"
                self._more.wait(left)

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """The rows of a table, of all ticks so far."""
        for tick in self.heard(TICK):
            yield from tick.fields.get(name, ())

    def wait_for_row(
        self, name: str, condition: Callable[[dict[str, Any]], object]
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def is_in(fields: dict[str, Any]) -> bool:
            for row in fields.get(name, ()):
                if condition(row):
                    found.update(row)
                    return True
            return False

        self.wait_for(TICK, is_in)
        return found
