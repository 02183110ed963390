"""The main thread is interrupted in lock.acquire, in sleep and while computing, beside a hog."""

import os
import signal
import threading
import time

stop = threading.Event()
interruptions = []


def compute():
    while not stop.is_set():
        sum(range(500))


def interrupt_soon(noticed):
    time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)
    # CPython notices a signal that arrives just before the system call that waits when that call
    # returns. A second signal makes it return.
    while not noticed.wait(2):
        os.kill(os.getpid(), signal.SIGINT)


def on_interrupt(number, frame):
    interruptions[-1].set()
    raise KeyboardInterrupt


def busy():
    while True:
        sum(range(500))


signal.signal(signal.SIGINT, on_interrupt)
hog = threading.Thread(target=compute)
hog.start()
lock = threading.Lock()
lock.acquire()
caught = []
for wait in (lock.acquire, lambda: time.sleep(60), busy):
    try:
        interruptions.append(threading.Event())
        threading.Thread(target=interrupt_soon, args=interruptions[-1:]).start()
        wait()
    except KeyboardInterrupt:
        caught.append("interrupted")
stop.set()
hog.join()
print(caught)
