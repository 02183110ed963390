"""One thread computes, another wants the GIL a thousand times a second."""

import threading
import time

end = time.monotonic() + 0.2


def compute():
    while time.monotonic() < end:
        sum(range(500))


def wake_up():
    while time.monotonic() < end:
        time.sleep(0.001)


threads = [
    threading.Thread(target=compute, name="hog"),
    threading.Thread(target=wake_up, name="waiter"),
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done")
