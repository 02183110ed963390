"""Forks while three threads fight for the GIL; the children use threads of their own."""

import os
import sys
import threading
import warnings

# From 3.12 on, forking a process with threads warns; doing it all the same is the point here.
warnings.simplefilter("ignore", DeprecationWarning)
stop = threading.Event()


def compute():
    while not stop.is_set():
        sum(range(500))


def child_main(number):
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(sum(range(20_000)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return number if len(results) == 4 else 99


threads = [threading.Thread(target=compute, name=f"hog-{n}") for n in range(3)]
for thread in threads:
    thread.start()
statuses = []
for number in range(6):
    pid = os.fork()
    if pid == 0:
        status = child_main(number)
        if number % 2:
            os._exit(status)
        sys.exit(status)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
stop.set()
for thread in threads:
    thread.join()
print("children exited with", statuses)
