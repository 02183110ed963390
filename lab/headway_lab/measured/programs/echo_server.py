"""The echo server of the convoy: a thread for each connection, and CPU-bound threads beside them.

    echo_server.py CPU_THREADS SWITCH_INTERVAL_S [interpreters]

The main thread accepts; a thread named "control" talks to the benchmark. The CPU-bound threads
start when the window is named, with the client already connected; with "interpreters", each has a
sub-interpreter and a GIL of its own.
"""

from __future__ import annotations

import socket
import sys
import threading

import window
from computation import Computation, conduct


def echo(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        while True:
            data = connection.recv(4096)
            if not data:
                break
            connection.sendall(data)


def talk(port: int, computation: Computation) -> None:
    window.answer(**conduct(computation, port=port))


def computation_of(cpu_threads: int, *where: str) -> Computation:
    if not where:
        return Computation(cpu_threads)
    # CPython from 3.12 on.
    from sub_interpreters import SubInterpreters

    return SubInterpreters(cpu_threads)


def main() -> None:
    cpu_threads, switch_interval_s = int(sys.argv[1]), float(sys.argv[2])
    sys.setswitchinterval(switch_interval_s)
    computation = computation_of(cpu_threads, *sys.argv[3:])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        talking = threading.Thread(target=talk, args=(port, computation), name="control")
        talking.start()
        while True:
            connection, _ = server.accept()
            threading.Thread(target=echo, args=(connection,), name="echo").start()


if __name__ == "__main__":
    main()
