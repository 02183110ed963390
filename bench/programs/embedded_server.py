"""Runs a server that has no command line for it.

    embedded_server.py (bjoern | fastwsgi) MODULE:CALLABLE PORT PROCESSES

The processes share one listening socket (bjoern) or its port (FastWSGI), as their documentation
has it. The current process is one of bjoern's, and the parent of FastWSGI's.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
from typing import Any

HOST = "127.0.0.1"
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def load(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def run_bjoern(app: Any, port: int, processes: int) -> None:
    bjoern = importlib.import_module("bjoern")
    bjoern.listen(app, HOST, port)
    for _ in range(processes - 1):
        if os.fork() == 0:
            end_with_parent()
            break
    bjoern.run()


def run_fastwsgi(app: Any, port: int, processes: int) -> None:
    fastwsgi = importlib.import_module("fastwsgi")
    os.register_at_fork(after_in_child=end_with_parent)
    fastwsgi.run(app, HOST, port, workers=processes)


def main() -> None:
    server, name, port, processes = sys.argv[1:]
    run = {"bjoern": run_bjoern, "fastwsgi": run_fastwsgi}[server]
    run(load(name), int(port), int(processes))


if __name__ == "__main__":
    main()
