"""Sends UDP pings until the window's end: `ping_client.py PORT`.

Each is sent a random time after the previous one was received, which the server reports by a
signal. So pings neither queue nor fall into step with the switch interval.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import time

import window

RECEIVED = signal.SIGUSR1
MAX_PAUSE_S = 0.002
RECEIVE_TIMEOUT_S = 10
SEED = 7946


def main() -> None:
    chance = random.Random(SEED)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", int(sys.argv[1])))
        signal.pthread_sigmask(signal.SIG_BLOCK, {RECEIVED})
        window.say()
        times = window.hear_window()
        lost = 0
        while time.monotonic_ns() < times.end_ns:
            time.sleep(chance.uniform(0, MAX_PAUSE_S))
            client.send(b"%d %d" % (time.monotonic_ns(), os.getpid()))
            lost += signal.sigtimedwait({RECEIVED}, RECEIVE_TIMEOUT_S) is None
    window.answer(lost=lost)


if __name__ == "__main__":
    main()
