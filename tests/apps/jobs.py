"""Requests beside a thread that computes: each answers with its own thread's kernel slice."""

import ctypes
import platform
import struct
import threading
import time

SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}.get(platform.machine(), -1)
COMPUTE_S = 0.05


def slice_ns():
    """0 where the kernel has no slices to tell."""
    attributes = ctypes.create_string_buffer(48)
    ctypes.CDLL(None).syscall(SCHED_GETATTR, 0, attributes, 48, 0)
    return struct.unpack_from("IIQiIQQQ", attributes)[5]


def compute(seconds):
    """For so long on a processor, however many others want it."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(100))


def application(environ, start_response):
    if environ["PATH_INFO"] == "/compute":
        compute(COMPUTE_S)
    body = str(slice_ns()).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


threading.Thread(target=compute, args=(3600,), daemon=True).start()
