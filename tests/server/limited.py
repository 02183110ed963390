"""Runs as a program: a server under the limits of a process group, as a worker process has it.

Usage: python limited.py GROUP_JSON CONTROL_FD. Serves tests/apps/stuck.py until SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from headway import gil
from headway.address import Address
from headway.server.binding import bind
from headway.server.settings import ProcessGroup
from headway.server.worker.application import load_application
from headway.server.worker.native_limits import native_limits
from headway.server.worker.serving import Server


def main() -> None:
    group = ProcessGroup.from_json(sys.argv[1])
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "apps"))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    if sys._is_gil_enabled() if hasattr(sys, "_is_gil_enabled") else True:
        gil.install(group.policy)
    listener = bind(Address("127.0.0.1", 0))
    server = Server(
        load_application("stuck:application"),
        [listener],
        group,
        limits=native_limits(group, int(sys.argv[2])),
    )
    server.start()
    print(listener.address.port, flush=True)
    stop.wait()
    server.stop()
    server.join(10)


if __name__ == "__main__":
    main()
