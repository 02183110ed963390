"""Measures the processor time of the experiments' Python code without system calls.

    python_costs.py CORE TRIALS

The loops are those of the echo server, of its client, of who receives pings, and of the countdown,
on files in memory in the place of sockets. Each trial is thousands of rounds.
"""

from __future__ import annotations

import io
import os
import sys
import time
from array import array
from collections.abc import Callable

import window
from countdown_threads import countdown

ROUNDS = 5_000
PING = b"%d %d" % (time.monotonic_ns(), os.getpid())
NS = int(window.NS)


def answer_echoes() -> None:
    receive, send = io.BytesIO(b"x" * ROUNDS).read, bytearray().extend
    while True:
        data = receive(1)
        if not data:
            break
        send(data)


def ask_echoes() -> None:
    latencies_ns = array("q")
    clock_ns, record = time.monotonic_ns, latencies_ns.append
    receive, send = io.BytesIO(b"x" * ROUNDS).read, bytearray().extend
    begin_ns = received_ns = clock_ns()
    end_ns = begin_ns + LIFETIME_S * NS
    while received_ns < end_ns:
        sent_ns = received_ns
        send(b"x")
        if not receive(1):
            break
        received_ns = clock_ns()
        if received_ns >= begin_ns:
            record(received_ns - sent_ns)


def note_pings() -> None:
    pings: list[tuple[int, int]] = []
    receive = io.BytesIO(PING * ROUNDS).read
    for _ in range(ROUNDS):
        ping = receive(len(PING))
        received_ns = time.monotonic_ns()
        sent_ns, _sender = map(int, ping.split())
        pings.append((sent_ns, received_ns - sent_ns))


def count_down() -> None:
    countdown(ROUNDS)


LIFETIME_S = 3_600
LOOPS: dict[str, Callable[[], None]] = {
    "answer_echo_ns": answer_echoes,
    "ask_echo_ns": ask_echoes,
    "note_ping_ns": note_pings,
    "decrement_ns": count_down,
}


def round_ns(loop: Callable[[], None]) -> float:
    began_ns = time.thread_time_ns()
    loop()
    return (time.thread_time_ns() - began_ns) / ROUNDS


def main() -> None:
    core, trials = map(int, sys.argv[1:])
    os.sched_setaffinity(0, {core})
    window.answer(**{name: [round_ns(loop) for _ in range(trials)] for name, loop in LOOPS.items()})


if __name__ == "__main__":
    main()
