"""A client that sends one byte, waits until it comes back, and sends the next.

    echo_client.py PORT

The answer has the latency of each response in the window, and that of the response that was
outstanding at its end; the time at which the first request was sent; and whether the last response
arrived.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from array import array
from typing import NamedTuple

import window

# A longer wait counts as no answer.
RECEIVE_TIMEOUT_S = 10


def connect(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # The kernel's own timeout: Python's would cost a poll() for each receive.
    timeout = struct.pack("ll", RECEIVE_TIMEOUT_S, 0)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
    client.sendall(b"x")
    client.recv(1)
    return client


class Asked(NamedTuple):
    """Each request is sent when the response to the previous one has arrived, so the time of the
    first and all latencies determine the times of all."""

    first_sent_ns: int
    latencies_ns: array[int]
    answered: bool


def ask(client: socket.socket, times: window.Window) -> Asked:
    """Asks until the first response after the window's end has arrived, and returns all responses
    after its begin."""
    latencies_ns = array("q")
    clock_ns, record = time.monotonic_ns, latencies_ns.append
    send, receive = client.send, client.recv
    begin_ns, end_ns = times
    received_ns = clock_ns()
    answered = True
    while received_ns < end_ns:
        sent_ns = received_ns
        try:
            send(b"x")
            receive(1)
        except BlockingIOError:
            # The latency is at least the time that was waited.
            answered = False
            end_ns = received_ns
        received_ns = clock_ns()
        if received_ns >= begin_ns:
            record(received_ns - sent_ns)
    return Asked(received_ns - sum(latencies_ns), latencies_ns, answered)


def main() -> None:
    client = connect(int(sys.argv[1]))
    window.say()
    times = window.hear_window()
    asked = ask(client, times)
    client.close()
    window.answer(
        first_sent_ns=asked.first_sent_ns,
        latencies_ns=asked.latencies_ns.tolist(),
        answered=asked.answered,
    )


if __name__ == "__main__":
    main()
