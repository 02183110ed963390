"""Forks again and again beside computing threads. Prints the seconds that each fork took, as JSON.

forking.py FORKS THREADS: each child ends at once.
"""

import json
import os
import sys
import threading
import time

forks, threads = map(int, sys.argv[1:])
is_over = False


def compute() -> None:
    while not is_over:
        sum(range(1_000))


workers = [threading.Thread(target=compute) for _ in range(threads)]
for worker in workers:
    worker.start()
took_s = []
for _ in range(forks):
    began = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    took_s.append(time.perf_counter() - began)
    os.waitpid(pid, 0)
    time.sleep(0.002)
is_over = True
for worker in workers:
    worker.join()
print(json.dumps(took_s))
