"""A thread begins and ends profiles; the main thread forks children that fork, too."""

import os
import threading

from headway import gil
from headway.errors import Error

gil.install()
is_over = threading.Event()


def profile() -> None:
    while not is_over.is_set():
        try:
            with gil.profile():
                pass
        except (Error, RuntimeError):
            pass  # a profile is on


thread = threading.Thread(target=profile)
thread.start()
for _ in range(100):
    pid = os.fork()
    if pid == 0:
        if (grandchild := os.fork()) == 0:
            os._exit(0)
        os.waitpid(grandchild, 0)
        os._exit(0)
    os.waitpid(pid, 0)
is_over.set()
thread.join()
print("ended")
