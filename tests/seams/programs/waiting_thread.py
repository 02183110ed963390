"""A thread of its own waits for SIGTERM, which every other thread has to block."""

import signal
import sys
import threading


def wait():
    print("is up", flush=True)
    print("got", signal.sigwait([signal.SIGTERM]).name, flush=True)


signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
thread = threading.Thread(target=wait)
thread.start()
thread.join()
sys.exit(7)
