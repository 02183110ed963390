"""A command of Headway in the background, from when it says where it listens to its end."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

Process = subprocess.Popen[bytes]

HEADWAY = Path(sys.executable).with_name("headway")
HERE = Path(__file__).resolve().parent
START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 20


@contextmanager
def running(messages: Path, arguments: Sequence[str]) -> Iterator[tuple[str, Process]]:
    """`headway ARGUMENTS`, run in the shop's folder, what it says in `messages`; its URL, and the
    process, which is ended by its pid on the way out. Raises SystemExit if it does not start."""
    with messages.open("w") as said:
        process = subprocess.Popen([str(HEADWAY), *arguments], cwd=HERE, stdout=said, stderr=said)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (found := re.search(r"http://[\d.]+:\d+", messages.read_text())):
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit(f"headway {arguments[0]} did not start:\n{messages.read_text()}")
            time.sleep(0.05)
        yield found[0], process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
