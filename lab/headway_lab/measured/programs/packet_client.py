"""Sends a UDP packet, waits until it comes back, and sends the next.

    packet_client.py PORT PACKET_BYTES

It answers with how many came back and in which time: from the first that was sent in the window to
the return of the last that was, so that no packet counts in part. There is always one, however
short the window; none if one did not come back for RECEIVE_TIMEOUT_S.
"""

from __future__ import annotations

import socket
import struct
import sys
import time

import window

# A longer wait counts as no answer.
RECEIVE_TIMEOUT_S = 10


def connect(port: int) -> socket.socket:
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(("127.0.0.1", port))
    # The kernel's own timeout: Python's would cost a poll() for each receive.
    timeout = struct.pack("ll", RECEIVE_TIMEOUT_S, 0)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
    return client


def exchange(client: socket.socket, packet: bytes, end_ns: int) -> int:
    """The number of returned packets that were sent before the end, at least one; 0 if one did not
    return."""
    clock_ns, send, receive, size = time.monotonic_ns, client.send, client.recv, len(packet)
    returned = 0
    while True:
        try:
            send(packet)
            receive(size)
        except BlockingIOError:
            return 0
        returned += 1
        if clock_ns() >= end_ns:
            return returned


def main() -> None:
    port, packet_bytes = map(int, sys.argv[1:3])
    with connect(port) as client:
        window.say()
        times = window.hear_window()
        packet = b"x" * packet_bytes
        exchange(client, packet, times.begin_ns)
        began_ns = time.monotonic_ns()
        returned = exchange(client, packet, times.end_ns)
        seconds = (time.monotonic_ns() - began_ns) / window.NS
    window.answer(returned=returned, seconds=seconds)


if __name__ == "__main__":
    main()
