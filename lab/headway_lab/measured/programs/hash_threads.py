"""Hashes messages with SHA-256, divided among threads, and reports how long they took.

    hash_threads.py THREADS MESSAGES BYTES SWITCH_INTERVAL_S

All messages are the same buffer, so memory is needed for one. hashlib drops the GIL for each.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time

import window


def hash_messages(message: bytes, count: int) -> None:
    for _ in range(count):
        hashlib.sha256(message).digest()


def shares(messages: int, thread_count: int) -> list[int]:
    """The numbers of messages for the threads, as equal as possible."""
    return [len(range(index, messages, thread_count)) for index in range(thread_count)]


def main() -> None:
    thread_count, messages, size = map(int, sys.argv[1:4])
    sys.setswitchinterval(float(sys.argv[4]))
    # A buffer of zeros would have pages that were never written.
    message = bytes(range(256)) * (size // 256)
    workers = [
        threading.Thread(target=hash_messages, args=(message, count), name=f"hash-{index}")
        for index, count in enumerate(shares(messages, thread_count))
    ]
    window.say()
    window.sleep_until(window.hear_window().begin_ns)
    began_ns = time.monotonic_ns()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = (time.monotonic_ns() - began_ns) / window.NS
    window.answer(seconds=seconds, hashed_bytes=messages * len(message))


if __name__ == "__main__":
    main()
