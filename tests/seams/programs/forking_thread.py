"""A thread forks; the child has this thread alone, and ends with it."""

import os
import threading


def fork():
    if pid := os.fork():
        print("child:", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


for _ in range(3):
    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
