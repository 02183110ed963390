"""Programs that care for their threads, signals, forks and children, each with the ways in which it
ends, and the ways in which Headway is in it."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import sys
from collections.abc import Callable, Set
from dataclasses import dataclass
from pathlib import Path

from launch import HEADWAY
from parts import TIMEOUT_S, Part, Scene
from process_tree import children, state
from recipe_tool import BIN
from table import wait_until

PROFILE = "profile.txt"
PROGRAMS = Path(__file__).resolve().parent / "programs"


@dataclass(frozen=True)
class Way:
    """How Headway is in a program. `value`: that of the variable HEADWAY, where RECORDER stands for
    the socket of a recorder. `options`: those of `headway run`, if it is the command."""

    name: str
    value: str = ""
    options: tuple[str, ...] = ()


PLAIN = Way("plain")
WAYS = (
    Way("priority", "priority"),
    Way("telemetry", "priority,follow,telemetry=unix:RECORDER"),
    Way("profile", options=("--follow", "--profile", PROFILE)),
)


def nothing(_: Scene) -> None:
    """The program needs no more."""


@dataclass(frozen=True)
class End:
    """A way to end: `act` uses the program, which is up, and `end` ends it."""

    name: str
    end: Callable[[Scene], object]
    act: Callable[[Scene], None] = nothing


@dataclass(frozen=True)
class Program:
    name: str
    command: tuple[str, ...]
    ends: tuple[End, ...]
    # A regular expression that its output matches when it is up.
    ready: str = r"is up\n"
    # Prepares what it needs; returns variables of its environment.
    prepare: Callable[[Scene], dict[str, str]] = lambda _: {}
    # From .venvs/recipes.
    packages: tuple[str, ...] = ()
    slow: str = ""
    # It ends children by SIGKILL without Headway, too, and not always as many.
    kills: bool = False

    def start(self, scene: Scene, way: Way, recorder: str) -> Part:
        python = str(BIN / "python") if self.packages else sys.executable
        command = [python, *self.command]
        if way.options:
            command = [python, *HEADWAY[1:], "run", *way.options, *self.command]
        variables = {
            "HOME": str(scene.folder),
            "PYTHONPATH": str(PROGRAMS),
            # CPython ignores most of these warnings by default.
            "PYTHONWARNINGS": "default::DeprecationWarning",
            **self.prepare(scene),
        }
        if way.value:
            variables["HEADWAY"] = way.value.replace("RECORDER", recorder)
        return scene.start(command, self.ready, **variables)


def send(number: signal.Signals) -> Callable[[Scene], None]:
    return lambda scene: scene.main.process.send_signal(number)


TERM = End("SIGTERM", send(signal.SIGTERM))


# systemd


def bind_manager(scene: Scene) -> dict[str, str]:
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    scene.at_end(manager.close)
    manager.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    manager.settimeout(TIMEOUT_S)
    path = scene.folder / "notify"
    manager.bind(str(path))
    scene.given.add("notify")
    scene.manager = manager
    return {"NOTIFY_SOCKET": str(path)}


def receive_start(scene: Scene) -> None:
    pid = scene.main.process.pid
    assert notification(scene) == (f"READY=1\nMAINPID={pid}", pid)


def stop_service(scene: Scene) -> None:
    pid = scene.main.process.pid
    send(signal.SIGTERM)(scene)
    assert notification(scene) == ("STOPPING=1", pid)
    scene.main.wait()
    scene.manager.setblocking(False)
    try:
        raise AssertionError(notification(scene))
    except BlockingIOError:
        pass


def notification(scene: Scene) -> tuple[str, int]:
    """The text of the next datagram, and the process that has sent it."""
    data, ((_, _, credentials),), _, _ = scene.manager.recvmsg(4096, 64)
    return data.decode(), struct.unpack("iii", credentials)[0]


# gunicorn


def gunicorn(name: str, *options: str) -> Program:
    command = ("-m", "gunicorn", "gunicorn_site:app", "--config", "python:gunicorn_site")
    return Program(
        name,
        (*command, "--bind", "unix:site.sock", "--workers", "2", "--pid", "master.pid", *options),
        (
            End("SIGHUP, SIGTTIN, SIGTTOU, SIGTERM", send(signal.SIGTERM), manage_workers),
            End("SIGKILL of a worker, SIGINT", send(signal.SIGINT), replace_workers),
            End("SIGUSR2, SIGQUIT", end_new_master, upgrade),
        ),
        ready=r"(?s)(ready: \d.*){2}",
        packages=("gunicorn",),
        slow="starts gunicorn",
    )


def workers(pid: int) -> set[int]:
    return {each for each in children(pid) if state(each) != "Z"}


def wait_for_workers(scene: Scene, count: int, without: Set[int] = frozenset()) -> set[int]:
    """Waits until the master has so many workers that handle signals, and none of `without`."""
    pid = scene.main.process.pid
    found: set[int] = set()

    def are_ready() -> bool:
        found.clear()
        found.update(workers(pid))
        ready = all(f"ready: {each}" in scene.main.stderr for each in found)
        return ready and len(found) == count and found.isdisjoint(without)

    wait_until(are_ready)
    return found


def visit(scene: Scene) -> int:
    """The worker that answers."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(scene.folder / "site.sock"))
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        response = b""
        while data := connection.recv(4096):
            response += data
    assert b" 200 OK\r\n" in response, response
    return int(response.rpartition(b"\r\n\r\n")[2])


def manage_workers(scene: Scene) -> None:
    before = wait_for_workers(scene, 2)
    assert visit(scene) in before
    for number, count in ((signal.SIGHUP, 2), (signal.SIGTTIN, 3), (signal.SIGTTOU, 2)):
        send(number)(scene)
        scene.main.wait_for(f"Handling signal: {number.name[3:].lower()}")
        ready = wait_for_workers(scene, count, before)
        assert visit(scene) in ready


def replace_workers(scene: Scene) -> None:
    before = wait_for_workers(scene, 2)
    victim = min(before)
    scene.kill(victim)
    before |= wait_for_workers(scene, 2, {victim})
    # Each ends after its fourth request.
    wait_until(lambda: visit(scene) not in before)
    wait_until(lambda: visit(scene) and before.isdisjoint(workers(scene.main.process.pid)))
    wait_for_workers(scene, 2, before)


def upgrade(scene: Scene) -> None:
    wait_for_workers(scene, 2)
    send(signal.SIGUSR2)(scene)
    scene.main.wait_for(r"(?s)(ready: \d.*){4}")
    new = int((scene.folder / "master.pid.2").read_text())
    assert new in children(scene.main.process.pid)
    send(signal.SIGQUIT)(scene)
    scene.main.wait()
    file = scene.folder / "master.pid"
    wait_until(lambda: file.exists() and file.read_text() == f"{new}\n")
    assert visit(scene) in workers(new)


def end_new_master(scene: Scene) -> None:
    os.kill(int((scene.folder / "master.pid").read_text()), signal.SIGTERM)


# Celery


def process_of_task(scene: Scene, number: int) -> int:
    """The process that has begun the task which waits, for the first or the second time."""
    file = scene.folder / "begun"
    wait_until(lambda: file.exists() and file.read_text().count("\n") == number)
    return int(file.read_text().split()[-1])


def replace_pool_process(scene: Scene) -> None:
    pid = scene.main.process.pid
    victim = process_of_task(scene, 1)
    scene.kill(victim)
    scene.main.wait_for("exited with 'signal 9")
    assert process_of_task(scene, 2) in workers(pid) - {victim}


def end_warmly(scene: Scene) -> None:
    """The worker waits for its task."""
    send(signal.SIGTERM)(scene)
    scene.main.wait_for("Warm shutdown")
    (scene.folder / "go_on").touch()
    scene.main.wait_for(r"long\[.*succeeded")


PROGRAM_TABLE = (
    Program("supervisor", ("-u", str(PROGRAMS / "supervising.py")), (TERM,)),
    Program("signalfd", (str(PROGRAMS / "signal_descriptor.py"),), (TERM,)),
    Program("sigwait in a thread", (str(PROGRAMS / "waiting_thread.py"),), (TERM,)),
    Program(
        "sd_notify",
        (str(PROGRAMS / "notifying.py"),),
        (End("SIGTERM", stop_service, receive_start),),
        prepare=bind_manager,
    ),
    Program("asyncio", (str(PROGRAMS / "asyncio_signals.py"),), (TERM,)),
    Program(
        "fork in a thread",
        (str(PROGRAMS / "forking_thread.py"),),
        (End("by itself", nothing),),
        ready="",
    ),
    *(
        Program(
            f"multiprocessing, {method}",
            (str(PROGRAMS / "processes.py"), method),
            (TERM,),
            slow="starts a dozen interpreters",
        )
        for method in ("fork", "spawn", "forkserver")
    ),
    gunicorn("gunicorn", "--max-requests", "4", "--no-control-socket"),
    gunicorn(
        "gunicorn --threads --preload",
        *("--threads", "2", "--preload", "--max-requests", "4", "--no-control-socket"),
    ),
    Program(
        "celery --max-tasks-per-child",
        (
            *("-m", "celery", "--app", "celery_site", "worker", "--pool", "prefork"),
            *("--concurrency", "2", "--max-tasks-per-child", "2", "--loglevel", "INFO"),
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        ),
        (End("SIGKILL of a child, SIGTERM during a task", end_warmly, replace_pool_process),),
        ready=r"(?s)(light\[[^\n]*succeeded.*){4}",
        packages=("celery",),
        slow="starts Celery",
        kills=True,
    ),
)

# A worker of gunicorn that gets SIGTERM twice may have restored the signal's default.
OCCASIONAL = re.compile(r"Worker \(pid:\d+\) was sent SIG(TERM|QUIT)!")
# These differ from run to run: times, uuids, addresses, processes, and numbers of workers and jobs.
VARYING = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[,.]\d+)?|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|0x[0-9a-f]+|\d+\.\d+(?:e-\d+)?s|(?<=Worker-)\d+|(?<=Job: )\d+|\d{3,}"
)
