"""The convoy effect: an echo server's thread beside a thread that computes (PBTS #13)."""

import socket
import subprocess
import sys
import threading

ROUND_TRIPS = 40
CLIENT = f"""
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    for _ in range({ROUND_TRIPS}):
        connection.sendall(b"ping")
        assert connection.recv(4) == b"ping"
"""


def serve(listener):
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(100):
            connection.sendall(data)


def compute(stop):
    while not stop.is_set():
        sum(range(500))


stop = threading.Event()
with socket.create_server(("127.0.0.1", 0)) as listener:
    server = threading.Thread(target=serve, args=(listener,), name="echo")
    hog = threading.Thread(target=compute, args=(stop,), name="hog")
    server.start()
    hog.start()
    port = str(listener.getsockname()[1])
    client = subprocess.run([sys.executable, "-S", "-c", CLIENT, port], timeout=60)
    server.join()
    stop.set()
    hog.join()
print("client exited with", client.returncode)
