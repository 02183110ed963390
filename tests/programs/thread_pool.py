"""A pool of eight threads and 400 tasks, half of them computing, half of them waiting."""

import time
from concurrent.futures import ThreadPoolExecutor


def task(number):
    if number % 2:
        time.sleep(0.0005)
    return sum(range(number * 10))


with ThreadPoolExecutor(8, thread_name_prefix="pool") as pool:
    print(sum(pool.map(task, range(400))))
