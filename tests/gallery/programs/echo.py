"""A thread that answers a client over a socket, beside one that computes."""

import socket
import threading
import time

END_S = time.monotonic() + 3
client, server = socket.socketpair()


def compute():
    while time.monotonic() < END_S:
        sum(range(1000))


def echo():
    while data := server.recv(100):
        server.sendall(data)


threads = [threading.Thread(target=work, name=work.__name__) for work in (compute, echo)]
for thread in threads:
    thread.start()
while time.monotonic() < END_S:
    client.sendall(b"x")
    client.recv(100)
client.close()
