"""The convoy effect in one small program, to be watched with `headway run examples/convoy.py`.

One thread answers an echo client, which takes microseconds of Python; one thread computes. Each
time the echo thread comes back from the network it waits for the GIL, for a switch interval.
The client is another process, so that its own GIL does not matter. Ends after three seconds.
"""

import socket
import subprocess
import sys
import threading
import time

SECONDS = 3.0

CLIENT = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
requests = 0
try:
    while True:
        connection.sendall(b"ping")
        if not connection.recv(4):
            break
        requests += 1
except ConnectionError:
    pass
print(requests)
"""


def compute(deadline: float) -> None:
    while time.monotonic() < deadline:
        sum(range(100))


def echo(connection: socket.socket, deadline: float) -> None:
    with connection:
        while time.monotonic() < deadline and (data := connection.recv(1024)):
            connection.sendall(data)


def main() -> None:
    deadline = time.monotonic() + SECONDS
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        client = subprocess.Popen([sys.executable, "-c", CLIENT, port], stdout=subprocess.PIPE)
        connection, _ = server.accept()
        threads = [
            threading.Thread(target=compute, args=(deadline,), name="compute"),
            threading.Thread(target=echo, args=(connection, deadline), name="echo"),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        requests, _ = client.communicate()
    print(f"{int(requests) / SECONDS:,.0f} requests a second")


if __name__ == "__main__":
    main()
