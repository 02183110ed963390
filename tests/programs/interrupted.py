"""The main thread is interrupted in lock.acquire, in sleep and while computing, beside a hog."""

import os
import signal
import threading
import time

stop = threading.Event()


def compute():
    while not stop.is_set():
        sum(range(500))


def interrupt_soon():
    time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)


def busy():
    while True:
        sum(range(500))


hog = threading.Thread(target=compute)
hog.start()
lock = threading.Lock()
lock.acquire()
caught = []
for wait in (lock.acquire, lambda: time.sleep(60), busy):
    try:
        threading.Thread(target=interrupt_soon).start()
        wait()
    except KeyboardInterrupt:
        caught.append("interrupted")
stop.set()
hog.join()
print(caught)
