"""Two threads in C code that drops the GIL."""

import hashlib
import threading
import time

END_S = time.monotonic() + 2
DATA = bytes(5_000_000)


def hash_it():
    while time.monotonic() < END_S:
        hashlib.sha256(DATA).digest()


for number in range(2):
    threading.Thread(target=hash_it, name=f"hash-{number}").start()
