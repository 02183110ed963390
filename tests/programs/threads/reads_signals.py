"""Blocks SIGTERM and reads it: `signalfd`, or `sigwait` in a second thread. With `install` it
installs the meter by itself, after it has blocked the signal. Prints `up`, and `ended` at the
signal."""

import ctypes
import os
import signal
import sys
import threading

BY, *MORE = sys.argv[1:]
SIGNALS = {signal.SIGTERM}


def read_signalfd() -> None:
    set_of_signals = (ctypes.c_uint64 * 16)(1 << (signal.SIGTERM - 1))
    descriptor = ctypes.CDLL(None).signalfd(-1, set_of_signals, 0)
    print("up", flush=True)
    assert len(os.read(descriptor, 128)) == 128


def wait_in_a_thread() -> None:
    def wait() -> None:
        print("up", flush=True)
        signal.sigwait(SIGNALS)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()


signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
if MORE == ["install"]:
    from headway import gil

    gil.install("priority")
{"signalfd": read_signalfd, "sigwait": wait_in_a_thread}[BY]()
print("ended")
