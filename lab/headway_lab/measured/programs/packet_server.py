"""Sends UDP packets back, beside CPU-bound threads with a workload of ccbench's.

    packet_server.py WORKLOAD CPU_THREADS [SWITCH_INTERVAL_S]

The thread "echo" does nothing but receive and send; who sends the packets counts them.
"""

from __future__ import annotations

import socket
import sys
import threading

import window
from computation import control
from workloads import WORKLOADS

MAX_PACKET_BYTES = 65_536


def echo(server: socket.socket) -> None:
    while True:
        packet, address = server.recvfrom(MAX_PACKET_BYTES)
        server.sendto(packet, address)


def main() -> None:
    work, cpu_threads = WORKLOADS[sys.argv[1]], int(sys.argv[2])
    if sys.argv[3:]:
        sys.setswitchinterval(float(sys.argv[3]))
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    threading.Thread(target=echo, args=(server,), name="echo", daemon=True).start()
    window.answer(**control(cpu_threads, work, port=server.getsockname()[1]))


if __name__ == "__main__":
    main()
