"""Programs whose functions hold the GIL in known ways, for bench/py_spy.py.

    held.py (convoy | send | crowd | shop)

convoy: `compute` computes, and `answer` needs the GIL for a moment every 0.5 ms. send: `parse`
computes for 4 ms and `reply` sends, at a switch interval of 20 ms, beside such a thread. crowd:
`alone`, `beside_one` and `beside_eight` compute by turns for 50 ms, while none, one and eight
threads need the GIL every 0.5 ms. shop: examples/shop, which `headway.serve` serves with four
threads under CPython's rule.

It prints the port of the server, or 0, and answers each line, `SECONDS FILE`: it profiles itself
for so long and writes the stacks of holders to the file. It ends when its input does.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from headway import gil, serve

SHOP = Path(__file__).resolve().parents[2] / "examples" / "shop"
PERIOD_S = 0.0005
TURN_S = 0.05
PAUSE_S = 0.02
PARSING_S = 0.004


def thread(target: Callable[[], object], name: str) -> None:
    threading.Thread(target=target, name=name, daemon=True).start()


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def answer() -> None:
    """The work of an I/O-bound thread between two sleeps."""
    sum(range(100))


def answer_while(is_asked: threading.Event) -> None:
    while True:
        is_asked.wait()
        answer()
        time.sleep(PERIOD_S)


def always() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def compute() -> None:
    while True:
        sum(range(500))


def convoy() -> None:
    thread(lambda: answer_while(always()), "answers")
    thread(compute, "computes")


SENDER, RECEIVER = socket.socketpair()


def parse() -> None:
    end = time.perf_counter() + PARSING_S
    while time.perf_counter() < end:
        pass


def reply() -> None:
    SENDER.send(b"x")


def parse_and_reply() -> None:
    while True:
        parse()
        reply()
        RECEIVER.recv(8)


def send() -> None:
    sys.setswitchinterval(0.02)
    SENDER.setblocking(False)
    RECEIVER.setblocking(False)
    thread(lambda: answer_while(always()), "answers")
    thread(parse_and_reply, "parses")


def alone() -> None:
    spin(TURN_S)


def beside_one() -> None:
    spin(TURN_S)


def beside_eight() -> None:
    spin(TURN_S)


def crowd() -> None:
    one, seven = threading.Event(), threading.Event()
    for number in range(8):
        asked = seven if number else one
        thread(lambda asked=asked: answer_while(asked), f"answers-{number}")  # type: ignore[misc]

    def take_turns() -> None:
        turns = ((alone, ()), (beside_one, (one,)), (beside_eight, (one, seven)))
        while True:
            for function, asked in turns:
                for event in asked:
                    event.set()
                function()
                for event in asked:
                    event.clear()
                # They all stop before the next turn.
                time.sleep(PAUSE_S)

    thread(take_turns, "computes")


def shop() -> int:
    os.chdir(SHOP)
    sys.path.insert(0, str(SHOP))
    from shop import app

    urls: list[str] = []
    listening = threading.Event()

    def announce(url: str) -> None:
        urls.append(url)
        listening.set()

    thread(
        lambda: serve(app, bind="127.0.0.1:0", threads=4, policy="interval", announce=announce),
        "serves",
    )
    listening.wait()
    return int(urls[0].rpartition(":")[2])


def main() -> None:
    gil.install()
    program = {"convoy": convoy, "send": send, "crowd": crowd, "shop": shop}[sys.argv[1]]
    port = program() or 0
    print(json.dumps({"port": port}), flush=True)
    for line in iter(sys.stdin.readline, ""):
        seconds, file = line.rstrip("\n").split(" ", 1)
        with gil.profile() as profiling:
            time.sleep(float(seconds))
        profiling.write(file)
        print(json.dumps({"waited_s": profiling.take().waited_ns / 1e9}), flush=True)


if __name__ == "__main__":
    main()
