"""A client that sends one byte, waits until it comes back, and sends the next when it is due.

    paced_client.py PORT REQUESTS_PER_S

With 0 requests a second, each is due at once. A late answer delays the next request, and later
ones make up for it. It asks until it is ended.
"""

from __future__ import annotations

import ctypes
import socket
import sys
import time

PR_SET_TIMERSLACK = 29  # <linux/prctl.h>
# A client that is further behind gives up what it has missed.
MOST_BEHIND_NS = 10_000_000
NS = 1_000_000_000


def main() -> None:
    port, rate = int(sys.argv[1]), float(sys.argv[2])
    # Sleeps end in time.
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)
    client = socket.create_connection(("127.0.0.1", port))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    interval_ns = round(NS / rate) if rate else 0
    due_ns = time.monotonic_ns()
    while True:
        client.sendall(b"x")
        if not client.recv(1):
            break
        if interval_ns:
            now_ns = time.monotonic_ns()
            due_ns = max(due_ns + interval_ns, now_ns - MOST_BEHIND_NS)
            if due_ns > now_ns:
                time.sleep((due_ns - now_ns) / NS)


if __name__ == "__main__":
    main()
