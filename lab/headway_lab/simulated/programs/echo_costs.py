"""Measures the processor time of an echo server and of its client for each request.

    echo_costs.py CORE MILLISECONDS

Both are on one core, the client as a child, so that nothing but they two decides how fast it goes.
Their loops are those of the benchmark.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

import window
from echo_client import ask, connect
from echo_server import echo


def main() -> None:
    core, milliseconds = map(int, sys.argv[1:])
    os.sched_setaffinity(0, {core})
    reader, writer = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as server:
        if os.fork() == 0:
            with connect(server.getsockname()[1]) as client:
                now_ns, before_ns = time.monotonic_ns(), time.process_time_ns()
                asked = ask(client, window.Window(now_ns, now_ns + milliseconds * 1_000_000))
                used_ns = time.process_time_ns() - before_ns
            os.write(writer, json.dumps([len(asked.latencies_ns), used_ns]).encode())
            window.leave()
        os.close(writer)
        connection, _ = server.accept()
        before_ns = time.process_time_ns()
        echo(connection)
        used_ns = time.process_time_ns() - before_ns
    with open(reader) as told:
        requests, client_ns = json.load(told)
    os.wait()
    window.answer(requests=requests, server_ns=used_ns / requests, client_ns=client_ns / requests)


if __name__ == "__main__":
    main()
