"""One shared object serves in an own-GIL sub-interpreter, and keeps a disabled GIL disabled."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

pytestmark = pytest.mark.free_threading

IN_SUB_INTERPRETER = """
import os, socket, sys, threading
sys.path[:] = {path!r}

def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"from the sub-interpreter: ", environ["wsgi.input"].read()]

from headway.address import Address
from headway.server.binding import bind
from headway.server.worker.serving import Server
from headway.server.settings import ProcessGroup
listener = bind(Address("127.0.0.1", 0))
server = Server(app, [listener], ProcessGroup(threads=2), daemon=False)
server.start()
os.write({ready_fd}, str(listener.address.port).encode().ljust(5))
os.read({stop_fd}, 1)
server.stop()
assert server.join(10) == 0
row, = server.requests()
assert (row.path, row.requests) == ("/sub", 20), row
del server
"""

MAIN = """
import http.client, os, sys, threading
sys.path[:] = {path!r}
import headway._native                       # the main interpreter has it too
try:
    import _interpreters
    create = lambda: _interpreters.create("isolated")
except ImportError:
    import _xxsubinterpreters as _interpreters
    create = lambda: _interpreters.create(isolated=True)
run = getattr(_interpreters, "exec", None) or _interpreters.run_string
program = {program!r}
ready_read, ready_write = os.pipe()
stop_read, stop_write = os.pipe()
failures = []

def work():
    # All in one thread: on 3.12 threading's end waits for ever for the thread that imported it.
    interpreter = create()
    failed = run(interpreter, program.format(
        path=sys.path, ready_fd=ready_write, stop_fd=stop_read))
    if failed is not None:
        failures.append(failed)
        os.write(ready_write, b"0".ljust(5))
    _interpreters.destroy(interpreter)

thread = threading.Thread(target=work)
thread.start()
port = int(os.read(ready_read, 5))
assert port, failures
connection = http.client.HTTPConnection("127.0.0.1", port)
for number in range(20):
    connection.request("POST", "/sub", str(number))
    body = connection.getresponse().read()
    assert body == f"from the sub-interpreter: {{number}}".encode(), body
os.write(stop_write, b"x")
thread.join()
assert not failures, failures
print("served", getattr(sys, "_is_gil_enabled", lambda: True)())
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="own-GIL sub-interpreters came with 3.12")
def test_an_own_gil_sub_interpreter_serves() -> None:
    program = MAIN.format(path=[path for path in sys.path if path], program=IN_SUB_INTERPRETER)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("served")


@pytest.mark.skipif(
    not hasattr(sys, "_is_gil_enabled") or sys._is_gil_enabled(),
    reason="this interpreter has a GIL",
)
def test_importing_the_server_leaves_the_gil_off() -> None:
    program = (
        "import sys, headway.server.worker.serving, headway._native\n"
        "assert not sys._is_gil_enabled()\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "PYTHON_GIL"}
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, env=environment)


def test_two_servers_in_one_process() -> None:
    """Nothing is shared between servers: each answers for itself, and one may end first."""
    import http.client

    from headway.address import Address
    from headway.server.binding import bind
    from headway.server.settings import ProcessGroup
    from headway.server.worker.serving import Server

    def application(name: bytes) -> object:
        def app(environ: dict[str, object], start_response: object) -> list[bytes]:
            start_response("200 OK", [])  # type: ignore[operator]
            return [name, threading.current_thread().name.encode()]

        return app

    servers = []
    for name in (b"one ", b"two "):
        listener = bind(Address("127.0.0.1", 0))
        server = Server(application(name), [listener], ProcessGroup(threads=2))
        server.start()
        servers.append(server)
    for server, name in zip(servers, (b"one ", b"two "), strict=True):
        connection = http.client.HTTPConnection("127.0.0.1", server.address.port)
        connection.request("GET", "/")
        assert connection.getresponse().read().startswith(name + b"headway-worker-")
        connection.close()
        server.stop()
        assert server.join(10) == 0
