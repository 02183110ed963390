"""A template process: it imports the application once, and forks workers that share its pages.

A worker is forked twice, so that it becomes a child of the supervisor, which is a subreaper and
waits for the worker as for any other child. The meter starts in the worker: the template keeps no
counters.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import threading
import time
from dataclasses import replace

from headway.errors import CommandError
from headway.server import identity
from headway.server.control import Control, Gone
from headway.server.worker.ending import tell_failure
from headway.server.worker.gil_events import tell_of_gil
from headway.server.worker.worker import Prepared, Worker


def run(control: Control, prepared: Prepared) -> int:
    """Forks a worker at each `fork` command, until the supervisor closes the control socket.
    Returns the exit status of the calling process, in the template and in each worker."""
    # The objects that survive until now are the application's: the garbage collector must not write
    # to their pages.
    gc.collect()
    gc.freeze()
    if threading.active_count() > 1:
        names = ", ".join(sorted(each.name for each in threading.enumerate()[1:]))
        raise CommandError(
            f"--preload: the application starts threads when it is imported ({names}), and they "
            "would not run in the workers"
        )
    control.send({"event": "ready"})
    while True:
        try:
            message, fds = control.receive_with_fds(1)
        except Gone:
            return 0
        if message is None or message.get("command") != "fork" or not fds:
            continue
        worker_control = Control(socket.socket(fileno=fds[0]))
        if _fork_orphan():
            worker_control.close()
            continue
        control.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        worker_control.send({"event": "started"})
        tell_of_gil(worker_control)
        if prepared.task.watched:
            from headway.server.worker.imported_files import tell_of_files

            tell_of_files(worker_control)
        task = replace(prepared.task, number=message["number"])
        if message["is_background"]:
            task = replace(task, group=task.group.of_background())
            identity.give_way()
            identity.take_name(task.group)
        return _work(worker_control, prepared._replace(task=task))


def _fork_orphan() -> bool:
    """Forks a process that is not a child of this one. Returns False in the new process and True
    in this one."""
    child = os.fork()
    if child == 0:
        parent = os.getpid()
        if os.fork():
            os._exit(0)
        # Until the new parent is set, the supervisor does not accept the process as its child.
        while os.getppid() == parent:
            time.sleep(0.001)
        return False
    os.waitpid(child, 0)
    return True


def _work(control: Control, prepared: Prepared) -> int:
    try:
        return Worker(control, prepared).run()
    except CommandError as error:
        return tell_failure(control, error)
