"""A thread forks. The child ends when that thread returns, as its only one. Prints the status."""

import os
import threading


def fork() -> None:
    pid = os.fork()
    if pid:
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


threading.Thread(target=fork).start()
