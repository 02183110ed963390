"""URL paths, aliases and variables as a real httpd with mod_wsgi has them. `headway serve` gives
the application the same of each request, or refuses the file."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path

import pytest
from httpd import MISSING, TIMEOUT_S, Httpd, free_port, main_part
from launch import environment, run_main
from ports import free_ports
from started_program import StartedProgram

pytestmark = [
    pytest.mark.slow("starts httpd with mod_wsgi"),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]

APPLICATION = """\
import json
KEYS = ("SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "REQUEST_URI", "REMOTE_ADDR",
        "wsgi.url_scheme")
def application(environ, start_response):
    body = json.dumps([environ.get(key) for key in KEYS]).encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
"""
# The variables that the application saw, or the status of another answer.
Answer = list[str] | int


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that httpd's own user reaches, which pytest's are not."""
    made = Path(tempfile.mkdtemp(prefix="headway-httpd-"))
    made.chmod(0o755)
    (made / "site").mkdir()
    (made / "site" / "a.wsgi").write_text(APPLICATION)
    yield made
    shutil.rmtree(made)


def ask(port: int, target: str) -> Answer:
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode("latin-1"))
        response = HTTPResponse(connection)
        response.begin()
        body = response.read()
    found: list[str] = json.loads(body) if response.status == 200 else []
    return found or response.status


def whole(folder: Path, text: str) -> str:
    granted = f"<Directory {folder}>\nRequire all granted\n</Directory>\n"
    return f"{main_part(folder)}WSGIApplicationGroup %{{GLOBAL}}\n{granted}{text}"


@contextmanager
def by_headway(conf: Path) -> Iterator[int]:
    command = [sys.executable, "-m", "headway", "serve", "--config", str(conf)]
    server = StartedProgram(
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment())
    )
    try:
        yield int(server.wait_for(r"listening on http://127\.0\.0\.1:(\d+)")[1])
    finally:
        assert server.end(signal.SIGTERM) == 0, server.stderr


PATHS = (
    *("/", "/a", "//a", "/a//b", "/a///b/", "//", "/a//", "/sub", "/sub/", "//sub/x", "/sub//x"),
    *("/sub/../x", "/a/../sub/x", "/sub/./x", "/./sub", "/.", "/a/..", "/a/.", "/a/...", "/a/..b"),
    *("/..", "/../x", "/../../x", "/sub/..", "/sub/../", "/sub/a/../..", "/sub/../.."),
    *("/a/b/../../../sub/c", "/%2e%2e/x", "/sub/%2e%2E/x", "/a/%2e/b", "/a%2e%2e/x", "/.%2e/x"),
    *("/a%2Fb", "/a%2fb", "/sub%2Fx", "/sub/..%2Fx", "/a/%2e%2e%2fx", "/a%2F..%2F..", "/..%2F"),
    *("/a%00b", "/%00", "/a%zz", "/a%", "/a%4", "/%", "/%%20", "/%2F%zz", "/a%5Cb", "/a%25b"),
    *("/a%2525b", "/a%252Fb", "/a%252e%252e/b", "/a%3Fb", "/a%23b", "/a%20b", "/a+b", "/a%0Ab"),
    *("/a%7Fb", "/a%01b", "/%C3%A9", "/\xc3\xa9", "/a;b/../c", "/a/..;/b", "/~a", "/a:b", "/a|b"),
    *("/a?x=/../y", "/a?%zz%00", "/a?//", "/%73ub/x", "/s%75b", "/SUB/x"),
    *(
        "http://localhost/sub/../x",
        "http://localhost//a",
        "http://localhost/..",
        "http://localhost",
    ),
)


def test_the_application_gets_the_paths_of_httpd(folder: Path) -> None:
    aliases = f"WSGIScriptAlias /sub {folder}/site/a.wsgi\nWSGIScriptAlias / {folder}/site/a.wsgi\n"
    port = free_port()
    conf, part = folder / "httpd.conf", folder / "site.conf"
    conf.write_text(whole(folder, f"Listen 127.0.0.1:{port}\n{aliases}"))
    part.write_text(f"Listen 127.0.0.1:0\nWSGIApplicationGroup %{{GLOBAL}}\n{aliases}")
    with Httpd(folder, conf, port), by_headway(part) as own:
        wrong = {}
        for path in PATHS:
            wanted, found = ask(port, path), ask(own, path)
            if wanted != found:
                wrong[path] = (wanted, found)
        assert not wrong


ALIASES = (
    *("/ {folder}/site/a.wsgi", "/ {folder}/site/a.wsgi/", "/ {folder}/site/a.wsgi//"),
    *("/w {folder}/site/a.wsgi", "/w/ {folder}/site/a.wsgi", "/w {folder}/site/a.wsgi/"),
    *("/w/ {folder}/site/a.wsgi/", "/w/ {folder}/site/", "/w {folder}/site", "/ {folder}/site"),
    *("/ {folder}/site/", "// {folder}/site/a.wsgi", "/w// {folder}/site/a.wsgi/"),
    *("/ {folder}/site/../site/a.wsgi", "/w/w {folder}/site/a.wsgi"),
)
TARGETS = (
    *("/", "/x", "/x/", "//x", "/w", "/w/", "/w/x", "/w//x", "/ww", "/w/w", "/w/w/", "/w/w/x"),
    *("/w/a.wsgi", "/w/a.wsgi/x", "/a.wsgi", "/a.wsgi/x", "/site/a.wsgi/x", "/?w"),
)


def test_an_alias_is_served_as_httpd_serves_it_or_refused(folder: Path) -> None:
    ports = dict(zip(ALIASES, free_ports(len(ALIASES)), strict=True))
    conf, part = folder / "httpd.conf", folder / "site.conf"
    conf.write_text(
        whole(
            folder,
            "".join(
                f"Listen 127.0.0.1:{port}\n<VirtualHost *:{port}>\n"
                f"WSGIScriptAlias {alias.format(folder=folder)}\n</VirtualHost>\n"
                for alias, port in ports.items()
            ),
        )
    )
    served = set()
    with Httpd(folder, conf, next(iter(ports.values()))):
        for alias, port in ports.items():
            part.write_text(
                "Listen 127.0.0.1:0\nWSGIApplicationGroup %{GLOBAL}\n"
                f"WSGIScriptAlias {alias.format(folder=folder)}\n"
            )
            check = run_main("serve", "--check", "--config", part)
            if check.returncode != 0:
                said = r"headway serve: \S+/site\.conf:3: WSGIScriptAlias: found .+; allowed: .+\n"
                assert re.fullmatch(said, check.stderr), check.stderr
                continue
            served.add(alias)
            with by_headway(part) as own:
                wrong = {
                    target: answers
                    for target in TARGETS
                    if len(set(map(str, answers := (ask(port, target), ask(own, target))))) > 1
                }
                assert not wrong, alias
    assert served == {
        *("/ {folder}/site/a.wsgi", "/ {folder}/site/a.wsgi/", "/ {folder}/site/a.wsgi//"),
        *("/w {folder}/site/a.wsgi", "/w/w {folder}/site/a.wsgi"),
        "/ {folder}/site/../site/a.wsgi",
    }


def test_variables_of_the_configuration_and_of_the_server(folder: Path) -> None:
    text = (
        "SetEnv SCRIPT_NAME /x\nSetEnv REMOTE_ADDR 192.0.2.1\nSetEnv PATH_INFO /y\n"
        f"SetEnv HTTPS on\nWSGIScriptAlias /w {folder}/site/a.wsgi\n"
    )
    port = free_port()
    conf, part = folder / "httpd.conf", folder / "site.conf"
    conf.write_text(whole(folder, f"Listen 127.0.0.1:{port}\n{text}"))
    part.write_text(f"Listen 127.0.0.1:0\nWSGIApplicationGroup %{{GLOBAL}}\n{text}")
    with Httpd(folder, conf, port), by_headway(part) as own:
        wanted, found = ask(port, "/w/a"), ask(own, "/w/a")
        assert found == wanted
        assert isinstance(found, list)
        assert found[-1] == "https"
