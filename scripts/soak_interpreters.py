"""Makes and ends a thousand sub-interpreters under load, in one process of `headway serve`.

    .venvs/3.13/bin/python scripts/soak_interpreters.py [--interpreters 1000] [--shared-gil]

Two interpreters serve at a time, each for a few dozen requests; clients ask all the while. Every
answer must be whole, every interpreter must run its atexit handlers and end, the process must stay
the same one, and its counters must close. What it has grown by is set against plain interpreters of
this CPython, made and ended with the same imports and no Headway around them: up to 3.13 CPython
itself leaks megabytes with each own GIL.

Exit status: 0 if all is well; 1 if not; 2 for bad usage.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NoReturn

from soak_processes import children, sample

APPS = Path(__file__).resolve().parent.parent / "tests" / "apps"
CLIENTS = 3
REQUESTS_OF_EACH = 25
PROGRESS_S = 10.0
STUCK_S = 60.0
# Of plain interpreters, and what a heap does by chance.
MOST_GROWTH = 1.5
CHANCE_KB = 64.0
ENDED = "atexit of the tenant"

PLAIN = """
import sys, threading
sys.path[:0] = [{apps!r}]
try:
    import _interpreters
    create, run = (lambda: _interpreters.create({config!r})), _interpreters.exec
except ImportError:
    import _xxsubinterpreters as _interpreters
    create, run = (lambda: _interpreters.create(isolated={own})), _interpreters.run_string
import _datetime, _decimal, _hashlib, _ssl

def rss_kb():
    return int(open("/proc/self/statm").read().split()[1]) * {page_kb}

def work(count):
    for _ in range(count):
        interpreter = create()
        code = "import sys; sys.path[:] = " + repr(sys.path) + "; import tenant, "
        run(interpreter, code + "headway.server.worker.sub_interpreter")
        _interpreters.destroy(interpreter)

# All in one thread, as the keeper does.
def measure():
    work({warm_up})
    before = rss_kb()
    work({count})
    print((rss_kb() - before) / {count})

thread = threading.Thread(target=measure)
thread.start()
thread.join()
"""


class Failed(Exception):
    """A failure of the server."""


class Subject:
    """The server, the lines that it says, and its one worker process."""

    def __init__(self, own_gil: bool, folder: str) -> None:
        self.log = Path(folder, "stderr")
        how = ["--per-interpreter-gil"] if own_gil else ["--application-group", "tenant"]
        command = ["-m", "headway", "serve", "tenant:app", "--app-dir", str(APPS), *how]
        command += ["--bind", "127.0.0.1:0", "--threads", "4", "--interpreters", "2"]
        command += ["--interpreter-maximum-requests", str(REQUESTS_OF_EACH)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen([sys.executable, *command], stderr=log)
        self.port = int(self.wait_for(r"listening on http://127\.0\.0\.1:(\d+)")[1])
        (self.worker,) = children(self.process.pid)

    def said(self) -> str:
        return self.log.read_text()

    def wait_for(self, pattern: str) -> re.Match[str]:
        end = time.monotonic() + STUCK_S
        while (found := re.search(pattern, self.said())) is None:
            if self.process.poll() is not None or time.monotonic() > end:
                raise Failed(f"the server does not say {pattern!r}, but:\n{self.said()}")
            time.sleep(0.05)
        return found

    def rss_kb(self) -> float:
        found = sample(self.worker)
        if found is None:
            raise Failed(f"the worker process has ended:\n{self.said()[-3000:]}")
        return found.rss_bytes / 1024

    def ended(self) -> int:
        return self.said().count(ENDED)


class Clients:
    """Ask one request after another until stopped; the first failure is kept."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answered = [0] * CLIENTS
        self.failure: str | None = None
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(number,)) for number in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=STUCK_S)
        try:
            while not self._over.is_set():
                connection.request("GET", "/")
                response = connection.getresponse()
                body = response.read()
                if response.status != 200:
                    raise Failed(f"answered {response.status}: {body!r}")
                self.answered[number] += 1
        except (OSError, http.client.HTTPException, Failed) as error:
            self.failure = self.failure or f"{type(error).__name__}: {error}"
        finally:
            connection.close()


def soak(interpreters: int, own_gil: bool, folder: str) -> float:
    """Returns by how many KB the process grew with each interpreter. Raises `Failed`."""
    subject = Subject(own_gil, folder)
    clients = None
    try:
        clients = Clients(subject.port)
        warm_up = max(interpreters // 10, 1)
        watch(subject, clients, warm_up)
        before_kb = subject.rss_kb()
        watch(subject, clients, interpreters)
        grown_kb = (subject.rss_kb() - before_kb) / (interpreters - warm_up)
        clients.stop()
        print(f"{sum(clients.answered):,} requests were answered, none failed.")
        end(subject)
        return grown_kb
    finally:
        if clients is not None:
            clients.stop()
        if subject.process.poll() is None:
            subject.process.kill()
            subject.process.wait()


def watch(subject: Subject, clients: Clients, until: int) -> None:
    """Until so many interpreters have ended."""
    last, last_s, told_s = subject.ended(), time.monotonic(), time.monotonic()
    while (ended := subject.ended()) < until:
        now_s = time.monotonic()
        if clients.failure is not None:
            raise Failed(f"{clients.failure}\n{subject.said()[-3000:]}")
        if ended > last:
            last, last_s = ended, now_s
        if now_s - last_s > STUCK_S:
            raise Failed(f"no interpreter has ended for {STUCK_S:g} s:\n{subject.said()[-3000:]}")
        if now_s - told_s > PROGRESS_S:
            told_s = now_s
            requests = sum(clients.answered)
            rss_mb = subject.rss_kb() / 1024
            print(f"  {ended:,} ended, {requests:,} requests, {rss_mb:.0f} MB", flush=True)
        time.sleep(0.2)


def end(subject: Subject) -> None:
    if children(subject.process.pid) != [subject.worker]:
        raise Failed(f"the worker process was replaced:\n{subject.said()[-3000:]}")
    subject.process.send_signal(signal.SIGTERM)
    status = subject.process.wait(STUCK_S)
    said = subject.said()
    if status != 0:
        raise Failed(f"exit status {status}:\n{said[-3000:]}")
    for wrong in ("Exception ignored", "did not end", "has not left", "Traceback"):
        if wrong in said:
            raise Failed(f"the server said {wrong!r}:\n{said[said.index(wrong) - 1000 :][:3000]}")
    alive = len(re.findall(r"^GIL \d+ ", said, re.M))
    print(f"{subject.ended():,} interpreters have ended; {alive} GILs had open counters.")


def plain_growth_kb(own_gil: bool, count: int) -> float:
    """By how many KB a process of plain CPython grows with each interpreter."""
    program = PLAIN.format(
        apps=str(APPS),
        own=own_gil,
        config="isolated" if own_gil else "legacy",
        page_kb=os.sysconf("SC_PAGE_SIZE") // 1024,
        warm_up=max(count // 10, 1),
        count=count,
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.split()
    if done.returncode != 0 or not lines:
        raise Failed(f"plain interpreters fail (status {done.returncode}): {done.stderr[-2000:]}")
    return float(lines[-1])


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"soak_interpreters: {message}\n")


def positive(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 2:
        raise argparse.ArgumentTypeError(f"found {text!r}; allowed: a whole number from 2 on")
    return number


def main() -> int:
    doc = str(__doc__)
    parser = Parser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interpreters", type=positive, default=1000)
    parser.add_argument("--shared-gil", action="store_true", help="the process's GIL for all")
    options = parser.parse_args()
    own_gil = not options.shared_gil
    if own_gil and sys.version_info < (3, 12):
        parser.error("own GILs need CPython 3.12; allowed here: --shared-gil")
    try:
        with tempfile.TemporaryDirectory(prefix="headway-soak-") as folder:
            grown_kb = soak(options.interpreters, own_gil, folder)
        plain_kb = plain_growth_kb(own_gil, min(options.interpreters, 200))
    except Failed as failure:
        print(f"soak_interpreters: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"It grew by {grown_kb:.0f} KB with each; a plain interpreter leaves {plain_kb:.0f} KB.")
    if grown_kb > MOST_GROWTH * plain_kb + CHANCE_KB:
        print("soak_interpreters: that is more than CPython's own", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
