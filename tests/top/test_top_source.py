"""`headway top` asks a recorder by its URL: what it sends, and what it says of bad answers."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import answers
import pytest
from launch import TIMEOUT_S, run_main

from headway.errors import CommandError
from headway.top.poller import Poller, Trouble, ViewRequest
from headway.top.source import NoAnswer, Recorder


class Site(ThreadingHTTPServer):
    """Answers everything with the same; keeps what it was asked."""

    daemon_threads = True

    def __init__(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.answer = (status, body, headers)
        self.asked: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Page(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers.items())))
        status, body, headers = self.server.answer
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def site(status: int = 200, body: bytes = b"{}", **headers: str) -> Iterator[Site]:
    server = Site(status, body, {name.replace("_", "-"): each for name, each in headers.items()})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_it_asks_below_the_url_with_the_token() -> None:
    with site(body=b'{"time": 1}') as server:
        source = Recorder(f"{server.url}/behind/", "secret")
        assert source.ask("now", [("window", "10"), ("group", "a b&c")]) == {"time": 1}
    path, headers = server.asked[0]
    assert path == "/behind/api/v1/now?window=10&group=a+b%26c"
    assert headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (200, b"<html>", "no recorder of Headway"),
        (200, b"[1]", "no recorder of Headway"),
        (200, b"[" * 100_000, "no recorder of Headway"),
        (200, b"\xff\xfe", "no recorder of Headway"),
        (404, b"gone", "answers 404"),
        (403, b"", "it requires a token (--token-file FILE)"),
        (400, b'{"error": "from: found \\u001b[2J"}', "answers 400: from: found \\x1b[2J"),
        (302, b"", "answers 302"),
    ],
)
def test_an_answer_that_is_none_is_told_in_one_line(status: int, body: bytes, says: str) -> None:
    with (
        site(status, body, Location="http://127.0.0.1:1/") as server,
        pytest.raises(NoAnswer) as told,
    ):
        Recorder(server.url, "secret").ask("now")
    assert says in str(told.value)
    assert str(told.value).isprintable()
    assert len(server.asked) == 1


def test_an_unforeseen_error_does_not_end_the_questions() -> None:
    class Failing:
        def ask(self, path: str, query: object = ()) -> Any:
            raise LookupError("a defect")

    delivered: queue.Queue[Any] = queue.Queue()
    request = ViewRequest("processes", 60, None)
    poller = Poller(Failing(), request, 0.01, delivered.put)  # type: ignore[arg-type]
    poller.start()
    try:
        found = [delivered.get(timeout=30) for _ in range(2)]
    finally:
        poller.end()
        poller.join()
    assert found == [Trouble("LookupError: a defect")] * 2


def test_nobody_there_is_told_in_one_line() -> None:
    with site() as server:
        pass
    ended = run_main("top", server.url, "--once")
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr == f"headway top: {server.url} does not answer: connection refused\n"


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8888", "ftp://x", "http://", "http://x:99999", "http://u@x", "http://x/?a=b"]
)
def test_another_address_is_refused(url: str) -> None:
    with pytest.raises(CommandError) as told:
        Recorder(url)
    assert told.value.exit_code == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["nowhere", "--once"], "found 'nowhere', where a URL such as"),
        (
            ["--window", "0", "--once"],
            "--window: found '0'; allowed: a number of seconds from 1 to 600",
        ),
        (["--window", "nan", "--once"], "--window: found 'nan'"),
        (["--interval", "0", "--once"], "--interval: found '0'"),
        (["--json"], "--json: allowed with --once only"),
        ([], "stdout is no terminal: use --once"),
        (["--once", "--token-file", "/nonexistent"], "--token-file '/nonexistent'"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(options: list[str], says: str) -> None:
    ended = run_main("top", *options)
    assert ended.returncode == 2
    assert ended.stderr.startswith("headway top: ")
    assert says in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_the_token_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("from-a-file\n")
    body = json.dumps(answers.now()).encode()
    with site(body=body) as server:
        kept = {"HEADWAY_TELEMETRY_TOKEN": "from-the-environment"}
        first = run_main("top", server.url, "--once", **kept)
        second = run_main("top", server.url, "--once", "--token-file", token, **kept)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    tokens = [headers["Authorization"] for _, headers in server.asked]
    assert tokens == ["Bearer from-the-environment", "Bearer from-a-file"]


def test_json_is_the_answer_and_ascii() -> None:
    with site(body=json.dumps(answers.now(answers.EVIL)).encode()) as server:
        ended = run_main("top", server.url, "--once", "--json")
    assert json.loads(ended.stdout) == answers.now(answers.EVIL)
    assert ended.stdout.isascii()
    assert ended.stdout.strip().isprintable()


# The signal comes when the socket is bound, and the command cannot know it yet.
HANGS_UP = """
import signal, sys
from headway.cli import main
from headway.recorder.receive.receiver import Recorder
start = Recorder.start
def start_and_signal(self):
    start(self)
    signal.raise_signal(signal.SIGHUP)
Recorder.start = start_and_signal
sys.exit(main(["top", "--once", sys.argv[1]]))
"""


def test_a_signal_while_the_socket_is_made_leaves_no_socket(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.sock"
    done = subprocess.run(
        [sys.executable, "-c", HANGS_UP, f"unix:{path}"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (129, "", "")
    assert not path.exists()
