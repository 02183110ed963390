"""`--background`: pages that compute are answered by a process of their own, and the connections go
to and fro between it and the others."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from configured import Configured, refusal_of, resolution_of
from launch import run_main
from served import APPS, MODE, Served, read_response
from supervised import Held, Load, Supervised

from headway.recorder.diagnosis import gil_verdicts
from headway.server.settings import BACKGROUND_SUFFIX

pytestmark = pytest.mark.free_threading

SITE = ("processes:application", "--mount", "/heavy=processes:application")
HEAVY = ("--processes", "2", "--background", "/heavy")
KINDS = [pytest.param((), id="plain"), pytest.param(("--preload",), id="preloaded")]


class ToAndFro(Load):
    """Clients each of whose connections wants a background page in between."""

    def __init__(self, server: Served) -> None:
        super().__init__(server, clients=8)
        self._targets = itertools.cycle(["/pid", "/heavy/pid", "/pid"])

    def next_target(self) -> str:
        return next(self._targets)


def nice_of(pid: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, pid)


def on_one_connection(server: Served, *targets: str) -> list[Any]:
    with server.connect() as connection:
        answers = []
        for target in targets:
            connection.sendall(f"GET {target} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
            answers.append(ast.literal_eval(read_response(connection).body.decode()))
        return answers


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_of_its_own_answers_them(kind: tuple[str, ...]) -> None:
    with Served(*SITE, *HEAVY, *kind) as server:
        light, heavy, light_again, still_heavy = on_one_connection(
            server, "/identity", "/heavy/identity", "/identity", "/heavy/identity?page=2"
        )
        own = nice_of(os.getpid())
        assert (light["nice"], light_again["nice"]) == (own, own)
        assert (heavy["nice"], still_heavy["nice"]) == (min(own + 10, 19),) * 2
        pids = on_one_connection(server, "/pid", "/heavy/pid", "/heavy/pid", "/pid")
        assert pids[1] == pids[2]
        assert pids[1] not in (pids[0], pids[3])
        assert on_one_connection(server, "/multiprocess", "/heavy/multiprocess") == [1, 1]


def test_it_gives_way_to_processes_that_have_given_way_themselves() -> None:
    nicer = "import os, sys; os.nice(3); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    server = Served.__new__(Served)
    site = (*SITE, *HEAVY, "--app-dir", str(APPS), "--bind", "127.0.0.1:0", *MODE)
    server._start(["-c", nicer, "-m", "headway", "serve", *site])
    with server:
        own = min(nice_of(os.getpid()) + 3, 19)
        light, heavy = on_one_connection(server, "/identity", "/heavy/identity")
        assert (light["nice"], heavy["nice"]) == (own, min(own + 10, 19))


def test_the_others_go_on_while_it_is_busy(tmp_path: Path) -> None:
    with (
        Served(*SITE, *HEAVY, "--threads", "1") as server,
        Held(server, tmp_path, "/heavy") as held,
    ):
        with Load(server) as load:
            load.wait_for_answers(200)
        assert not load.failed()
        background = json.loads(held.release().body)
        assert background not in load.pids


@pytest.mark.parametrize("kind", KINDS)
def test_no_request_is_lost_when_the_server_ends(kind: tuple[str, ...]) -> None:
    with Served(*SITE, *HEAVY, *kind) as server:
        with ToAndFro(server) as load:
            load.wait_for_answers(200)
            assert len(load.pids) == 3
            load.is_late.set()
            assert server.stop() == 0, server.stderr
        # Requests that were sent after the signal may find nobody.
        assert all(kind.endswith("(late)") for kind in load.failed()), load.failed()


def test_no_request_is_lost_when_it_comes_and_goes(tmp_path: Path) -> None:
    mounts = [{"path": path, "application": "processes:application"} for path in ("", "/heavy")]
    group = {"mounts": mounts, "processes": 2, "binds": [f"unix:{tmp_path / 'sock'}"]}
    with (
        Supervised(tmp_path, group | {"background": ["/heavy"]}) as server,
        ToAndFro(server) as load,
    ):
        load.wait_for_answers(50)
        for generation, paths in enumerate([[], ["/heavy"], ["/heavy"], []], 2):
            server.write(group | {"background": paths})
            server.reload(generation)
            load.pids.clear()
            load.wait_for_answers(200)
            assert len(server.workers()) >= (3 if paths else 2)
    assert not load.failed(), (load.failed(), server.stderr)


@pytest.mark.parametrize("kind", KINDS)
def test_no_request_is_lost_when_it_is_told_to_end_alone(kind: tuple[str, ...]) -> None:
    with Served(*SITE, *HEAVY, *kind) as server, ToAndFro(server) as load:
        for _ in range(2):
            victim = on_one_connection(server, "/heavy/pid")[0]
            os.kill(victim, signal.SIGTERM)
            server.wait_for(rf"\(pid {victim}\) ended with exit status 0 while it served")
            while on_one_connection(server, "/heavy/pid")[0] == victim:
                pass
            load.wait_for_answers(100)
    assert not load.failed(), (load.failed(), server.stderr)


def test_its_successor_answers_what_waits(tmp_path: Path) -> None:
    with Served(*SITE, *HEAVY) as server:
        victim = on_one_connection(server, "/heavy/pid")[0]
        with ToAndFro(server) as load:
            os.kill(victim, signal.SIGKILL)
            server.wait_for(
                rf"\(pid {victim}\) was ended by SIGKILL while it served; starting anot"
            )
            load.wait_for_answers(300)
        # Those that it had die with it.
        assert sum(load.failed().values()) <= 8, load.failed()
        assert on_one_connection(server, "/heavy/pid")[0] != victim


def test_a_client_over_a_unix_socket_and_one_behind_a_proxy_keep_their_address(
    tmp_path: Path,
) -> None:
    options = ("--bind", f"unix:{tmp_path / 'sock'}", "--proxy-protocol-from", "unix")
    site = ("pages:unchecked", "--mount", "/heavy=pages:unchecked")
    with Served(*site, *HEAVY, *options) as server, server.connect() as connection:
        connection.sendall(b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n")
        for target, group in (("/heavy/environ", "main-background"), ("/environ", "main")):
            connection.sendall(f"GET {target} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
            body = read_response(connection).body.decode()
            assert "REMOTE_ADDR='192.0.2.7'" in body
            assert "REMOTE_PORT='4711'" in body
            assert f"headway.process_group='{group}'" in body


def test_headway_status_shows_it(tmp_path: Path) -> None:
    status = str(tmp_path / "status")
    with Served(*SITE, *HEAVY, "--status-socket", status) as server:
        on_one_connection(server, "/pid", "/heavy/pid", "/heavy/pid")
        shown = json.loads(run_main("status", f"unix:{status}", "--json").stdout)
    requests = {
        group["name"]: sum(process["requests"] for process in group["processes"])
        for group in shown["groups"]
    }
    assert requests == {"main": 1, "main-background": 2}


def test_what_it_cannot_be() -> None:
    for path in ("report", "/", "/a//b", "/a/../b", "/a?b", "/ä", "/a/*"):
        done = run_main("serve", "pages:hello", "--background", path, cwd=APPS)
        assert done.returncode == 2
        assert f"argument --background: found {path!r}" in done.stderr, done.stderr
        assert "allowed: a URL path such as /reports" in done.stderr


def test_two_groups_have_no_name_in_common(tmp_path: Path) -> None:
    configured = Configured(tmp_path / "serve.toml")
    text = (
        '[process-group.shop]\napp = "a:b"\nbind = "localhost:1"\nbackground = ["/a", "/b/c"]\n'
        '[process-group.shop-background]\napp = "a:b"\nbind = "localhost:2"\n'
    )
    said = refusal_of(lambda: configured.resolve(text))
    assert re.search(
        r"serve\.toml:5: found a process group shop-background, which is the name of the "
        r"background process of shop \(.*serve\.toml:4\); allowed: another name$",
        said,
    )
    found = configured.resolve(text.replace("shop-background", "reports")).settings.groups
    assert [each.name for each in found] == ["shop", "reports"]
    assert found[0].background == ("/a", "/b/c")


def test_the_recorder_knows_it_by_its_name() -> None:
    assert gil_verdicts.BACKGROUND_SUFFIX == BACKGROUND_SUFFIX


def test_over_tls_it_has_no_effect() -> None:
    tls = ("--tls-certificate", "/c.pem", "--tls-key", "/k.pem")
    (warning,) = resolution_of("shop:app", "--background", "/report", *tls).warnings
    assert warning.startswith(
        "--background: background of process group main has no effect over TLS"
    )
