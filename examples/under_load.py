"""Starts a web server, loads it for some seconds, prints the response times of its light page, and
stops it. `headway tune run` repeats that under each policy and switch interval:

    headway tune run --smaller --metric 'p99: ([0-9.]+) ms' \\
        examples/under_load.py --light /product/1 --heavy /recommendations/1 -- \\
        -m gunicorn shop:app --threads 8 --bind 127.0.0.1:PORT

The words after `--` are the server's command, without `python`. PORT stands for a free port. Two
visitors ask for the heavy page without a pause. Two others ask for the light one, with a pause of
10 ms after each response.
"""

from __future__ import annotations

import argparse
import http.client
import socket
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

HOST = "127.0.0.1"
START_TIMEOUT_S = 30.0
PAUSE_S = 0.01
TRIES = 3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--light", default="/", help="the target of the light page (default: /)")
    parser.add_argument("--heavy", required=True, help="the target of the heavy page")
    parser.add_argument("--seconds", type=float, default=3.0, help="(default: %(default)g)")
    parser.add_argument("command", nargs="+", metavar="COMMAND")
    options = parser.parse_args()
    server, port = start(options.command, options.light)
    try:
        get(http.client.HTTPConnection(HOST, port), options.heavy)
        latencies_s = visit(port, options.light, options.heavy, options.seconds)
    finally:
        server.terminate()
        server.wait()
    percentiles = statistics.quantiles(latencies_s, n=100)
    print(f"p50: {percentiles[49] * 1e3:.2f} ms, p99: {percentiles[98] * 1e3:.2f} ms")


def start(command: list[str], target: str) -> tuple[subprocess.Popen[bytes], int]:
    """The server, which answers, and its port. Another program may take a port before the server
    does; so a server that ends at once is tried on further ports."""
    for _ in range(TRIES):
        port = free_port()
        words = [word.replace("PORT", str(port)) for word in command]
        server = subprocess.Popen([sys.executable, *words])
        try:
            if answers(server, port, target):
                return server, port
        except BaseException:
            server.terminate()
            server.wait()
            raise
    sys.exit(f"the server has ended with status {server.returncode}")


def free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def answers(server: subprocess.Popen[bytes], port: int, target: str) -> bool:
    """Waits for the first answer. False if the server has ended."""
    end_s = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            get(http.client.HTTPConnection(HOST, port, timeout=5), target)
            return True
        except OSError as error:
            if server.poll() is not None:
                return False
            if time.monotonic() > end_s:
                sys.exit(f"the server does not answer: {error}")
            time.sleep(0.05)


def get(connection: http.client.HTTPConnection, target: str) -> None:
    connection.request("GET", target)
    response = connection.getresponse()
    response.read()
    if response.status != http.HTTPStatus.OK:
        sys.exit(f"{target}: {response.status} {response.reason}")


def visit(port: int, light: str, heavy: str, seconds: float) -> list[float]:
    """Returns the latencies of the light page, in seconds."""
    end_s = time.monotonic() + seconds

    def visitor(target: str, pause_s: float) -> list[float]:
        connection = http.client.HTTPConnection(HOST, port)
        found_s = []
        while (began_s := time.monotonic()) < end_s:
            get(connection, target)
            found_s.append(time.monotonic() - began_s)
            time.sleep(pause_s)
        return found_s

    with ThreadPoolExecutor(4) as pool:
        slow = [pool.submit(visitor, heavy, 0.0) for _ in range(2)]
        fast = [pool.submit(visitor, light, PAUSE_S) for _ in range(2)]
        for visit in slow:
            visit.result()
        return [each for visit in fast for each in visit.result()]


if __name__ == "__main__":
    main()
