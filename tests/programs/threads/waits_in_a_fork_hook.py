"""A daemon thread forks, and a function for forks waits for ever in it, while the program ends."""

import os
import threading
import time

main = threading.get_ident()
is_waiting = threading.Event()


def wait() -> None:
    if threading.get_ident() != main:
        is_waiting.set()
        time.sleep(600)


def fork() -> None:
    if os.fork() == 0:
        os._exit(0)


os.register_at_fork(after_in_parent=wait)
fork()
os.wait()
threading.Thread(target=fork, daemon=True).start()
is_waiting.wait()
print("ended")
