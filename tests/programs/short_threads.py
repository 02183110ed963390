"""A thousand threads, fifty at a time, that hardly do anything."""

import threading

count = 0
lock = threading.Lock()


def add():
    global count
    with lock:
        count += 1


for _ in range(20):
    threads = [threading.Thread(target=add) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(count)
