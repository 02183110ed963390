"""The echo server of the convoy: a thread for each connection, and CPU-bound threads beside them.

    echo_server.py CPU_THREADS SWITCH_INTERVAL_S

The main thread accepts; a thread named "control" talks to the benchmark. The CPU-bound threads
start when the window is named, with the client already connected.
"""

from __future__ import annotations

import socket
import sys
import threading

import window
from computation import control


def echo(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        while True:
            data = connection.recv(4096)
            if not data:
                break
            connection.sendall(data)


def talk(port: int, cpu_threads: int) -> None:
    window.answer(**control(cpu_threads, port=port))


def main() -> None:
    cpu_threads, switch_interval_s = int(sys.argv[1]), float(sys.argv[2])
    sys.setswitchinterval(switch_interval_s)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        talking = threading.Thread(target=talk, args=(port, cpu_threads), name="control")
        talking.start()
        while True:
            connection, _ = server.accept()
            threading.Thread(target=echo, args=(connection,), name="echo").start()


if __name__ == "__main__":
    main()
