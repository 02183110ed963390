"""The threads of one pool serve pages that compute for 8 ms, and pages that need nothing."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

END_S = time.monotonic() + 4
pool = ThreadPoolExecutor(4, thread_name_prefix="pool")


def heavy():
    began_s = time.thread_time()
    while time.thread_time() - began_s < 0.008:
        pass


def visitor():
    while time.monotonic() < END_S:
        pool.submit(heavy).result()
        time.sleep(0.006)


for number in range(2):
    threading.Thread(target=visitor, name=f"visitor-{number}").start()
while time.monotonic() < END_S:
    pool.submit(time.sleep, 0).result()
    time.sleep(0.008)
