"""A parent as supervisord or tini: it waits for any child, and ends its own at SIGTERM."""

import os
import queue
import signal
import sys
import threading
from pathlib import Path

# Without site, so that it has nothing but what it inherits.
SHOWS_WHAT_IT_INHERITS = """
import os
with open("/proc/self/status") as file:
    masks = [int(line.split()[1], 16) for line in file if line.startswith(("SigBlk", "SigIgn"))]
for name, mask in zip(("blocked", "ignored"), masks):
    found = [n for n in range(1, 65) if mask >> (n - 1) & 1]
    print(f"{name}: {found}", flush=True)
# One of them is that of the listing.
print("descriptors:", len(os.listdir("/proc/self/fd")) - 1, flush=True)
raise SystemExit(4)
"""

names = {}
ended = []
# A handler of a signal may put something into them while the main thread is in one.
changed = queue.SimpleQueue()
over = queue.SimpleQueue()


def wait_for_children(*_):
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if not pid:
            break
        ended.append((pid, os.waitstatus_to_exitcode(status)))
    changed.put(None)


def start(name, code):
    command = [sys.executable, "-S", "-c", code]
    names[os.posix_spawn(sys.executable, command, os.environ)] = name


def wait_for(count):
    while len(ended) < count:
        changed.get()


def native_threads():
    """The names that the kernel has for this process's threads, without Headway's."""
    found = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return sorted(name for name in found if not name.startswith("headway-"))


signal.signal(signal.SIGCHLD, wait_for_children)
signal.signal(signal.SIGTERM, lambda *_: over.put(None))
start("spawned", SHOWS_WHAT_IT_INHERITS)
if not (pid := os.fork()):
    os._exit(3)
names[pid] = "forked"
wait_for(2)
for number in range(2):
    start(f"waits {number}", "import signal; signal.pause()")
print("threads:", [thread.name for thread in threading.enumerate()], native_threads(), flush=True)
print("is up", flush=True)
over.get()
for pid in names.keys() - {pid for pid, _ in ended}:
    os.kill(pid, signal.SIGTERM)
wait_for(len(names))
print("ended:", sorted((names.get(pid, "a stranger"), status) for pid, status in ended), flush=True)
