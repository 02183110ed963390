"""Starts commands from several threads while another computes; some by fork with a preexec_fn."""

import subprocess
import sys
import threading
import warnings

warnings.simplefilter("ignore", DeprecationWarning)
stop = threading.Event()
outputs = []


def compute():
    while not stop.is_set():
        sum(range(500))


def start(preexec_fn):
    for _ in range(3):
        command = [sys.executable, "-c", "print(sum(range(1000)))"]
        outputs.append(subprocess.check_output(command, preexec_fn=preexec_fn, timeout=60))


hog = threading.Thread(target=compute)
hog.start()
threads = [threading.Thread(target=start, args=(each,)) for each in (None, lambda: None)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
stop.set()
hog.join()
print(outputs)
