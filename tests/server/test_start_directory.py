"""The directory that the server is started in, when it is a symbolic link that is switched."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from launch import run_main
from served import MODE, TIMEOUT_S, Served

APPLICATION = """
import os

def application(environ, start_response):
    start_response("200 OK", [])
    return [f"{RELEASE} in {os.getcwd()}, pid {os.getpid()}".encode()]
"""
# As a shell does that a unit or a user has.
CHANGE_DIRECTORY = (
    "import os, sys; os.chdir(sys.argv[1]); os.environ['PWD'] = sys.argv[1]; "
    "os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
)


@pytest.fixture
def current(tmp_path: Path) -> Path:
    """A symbolic link to the first of two releases."""
    for number in (1, 2):
        release = tmp_path / f"release{number}"
        release.mkdir()
        (release / "site_app.py").write_text(f"RELEASE = 'release {number}'\n{APPLICATION}")
        text = "[process-group.site]\nbind = '127.0.0.1:0'\napp = 'site_app:application'\n"
        (release / "serve.toml").write_text(text)
    link = tmp_path / "current"
    link.symlink_to("release1")
    return link


@pytest.mark.parametrize("arguments", ["site_app:application", "--config serve.toml"])
def test_a_switched_link_leads_to_the_new_release_at_sighup(current: Path, arguments: str) -> None:
    bind = () if "--config" in arguments else ("--bind", "127.0.0.1:0")
    server = Served.__new__(Served)
    command = ("-m", "headway", "serve", *arguments.split(), *bind, *MODE)
    server._start(["-c", CHANGE_DIRECTORY, str(current), *command])

    def served() -> str:
        return server.get("/").body.decode()

    with server:
        releases = current.parent / "release1", current.parent / "release2"
        first = served()
        assert first.startswith(f"release 1 in {releases[0]}, ")
        switch(current, "release2")
        # One generation stays with one release, whenever its processes start.
        (worker,) = server.workers()
        assert first.endswith(f"pid {worker}")
        subprocess.run(["kill", "-KILL", str(worker)], check=True)
        server.wait_for("was ended by SIGKILL")
        assert served().startswith(f"release 1 in {releases[0]}, ")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("generation 2 serves")
        # The former generation takes connections until it hears of that.
        end = time.monotonic() + TIMEOUT_S
        while (answer := served()).startswith(f"release 1 in {releases[0]}, "):
            assert time.monotonic() < end, server.stderr
        assert answer.startswith(f"release 2 in {releases[1]}, ")
        switch(current, "nowhere")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("SIGHUP: .*nowhere.*; generation 2 goes on serving")


def test_a_pwd_that_is_elsewhere_is_not_believed(current: Path) -> None:
    done = run_main("serve", "site_app:application", "--check", *MODE, cwd=current, PWD="/tmp")
    assert done.returncode == 0, done.stderr
    assert f" {current.parent / 'release1'} " in done.stdout


def switch(link: Path, target: str) -> None:
    new = link.with_name("new")
    new.symlink_to(target)
    new.rename(link)
