"""A consumer that computes for 4 ms an item, beside a producer that reads from a socket."""

import queue
import socket
import threading
import time

END_S = time.monotonic() + 3
items = queue.SimpleQueue()
source, sink = socket.socketpair()


def consumer():
    while items.get() is not None:
        began_s = time.thread_time()
        while time.thread_time() - began_s < 0.004:
            pass


def producer():
    while data := sink.recv(100):
        items.put(data)
    items.put(None)


threads = [threading.Thread(target=work, name=work.__name__) for work in (consumer, producer)]
for thread in threads:
    thread.start()
while time.monotonic() < END_S:
    source.sendall(b"x")
    time.sleep(0.003)
source.close()
