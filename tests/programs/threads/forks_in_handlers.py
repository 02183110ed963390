"""A signal handler forks every 20 ms beside three computing threads."""

import os
import signal
import threading

FORKS = 50
forked = 0
are_enough = threading.Event()


def fork(*_: object) -> None:
    """The fork does not release the GIL, so the handler ends before the next signal."""
    global forked
    if os.fork() == 0:
        os._exit(0)
    forked += 1
    if forked >= FORKS:
        signal.setitimer(signal.ITIMER_REAL, 0)
        are_enough.set()


def compute() -> None:
    while not are_enough.is_set():
        sum(range(1_000))


workers = [threading.Thread(target=compute) for _ in range(3)]
signal.signal(signal.SIGALRM, fork)
# The kernel removes the children.
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for worker in workers:
    worker.start()
signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
are_enough.wait()
for worker in workers:
    worker.join()
print("ended")
