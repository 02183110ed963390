"""An event loop that receives SIGTERM through signalfd(2), so that every thread has to block it."""

import ctypes
import os
import signal
import struct
import sys

signals = struct.pack("Q", 1 << (signal.SIGTERM - 1))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
descriptor = ctypes.CDLL(None).signalfd(-1, signals, 0)
print("is up", flush=True)
(number,) = struct.unpack_from("I", os.read(descriptor, 128))
print("read", signal.Signals(number).name, flush=True)
sys.exit(7)
