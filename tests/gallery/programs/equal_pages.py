"""Eight threads that compute for 3 ms between short waits: a queue of equals."""

import threading
import time

END_S = time.monotonic() + 4


def page():
    while time.monotonic() < END_S:
        began_s = time.thread_time()
        while time.thread_time() - began_s < 0.003:
            pass
        time.sleep(0.001)


for number in range(8):
    threading.Thread(target=page, name=f"page-{number}").start()
