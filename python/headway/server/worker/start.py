"""The start of a process that the supervisor starts: the process receives its task, takes on the
identity of its group, imports the application, and becomes a worker or a template.

Only the supervisor observes the process, so every failure is reported on the control socket.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
import threading

from headway import _native
from headway.errors import CommandError, reason_of
from headway.server import identity
from headway.server.control import Control, Gone
from headway.server.free_threading import gil_enabled
from headway.server.settings import ProcessGroup
from headway.server.signals import SUPERVISORS_SIGNALS, ignore
from headway.server.stderr import flush_streams
from headway.server.task import Task
from headway.server.worker import restrictions, search_path, template
from headway.server.worker.application import Application, load_application
from headway.server.worker.ending import end, tell_failure
from headway.server.worker.gil_events import tell_of_gil
from headway.server.worker.interpreter_slots import mounts_of
from headway.server.worker.mounts import mount
from headway.server.worker.transport import read_tls
from headway.server.worker.worker import Prepared, Worker


def main() -> None:
    """Runs the process and ends it."""
    # The handler that is registered first runs last: after the application's handlers, and before
    # CPython restores the default effect of signals, which would kill a process that has almost
    # ended.
    atexit.register(ignore, signal.SIGTERM, *SUPERVISORS_SIGNALS)
    atexit.register(flush_streams)
    for number in SUPERVISORS_SIGNALS:
        # A handler, because programs that the application starts would inherit SIG_IGN.
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SUPERVISORS_SIGNALS)
    control = Control(socket.socket(fileno=int(sys.argv[1])))
    control.socket.set_inheritable(False)
    sys.argv[:] = ["headway"]
    try:
        message = control.receive()
    except Gone:
        sys.exit(1)
    assert message is not None, "the supervisor's first message is the task"
    task = Task.from_message(message)
    for fd in task.inherited():
        os.set_inheritable(fd, False)
    try:
        log_fd, tls = open_log(task.group), read_tls(task.group)
        if task.directory is not None:
            change_directory(task.directory)
        identity.take_on(task.group)
        share_arena(task.group)
        tell_of_gil(control)
        if task.watched:
            # Imported here, because in production the module and its imports are not needed.
            from headway.server.worker.imported_files import tell_of_files

            tell_of_files(control)
        path = list(sys.path)
        application = load(task.group)
        prepared = Prepared(task, application, log_fd, tls, path)
        if task.is_template:
            status = template.run(control, prepared)
        else:
            status = Worker(control, prepared).run()
    except CommandError as error:
        status = tell_failure(control, error)
    end(status, task.group)


def share_arena(group: ProcessGroup) -> None:
    """Makes all threads allocate from one arena of glibc's, unless they run at the same time or
    the environment says how many arenas there are to be.

    A thread with an arena of its own allocates while others do, which threads that share a GIL
    hardly do, and what it frees serves no other thread.
    """
    parallel = not gil_enabled() or any(each.own_gil for each in group.application_groups)
    chosen = "MALLOC_ARENA_MAX" in os.environ or "arena_max" in os.environ.get("GLIBC_TUNABLES", "")
    if not (parallel or chosen):
        _native.process_share_arena()


def change_directory(path: str) -> None:
    try:
        os.chdir(path)
    except OSError as error:
        raise CommandError(f"{path}: {reason_of(error)}", exit_code=2) from None


def load(group: ProcessGroup) -> Application | None:
    """Imports the applications that the group serves in the main interpreter. Returns `None` if
    there are none."""
    # Both hold for the import of the applications, and for the threads that it starts.
    if group.switch_interval_s is not None:
        sys.setswitchinterval(group.switch_interval_s)
    if group.stack_size_bytes:
        threading.stack_size(group.stack_size_bytes)
    mounts = mounts_of(group, "")
    main = next((each for each in group.application_groups if not each.name), None)
    search_path.extend(group, main if mounts else None)
    if main is None or not mounts:
        return None
    restrictions.impose(main.restrict_stdin, main.restrict_stdout, main.restrict_signal)
    return mount([(each.path, load_application(each.application)) for each in mounts])


def open_log(group: ProcessGroup) -> int:
    """Returns a new descriptor for the access log; -1 if there is no access log."""
    if group.access_log == "off":
        return -1
    path = group.access_log_path
    if path is None:
        return os.dup(1)
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        reason = reason_of(error)
        raise CommandError(f"--access-log {path}: {reason}", exit_code=2) from None
