"""Uses a Jupyter kernel as a notebook does: a cell starts two threads that compute, and the next
cells are short.

    notebook.py CONNECTION_FILE

A cell's latency is the time from the request to the kernel's reply and its last output.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from latencies import SECONDS, print_latencies

PAUSE_S = 0.02
TIMEOUT_S = 60

COMPUTE = """
import threading

count = 0
ended = False

def compute():
    global count
    while not ended:
        sum(number * number for number in range(300_000))
        count += 1

for _ in range(2):
    threading.Thread(target=compute, daemon=True).start()
"""


def run(client: BlockingKernelClient, code: str) -> str:
    """Runs a cell, and returns the text that it prints. Raises RuntimeError if it fails."""
    printed = []

    def show(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = client.execute_interactive(code, output_hook=show, timeout=TIMEOUT_S)
    if reply["content"]["status"] != "ok":
        raise RuntimeError(f"{code!r}: {reply['content']}")
    return "".join(printed)


def connect(connection_file: Path) -> BlockingKernelClient:
    """Waits for the kernel's connection file and for its first answer."""
    end_s = time.monotonic() + TIMEOUT_S
    while True:
        client = BlockingKernelClient(connection_file=str(connection_file))
        try:
            client.load_connection_file()
            client.start_channels()
            client.wait_for_ready(timeout=TIMEOUT_S)
            return client
        except (FileNotFoundError, ValueError, RuntimeError):  # the kernel starts
            client.stop_channels()
            if time.monotonic() > end_s:
                raise
            time.sleep(PAUSE_S)


def main() -> None:
    client = connect(Path(sys.argv[1]))
    try:
        run(client, COMPUTE)
        latencies_s = []
        before = int(run(client, "print(count)"))
        begin_s = time.monotonic()
        while (now_s := time.monotonic()) < begin_s + SECONDS:
            run(client, "print(1 + 1)")
            latencies_s.append(time.monotonic() - now_s)
            time.sleep(PAUSE_S)
        count = int(run(client, "print(count)")) - before
        print_latencies(latencies_s, count, time.monotonic() - begin_s)
        run(client, "ended = True")
    finally:
        client.stop_channels()


if __name__ == "__main__":
    main()
