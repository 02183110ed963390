"""The uses of Headway, for surroundings that may refuse them.

    python uses.py USE

Runs there, as the user that is there, and prints one object of JSON: the exit status and the output
of each command, and what else is to be seen. A command that does not end in time is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = f"{HERE}/program.py"
CHILDREN = f"{HERE}/children.py"
HEADWAY = (sys.executable, "-m", "headway")
FOLDER = os.environ.get("USES_FOLDER", "/tmp")
LIMIT_S = 50
SOCKET = f"unix:{FOLDER}/recorder.sock"


class Started:
    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.text = ""

    def read_until(self, words: str) -> str:
        """The line with these words, or "" at the end of the output."""
        for line in self.process.stdout:
            self.text += line
            if words in line:
                return line
        return ""

    def end(self) -> dict[str, object]:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.text += self.process.communicate(timeout=LIMIT_S)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.text += self.process.communicate()[0]
        return {"status": self.process.returncode, "text": self.text}


def done(*command: str) -> dict[str, object]:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    return {"status": ended.returncode, "stdout": ended.stdout, "stderr": ended.stderr}


def run(*options: str) -> dict[str, object]:
    return done(*HEADWAY, "run", *options)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
        return answer.read().decode()


def interrupted() -> dict[str, object]:
    """A program that SIGTERM ends."""
    code = "import time; print('ready', flush=True); time.sleep(60)"
    started = Started(*HEADWAY, "run", "-c", code)
    started.read_until("ready")
    return started.end()


def recorder() -> dict[str, object]:
    """A recorder, and a program and a server that report to it."""
    store = ["--store", f"{FOLDER}/store.sqlite"]
    recorder = Started(*HEADWAY, "telemetry", "--listen", SOCKET, *store, "--http", "127.0.0.1:0")
    site = recorder.read_until("http://").partition("http://")[2].split()
    seen = {}
    if site:
        site = "http://" + site[0].rstrip("/")
        seen["program"] = run("--telemetry", SOCKET, "--telemetry-interval", "0.5", PROGRAM)
        server, url = serve("--telemetry", SOCKET)
        seen["answer"] = url and get(url)
        time.sleep(2.5)
        seen["metrics"] = get(f"{site}/metrics")
        seen["top"] = done(*HEADWAY, "top", "--once", site)
        seen["server"] = server.end()
    seen["recorder"] = recorder.end()
    return seen


def serve(*options: str) -> tuple[Started, str]:
    os.chdir(HERE)
    served = ("application:application", "--bind", "127.0.0.1:0")
    server = Started(*HEADWAY, "serve", *served, *options)
    return server, server.read_until("listening on").partition("listening on ")[2].strip()


def served() -> dict[str, object]:
    server, url = serve()
    answer = url and get(url)
    return {"answer": answer, "server": server.end()}


def attached() -> dict[str, object]:
    program = Started(sys.executable, "-c", SLEEPER)
    program.read_until("ready")
    command = done(*HEADWAY, "attach", str(program.process.pid), "--for", "1")
    time.sleep(0.2)
    alive = program.process.poll() is None
    return {"attach": command, "alive": alive, "program": program.end()}


def dashboard() -> dict[str, object]:
    """A server with a recorder of its own."""
    server, url = serve("--dashboard", "--dashboard-http", "127.0.0.1:0")
    answer = url and get(url)
    return {"answer": answer, "server": server.end()}


def by_default() -> dict[str, object]:
    """A recorder without options but its port."""
    recorder = Started(*HEADWAY, "telemetry", "--http", "127.0.0.1:0")
    recorder.read_until("http://")
    return recorder.end()


def live() -> dict[str, object]:
    recorder = Started(*HEADWAY, "telemetry", "--listen", SOCKET, "--no-store", "--no-http")
    recorder.read_until("receiving")
    return recorder.end()


SLEEPER = """
import threading, time
def light():
    while True: time.sleep(0.001)
threading.Thread(target=light, name="light", daemon=True).start()
print("ready", flush=True)
while True: sum(range(1000))
"""

FORBIDS_THREADS = f"{HERE}/forbids_threads.py"
INSTALL = """
import threading, time
from headway import gil
gil.install()
threading.Thread(target=time.sleep, args=(0.1,), name="sleeper").start()
time.sleep(0.2)
report = gil.snapshot().to_dict()
print(report["gils"][0]["takes"] > 0, sorted(thread["name"] for thread in report["threads"]))
gil.uninstall()
"""

USES = {
    "meter": lambda: run(PROGRAM),
    "install": lambda: done(sys.executable, "-c", INSTALL),
    "policy": lambda: run("--policy", "priority", PROGRAM),
    "variable": lambda: done("/usr/bin/env", "HEADWAY=priority,report", sys.executable, PROGRAM),
    "forbids_threads": lambda: done(
        "/usr/bin/env", "HEADWAY=priority,report", sys.executable, FORBIDS_THREADS
    ),
    "children": lambda: run("--follow", "--policy", "priority", CHILDREN),
    "json": lambda: run("--json", f"{FOLDER}/report.json", PROGRAM),
    "profile": lambda: run("--profile", f"{FOLDER}/report.svg", PROGRAM),
    "trace": lambda: run("--trace", f"{FOLDER}/trace.svg", PROGRAM),
    "interrupted": interrupted,
    "recorder": recorder,
    "served": served,
    "dashboard": dashboard,
    "by_default": by_default,
    "live": lambda: live(),
    "audit": lambda: done(*HEADWAY, "audit", f"{HERE}/application.py"),
    "tune": lambda: done(*HEADWAY, "tune", "run", "--for", "5", "-c", "1"),
    "attached": attached,
}

if __name__ == "__main__":
    print(json.dumps(USES[sys.argv[1]]()))
