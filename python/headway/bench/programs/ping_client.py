"""Sends UDP pings until the window's end: `ping_client.py PORT`.

Each goes out a random while after the one before came back, so that pings neither queue nor fall
into step with the switch interval.
"""

from __future__ import annotations

import random
import socket
import sys
import time

import window

MAX_PAUSE_S = 0.002
RECEIVE_TIMEOUT_S = 10
SEED = 7946


def main() -> None:
    chance = random.Random(SEED)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", int(sys.argv[1])))
        client.settimeout(RECEIVE_TIMEOUT_S)
        window.say()
        times = window.hear_window()
        lost = 0
        while time.monotonic_ns() < times.end_ns:
            time.sleep(chance.uniform(0, MAX_PAUSE_S))
            client.send(b"%d" % time.monotonic_ns())
            try:
                client.recv(64)
            except TimeoutError:
                lost += 1
    window.answer(lost=lost)


if __name__ == "__main__":
    main()
