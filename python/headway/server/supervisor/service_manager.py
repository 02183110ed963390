"""Notifies the service manager by the protocol of sd_notify(3), with one datagram for each message.

Without NOTIFY_SOCKET in the environment, nothing is sent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time

from headway.server.system import Clock


class ServiceManager:
    def __init__(self, clock: Clock) -> None:
        """Removes the protocol's variables, which are for this process alone, from `os.environ`."""
        self._clock = clock
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        period_us = os.environ.pop("WATCHDOG_USEC", "")
        pid = os.environ.pop("WATCHDOG_PID", str(os.getpid()))
        is_watched = self._address and period_us.isdecimal() and pid == str(os.getpid())
        # Half the watchdog's period.
        self._ping_period_s = int(period_us) / 2e6 if is_watched else 0.0
        # When the next ping is due, by the clock; `None` before READY=1 was sent. The watchdog
        # starts only then, and earlier pings could fill the manager's queue, so that READY is lost.
        self.ping_at: float | None = None

    def is_ready(self) -> None:
        self._tell("READY=1")
        if self._ping_period_s and self.ping_at is None:
            self.ping_at = self._clock()

    def reloads(self) -> None:
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={now_us}")

    def stops(self) -> None:
        self._tell("STOPPING=1")

    def ping_if_due(self) -> None:
        """Pings the watchdog. Only the supervisor's loop calls this, so a ping shows that the loop
        runs."""
        if self.ping_at is not None and self._clock() >= self.ping_at:
            self._tell("WATCHDOG=1")
            self.ping_at = self._clock() + self._ping_period_s

    def _tell(self, text: str) -> None:
        if not self._address:
            return
        address = self._address
        if address.startswith("@"):
            # It stands for the NUL byte of an abstract address.
            address = f"\0{address[1:]}"
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
        ):
            sender.sendto(text.encode(), socket.MSG_DONTWAIT, address)
