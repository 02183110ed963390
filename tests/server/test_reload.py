"""--reload: a change of the application's files brings a new generation."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path

import pytest
from served import Served, read_response
from supervised import Supervised

pytest.importorskip("watchfiles")

SOURCE = (
    "import {module}\n"
    "def app(environ, start_response):\n"
    "    start_response('200 OK', [])\n"
    "    return [{module}.WORD]\n"
)


def test_a_change_is_served_and_a_mistake_is_not(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "words.py").write_text("WORD = b'one'\n")
    (sources / "site_app.py").write_text(SOURCE.format(module="words"))
    group = {
        "mounts": [{"path": "", "application": "site_app:app"}],
        "python_path": [str(sources)],
    }
    # Sources that change within a second of each other must not be taken from a cache.
    no_cache = {"PYTHONDONTWRITEBYTECODE": "1"}
    with Supervised(tmp_path, group, reload=True, environment=no_cache) as server:
        assert server.get("/").body == b"one"
        (sources / "words.py").write_text("WORD = b'two'\n")
        server.wait_for("words.py has changed: starting generation 2")
        server.wait_until(lambda: server.get("/").body == b"two")
        (sources / "words.py").write_text("WORD = (\n")
        server.wait_for("SyntaxError.*\n.*importing site_app failed .*; generation 2 goes on")
        assert server.get("/").body == b"two"
        replacement = sources / "written_beside"
        replacement.write_text("WORD = b'three'\n")
        replacement.rename(sources / "words.py")
        server.wait_until(lambda: server.get("/").body == b"three")


def test_the_package_is_named_if_it_is_missing(tmp_path: Path) -> None:
    (tmp_path / "watchfiles.py").write_text("raise ImportError('not here')\n")
    server = Served.__new__(Served)
    with pytest.raises(AssertionError, match="is not in stderr"):
        server.__init__("pages:application", "--reload", PYTHONPATH=str(tmp_path))
    assert server.stop(None) == 2
    assert server.stderr == (
        "headway serve: --reload needs the package watchfiles: "
        "python -m pip install 'headway[reload]'\n\0"
    )


def test_a_change_after_sigterm_starts_nobody(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "words.py").write_text("WORD = b'one'\n")
    (sources / "site_app.py").write_text(
        "import time\n"
        "import words\n"
        "def app(environ, start_response):\n"
        "    time.sleep(2)\n"
        "    start_response('200 OK', [])\n"
        "    return [words.WORD]\n"
    )
    group = {
        "mounts": [{"path": "", "application": "site_app:app"}],
        "python_path": [str(sources)],
    }
    with Supervised(tmp_path, group, reload=True) as server:
        with server.connect() as slow:
            slow.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            time.sleep(0.2)
            server.process.send_signal(signal.SIGTERM)
            # The server tells nobody that it is stopping but its processes.
            server.wait_until(lambda: not is_listening(server))
            (sources / "words.py").write_text("WORD = b'two'\n")
            assert read_response(slow).body == b"one"
        assert server.stop(None) == 0
    assert "has changed" not in server.stderr


def is_listening(server: Supervised) -> bool:
    """Whether a handshake is answered: one that is not takes longer than any on loopback."""
    try:
        with socket.create_connection(server.address, 0.2):
            return True
    except OSError:
        return False
