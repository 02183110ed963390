"""Sends a UDP packet, waits until it comes back, and sends the next.

    packet_client.py PORT PACKET_BYTES

It answers with how many came back and in which time: from the first that was sent in the window to
the return of the last that was, so that a slow echo is no fraction of a packet.
"""

from __future__ import annotations

import socket
import struct
import sys
import time

import window

# Longer than any wait worth telling apart from no answer at all.
RECEIVE_TIMEOUT_S = 10


def connect(port: int) -> socket.socket:
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(("127.0.0.1", port))
    # The kernel's own timeout: Python's would cost a poll() for each receive.
    timeout = struct.pack("ll", RECEIVE_TIMEOUT_S, 0)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
    return client


def exchange(client: socket.socket, packet: bytes, end_ns: int) -> tuple[int, int]:
    """How many packets came back, and how many did not, of those sent before the end."""
    clock_ns, send, receive, size = time.monotonic_ns, client.send, client.recv, len(packet)
    returned = lost = 0
    while clock_ns() < end_ns:
        try:
            send(packet)
            receive(size)
        except BlockingIOError:
            lost += 1
        else:
            returned += 1
    return returned, lost


def main() -> None:
    port, packet_bytes = map(int, sys.argv[1:3])
    with connect(port) as client:
        window.say()
        times = window.hear_window()
        packet = b"x" * packet_bytes
        exchange(client, packet, times.begin_ns)
        began_ns = time.monotonic_ns()
        returned, lost = exchange(client, packet, times.end_ns)
        seconds = (time.monotonic_ns() - began_ns) / window.NS
    window.answer(returned=returned, lost=lost, seconds=seconds)


if __name__ == "__main__":
    main()
