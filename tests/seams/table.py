"""The seams: features that two parts make together, each with every way in which it ends.

Every verb has a row, and so has every option of `headway serve` that starts another process or
talks to one.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from launch import HEADWAY, execute
from parts import TIMEOUT_S, End, Row, Scene
from process_tree import children, described
from served import MODE

APPS = Path(__file__).resolve().parent.parent / "apps"
EXAMPLES = APPS.parent.parent / "examples"

TERM, KILL, INT = -signal.SIGTERM, -signal.SIGKILL, -signal.SIGINT
# Of a verb that handles the signal, as a shell has it.
TERMINATED, INTERRUPTED = 128 + signal.SIGTERM, 128 + signal.SIGINT
HUNG_UP = 128 + signal.SIGHUP

LISTENS = r"listening on (?:https?|unix)"
RECORDS = "headway telemetry: showing at http"
REPORT = r"headway  Python "
# The alternate screen is left, and the cursor shown.
LEFT_TERMINAL = r"(?s)\x1b\[\?1049l(?!.*\x1b\[\?1049h).*\x1b\[\?25h"

# Waits for the end of its stdin. A signal that comes just before a read() would wait for it, too.
WAITS = (
    "import select; print('is up', flush=True)\nwhile not select.select([0], [], [], 0.05)[0]: pass"
)
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WAITS!r}])"
# Takes whatever is pushed.
SINK = """
import http.server, signal, sys

class Sink(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        print("took", self.path, flush=True)

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
server = http.server.HTTPServer(("127.0.0.1", 0), Sink)
print("sink at", server.server_port, flush=True)
server.serve_forever()
"""
# Tells in a file that it runs, since what it prints is not shown.
BEGINS = "import time; open('begun', 'w').close(); time.sleep(600)"
# A program with a server of its own.
SERVES = """
import headway
from pages import hello
headway.serve(hello, bind="127.0.0.1:0")
"""


def serve(scene: Scene, *options: str, app: str = "pages:hello", **variables: str) -> None:
    words = ["serve", app, "--app-dir", str(APPS), "--bind", "127.0.0.1:0", *MODE]
    scene.headway(*words, *options, ready=LISTENS, **variables)


def recorder(scene: Scene, *options: str, on_terminal: bool = False) -> str:
    """A recorder; the address of its socket."""
    words = ["--listen", "unix:telemetry.sock", "--http", "127.0.0.1:0", "--store", "store.sqlite"]
    scene.headway("telemetry", *words, *options, ready=RECORDS, on_terminal=on_terminal)
    return f"unix:{scene.folder / 'telemetry.sock'}"


def url_of_recorder(scene: Scene) -> str:
    return scene.parts[0].wait_for(r"http://[\d.]+:\d+")[0]


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# Victims


def kill_main(scene: Scene) -> None:
    scene.kill(scene.main.process.pid)


def kill_child(
    word: str, said: str = "", which: Callable[[list[int]], int] = min
) -> Callable[[Scene], None]:
    """Kills the first or the last child of the command whose command line has `word`, and waits
    until the command has written `said`."""

    def act(scene: Scene) -> None:
        parent = scene.main.process.pid

        def found() -> list[int]:
            return [pid for pid in children(parent) if word in described(pid)]

        wait_until(found)
        scene.kill(which(found()))
        if said:
            scene.main.wait_for(said)

    return act


def kill_partner(scene: Scene) -> None:
    part = scene.parts[0]
    scene.kill(part.process.pid)
    part.wait()


def close_stdin(scene: Scene) -> None:
    scene.main.close_stdin()


def nothing(_: Scene) -> None:
    """It ends by itself."""


# Ways to end


def end_itself(status: int = 0, act: Callable[[Scene], None] = nothing, said: str = "") -> End:
    return End("by itself", status, act, said=said)


def stops(status: int = 0, said: str = "") -> tuple[End, End]:
    """Both signals, for what handles them alike."""
    return (
        End("SIGTERM", status, signal="SIGTERM", said=said),
        End("Ctrl-C", status, signal="Ctrl-C", said=said),
    )


def verb_stops(said: str = "") -> tuple[End, End]:
    return (
        End("SIGTERM", TERMINATED, signal="SIGTERM", said=said),
        End("Ctrl-C", INTERRUPTED, signal="Ctrl-C", said=said),
    )


def program_stops(said: str = "") -> tuple[End, End]:
    """A Python program that handles neither: as without Headway, and yet with its report."""
    return (
        End("SIGTERM", TERM, signal="SIGTERM", said=said),
        End("Ctrl-C", INT, signal="Ctrl-C", said=said, has_traceback=True),
    )


def terminal_closed(status: int = HUNG_UP) -> End:
    return End("terminal closed", status, signal="terminal closed")


def killed(name: str, leaves_folder: str = "") -> End:
    end = End(f"SIGKILL of {name}", KILL, kill_main, is_killed=True)
    return replace(end, leaves_folder=leaves_folder)


def survives(
    name: str, act: Callable[[Scene], None], signal: str = "SIGTERM", status: int = 0
) -> End:
    """Goes on without the partner, and is ended then."""
    leaves = OF_KILLED_RECORDER if name == "the recorder" else frozenset()
    return End(f"SIGKILL of {name}", status, act, signal=signal, leaves=leaves)


SUPERVISOR = killed("the supervisor")
WORKER = survives(
    "a worker", kill_child("process 1", r"ended by SIGKILL.*; (?:starting another|another)")
)

# Rows

STORE = frozenset({"store.sqlite", "store.sqlite.lock"})
# Of a recorder that was killed: the next one removes its socket, and SQLite reads the log.
OF_KILLED_RECORDER = frozenset({"telemetry.sock", "store.sqlite-wal", "store.sqlite-shm"})
OF_KILLED_SERVER = frozenset({"status"})


def run_convoy(scene: Scene) -> None:
    scene.python("-m", "headway", "run", str(EXAMPLES / "convoy.py"), ready="")


def run_waiting(*options: str) -> Callable[[Scene], object]:
    return lambda scene: scene.headway("run", *options, "-c", WAITS, ready="is up")


def run_following(scene: Scene) -> None:
    scene.at_end(remove_counters_of_killed)
    scene.headway("run", "--follow", "-c", PARENT, ready="is up")


def remove_counters_of_killed() -> None:
    """The next run does that."""
    assert execute([*HEADWAY, "run", "--follow", "-c", ""]).returncode == 0


def run_reporting(scene: Scene) -> None:
    address = recorder(scene)
    scene.headway("run", "--telemetry", address, "-c", WAITS, ready="is up")


def environment_reporting(scene: Scene) -> None:
    scene.python("-c", WAITS, ready="is up", HEADWAY="report")


def serve_reporting(scene: Scene) -> None:
    serve(scene, "--telemetry", recorder(scene))


def serve_dashboard(scene: Scene) -> None:
    options = ["--dashboard", "--dashboard-http", "127.0.0.1:0"]
    serve(scene, *options, "--dashboard-store", "store.sqlite")
    scene.main.wait_for(RECORDS)


def serve_with_status(scene: Scene) -> None:
    serve(scene, "--status-socket", "status")
    shown = execute([*HEADWAY, "status", "unix:status"], cwd=scene.folder)
    assert shown.returncode == 0, shown.stderr


def serve_from_home(scene: Scene) -> None:
    scene.write(
        "serve.toml",
        f'[process-group.main]\napp = "pages:hello"\nbind = "127.0.0.1:0"\n'
        f'python-home = "{sys.prefix}"\npython-path = ["{APPS}"]\n',
    )
    scene.headway("serve", "--config", "serve.toml", *MODE, ready=LISTENS)


def reload_first(scene: Scene) -> None:
    scene.main.process.send_signal(signal.SIGHUP)
    scene.main.wait_for("SIGHUP: starting generation 2")


def serve_reloading(scene: Scene) -> None:
    scene.write("site_app.py", (APPS / "pages.py").read_text())
    serve(scene, "--reload", "--app-dir", ".", app="site_app:hello", PYTHONDONTWRITEBYTECODE="1")
    scene.given.add("__pycache__")


def edit_first(scene: Scene) -> None:
    scene.write("site_app.py", (APPS / "pages.py").read_text() + "# edited\n")
    scene.main.wait_for("generation 2 serves")


def serve_with_files(scene: Scene) -> None:
    files = ["--error-log", "error.log", "--pid-file", "serve.pid"]
    words = ["--app-dir", str(APPS), "--bind", "127.0.0.1:0", *MODE, *files]
    scene.headway("serve", "pages:hello", *words, ready="")
    log = scene.folder / "error.log"
    wait_until(lambda: log.exists() and "listening on" in log.read_text())


def serve_for_service_manager(scene: Scene) -> None:
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    scene.at_end(manager.close)
    scene.given.add("notify")
    manager.bind(str(scene.folder / "notify"))
    manager.settimeout(TIMEOUT_S)
    scene.at_end(lambda: os.unlink(scene.folder / "notify"))
    serve(scene, NOTIFY_SOCKET=str(scene.folder / "notify"))
    assert manager.recv(4096) == b"READY=1"


def headway_serve(scene: Scene) -> None:
    scene.python("-c", SERVES, ready="listening on http", PYTHONPATH=str(APPS))


def telemetry_pushing(scene: Scene) -> None:
    sink = scene.python("-c", SINK, ready=r"sink at \d+")
    port = sink.wait_for(r"sink at (\d+)")[1]
    recorder(scene, "--otlp", f"http://127.0.0.1:{port}", "--otlp-interval", "1")
    sink.wait_for("took /v1/metrics")


def top_on_terminal(scene: Scene) -> None:
    recorder(scene)
    words = ["top", url_of_recorder(scene)]
    scene.headway(*words, ready="A verdict needs", on_terminal=True, TERM="xterm-256color")


def quit_top(scene: Scene) -> None:
    # Keys may be lost while the screen changes; a user would press again.
    def is_over() -> bool:
        scene.main.press(b"q")
        return scene.main.process.poll() is not None

    wait_until(is_over)


def tune_server(scene: Scene) -> None:
    serve(scene, "--status-socket", "status")
    words = ["tune", "unix:status", "--policy", "deadline", "--path", "/"]
    scene.headway(*words, ready="round|warm-up")


def tune_application(scene: Scene) -> None:
    words = ["tune", "serve", "pages:hello", "--load", "/", "--", "--app-dir", str(APPS)]
    scene.headway(*words, ready="round 1")


def tune_program(scene: Scene) -> None:
    scene.at_end(remove_counters_of_killed)
    scene.headway("tune", "run", "-c", BEGINS, ready="warm-up", on_terminal=True)
    scene.wait_for_file("begun")


def audit(scene: Scene) -> None:
    scene.write("site_app.py", BEGINS)
    scene.given.add("__pycache__")
    scene.headway("audit", "site_app:app", ready="")
    scene.wait_for_file("begun")


def status(scene: Scene) -> None:
    serve(scene, "--status-socket", "status")
    scene.headway("status", "unix:status", ready="")


def status_of_the_dead(scene: Scene) -> None:
    serve(scene, "--status-socket", "status")
    kill_partner(scene)
    scene.headway("status", "unix:status", ready="")


def top_at_socket(scene: Scene, *options: str) -> None:
    words = ["top", *options, "unix:telemetry.sock"]
    ready = "" if options else "A verdict needs"
    scene.headway(*words, ready=ready, on_terminal=True, TERM="xterm-256color")
    wait_until((scene.folder / "telemetry.sock").exists)


def top_once(scene: Scene) -> None:
    recorder(scene)
    scene.headway("top", "--once", url_of_recorder(scene), ready="")


def report(scene: Scene) -> None:
    scene.write("report.json", "")
    words = ["run", "--json", "report.json", "-c", "pass"]
    assert execute([*HEADWAY, *words], cwd=scene.folder).returncode == 0
    scene.headway("report", "report.json", ready="")


TUNES = "runs servers or programs for some seconds"
ROWS = (
    Row(
        "run",
        "run",
        run_waiting(),
        (
            end_itself(0, close_stdin, REPORT),
            *program_stops(REPORT),
            killed("the program"),
        ),
    ),
    Row(
        "run examples/convoy.py",
        "run",
        run_convoy,
        (end_itself(said=REPORT),),
        slow="runs for three seconds",
    ),
    Row(
        "run --trace --profile --json",
        "run",
        run_waiting("--trace", "t.json", "--profile", "p.txt", "--json", "r.json"),
        (
            end_itself(0, close_stdin),
            *program_stops(),
            killed("the program"),
        ),
        files=frozenset({"t.json", "p.txt", "r.json"}),
        needs_gil=True,
    ),
    Row(
        "run --follow",
        "run",
        run_following,
        (
            end_itself(0, close_stdin, REPORT),
            *program_stops(REPORT),
            End("SIGKILL of a child", 0, kill_child("is up"), said=REPORT, has_traceback=True),
            killed("the program"),
        ),
    ),
    Row(
        "run --telemetry",
        "run",
        run_reporting,
        (
            end_itself(0, close_stdin, REPORT),
            *program_stops(REPORT),
            survives("the recorder", kill_partner, status=TERM),
            killed("the program"),
        ),
        files=STORE,
    ),
    Row(
        "HEADWAY=report python",
        "run",
        environment_reporting,
        (
            end_itself(0, close_stdin, REPORT),
            *program_stops(REPORT),
            killed("the program"),
        ),
    ),
    Row("serve", "serve", serve, (*stops(), WORKER, SUPERVISOR)),
    Row(
        "serve --config with python-home",
        "serve",
        serve_from_home,
        (
            *stops(),
            WORKER,
            SUPERVISOR,
            End("SIGTERM during SIGHUP", 0, reload_first, "SIGTERM"),
        ),
        options=("python-home",),
    ),
    Row(
        "serve --preload",
        "serve",
        lambda scene: serve(scene, "--preload"),
        (
            *stops(),
            survives("the template", kill_child("group main", "ended by SIGKILL; the next fork")),
            survives("a worker", kill_child("group main", "ended by SIGKILL", max)),
            SUPERVISOR,
        ),
        options=("preload",),
    ),
    Row(
        "serve --reload",
        "serve",
        serve_reloading,
        (
            *stops(),
            WORKER,
            SUPERVISOR,
            End("SIGTERM after an edit", 0, edit_first, "SIGTERM"),
        ),
        options=("reload",),
        package="watchfiles",
    ),
    Row(
        "serve --dashboard",
        "serve",
        serve_dashboard,
        (
            *stops(),
            WORKER,
            SUPERVISOR,
            survives("the recorder", kill_child("dashboard", "it starts again in 1 s")),
        ),
        options=("dashboard", "dashboard-http", "dashboard-store"),
        files=STORE,
    ),
    Row(
        "serve --telemetry",
        "serve",
        serve_reporting,
        (
            *stops(),
            WORKER,
            SUPERVISOR,
            survives("the recorder", kill_partner),
        ),
        options=("telemetry",),
        files=STORE,
    ),
    Row(
        "serve --status-socket",
        "serve",
        serve_with_status,
        (
            *stops(),
            WORKER,
            SUPERVISOR,
        ),
        options=("status-socket",),
    ),
    Row(
        "serve --error-log --pid-file",
        "serve",
        serve_with_files,
        (*stops(), SUPERVISOR),
        options=("error-log", "pid-file"),
        files=frozenset({"error.log"}),
    ),
    Row("serve under systemd", "serve", serve_for_service_manager, (*stops(), SUPERVISOR)),
    Row("headway.serve(app)", "serve", headway_serve, (*stops(), killed("the program"))),
    Row("telemetry", "telemetry", recorder, (*stops(), killed("the recorder")), files=STORE),
    Row(
        "telemetry on a terminal",
        "telemetry",
        lambda scene: recorder(scene, on_terminal=True),
        (terminal_closed(0),),
        files=STORE,
    ),
    Row(
        "telemetry --otlp",
        "telemetry",
        telemetry_pushing,
        (
            *stops(),
            survives("the receiver", kill_partner),
            killed("the recorder"),
        ),
        files=STORE,
        package="opentelemetry",
        slow="pushes every second",
    ),
    Row(
        "top",
        "top",
        top_on_terminal,
        (
            end_itself(0, quit_top, LEFT_TERMINAL),
            End("SIGTERM", TERMINATED, signal="SIGTERM", said=LEFT_TERMINAL),
            End("Ctrl-C", 0, signal="Ctrl-C", said=LEFT_TERMINAL),
            terminal_closed(),
            survives("the recorder", kill_partner, "Ctrl-C"),
        ),
        files=STORE,
        package="textual",
        slow="draws screens beside a recorder",
    ),
    Row(
        "top unix:PATH",
        "top",
        top_at_socket,
        (End("SIGTERM", TERMINATED, signal="SIGTERM", said=LEFT_TERMINAL), terminal_closed()),
        package="textual",
    ),
    Row(
        "top --once unix:PATH",
        "top",
        lambda scene: top_at_socket(scene, "--once", "--window", "300"),
        (*verb_stops(), terminal_closed()),
    ),
    Row("top --once", "top", top_once, (end_itself(),), files=STORE),
    Row("status", "status", status, (end_itself(),)),
    Row(
        "status of a killed server",
        "status",
        status_of_the_dead,
        (end_itself(1),),
        files=OF_KILLED_SERVER,
    ),
    Row(
        "tune SERVER",
        "tune",
        tune_server,
        (
            *verb_stops("Undecided"),
            End("SIGKILL of the server", 1, kill_partner, leaves=OF_KILLED_SERVER),
            killed("the experiment"),
        ),
        slow=TUNES,
        needs_gil=True,
    ),
    Row(
        "tune serve",
        "tune",
        tune_application,
        (
            *verb_stops("Undecided"),
            # It kills the processes that a killed server leaves.
            End("SIGKILL of the server", 1, kill_child("serve"), kills=True),
            killed("the experiment", "headway-tune-*"),
        ),
        slow=TUNES,
        needs_gil=True,
    ),
    Row(
        "tune run",
        "tune",
        tune_program,
        (
            *verb_stops("Undecided"),
            terminal_closed(),
            End("SIGKILL of the program", 1, kill_child("time.sleep")),
            killed("the experiment"),
        ),
        needs_gil=True,
    ),
    Row(
        "audit",
        "audit",
        audit,
        (
            # It ends its child so: what an import has begun waits for nobody.
            *(replace(each, kills=True) for each in verb_stops()),
            End("SIGKILL of the child", 1, kill_child(""), said="it crashes with SIGKILL"),
            replace(killed("the audit"), kills=True),
        ),
    ),
    Row("report", "report", report, (end_itself(said=REPORT),)),
)
