"""A client that sends one byte, waits until it comes back, and sends the next.

    echo_client.py PORT

It answers with the latency of each response of the window, and of the one that was under way at its
end; with the time at which it asked for the first of them; and with whether the last ever came.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from array import array
from typing import NamedTuple

import window

# Longer than any wait worth telling apart from no answer at all.
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
    """Each request is sent when the response to the one before it is there: one time and all
    latencies tell when."""

    first_sent_ns: int
    latencies_ns: array[int]
    answered: bool


def ask(client: socket.socket, times: window.Window) -> Asked:
    """Until all responses after the window's begin are there, up to the first after its end."""
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
            # Its latency is at least the time that it was waited for.
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
