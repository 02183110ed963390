"""One call of C code that does not end while the program is watched."""

import re
import threading
import time


def worker():
    time.sleep(0.5)
    re.search("(a+)+b", "a" * 40)


threading.Thread(target=worker, name="worker", daemon=True).start()
while True:
    time.sleep(0.001)
