"""UNIX sockets: whose file it is, who may connect, and what becomes of it while the server runs."""

from __future__ import annotations

import grp
import os
import pwd
import signal
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
from configured import resolution_of
from launch import ADDRESS_IN_USE
from served import Response, read_response
from supervised import Supervised

from headway.address import Address, parse_address
from headway.errors import CommandError
from headway.server.binding import bind
from headway.server.config import check
from headway.server.settings import ProcessGroup
from headway.server.socket_file import Access, _give
from headway.server.supervisor.listeners import Listeners

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")


@as_root
@pytest.mark.parametrize(
    ("said", "user", "group"),
    [
        ({}, "root", "root"),
        ({"user": "nobody"}, "nobody", None),
        ({"user": "nobody", "group": "daemon"}, "nobody", "daemon"),
        ({"user": "nobody", "socket_user": "root", "socket_group": "daemon"}, "root", "daemon"),
        ({"socket_group": "daemon"}, "root", "daemon"),
    ],
)
def test_a_socket_belongs_to_who_serves_or_to_who_is_named(
    tmp_path: Path, said: dict[str, Any], user: str, group: str | None
) -> None:
    path = tmp_path / "socket"
    group_of_processes = ProcessGroup(
        binds=(parse_address(f"unix:{path}"),), socket_mode=0o660, **said
    )
    listeners = Listeners()
    listeners.open([group_of_processes])
    found = path.stat()
    listeners.shut_down()
    assert not path.exists()
    owner = pwd.getpwnam(user)
    gid = owner.pw_gid if group is None else grp.getgrnam(group).gr_gid
    assert (found.st_uid, found.st_gid) == (owner.pw_uid, gid)
    assert stat.S_IMODE(found.st_mode) == 0o660


@as_root
def test_only_a_socket_of_one_name_is_given_away(tmp_path: Path) -> None:
    """Anybody with write access to the directory may have put any file there meanwhile."""
    secret, link, others = tmp_path / "secret", tmp_path / "link", tmp_path / "others"
    secret.touch()
    link.symlink_to(secret)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(others))
    second = tmp_path / "second"
    second.hardlink_to(others)
    for path in (secret, link, second):
        with pytest.raises(OSError, match="no longer the socket"):
            _give(str(path), Access(uid=65534))
    assert [path.stat().st_uid for path in (secret, others)] == [0, 0]


@pytest.mark.skipif(os.getuid() == 0, reason="root may give files away")
def test_a_socket_that_cannot_be_given_away_is_not_left_behind(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with pytest.raises(CommandError, match="cannot be given to user 0: operation not permitted"):
        bind(Address("localhost", 80, path), access=Access(uid=0))
    assert not os.path.lexists(path)


def test_whatever_goes_wrong_leaves_no_sockets_behind(tmp_path: Path) -> None:
    """Such a number no option takes, but a `ProcessGroup` does."""
    groups = [
        ProcessGroup(name="first", binds=(parse_address(f"unix:{tmp_path}/first"),)),
        ProcessGroup(binds=(parse_address(f"unix:{tmp_path}/second"),), socket_group=f"#{2**33}"),
    ]
    with pytest.raises(OverflowError):
        Listeners().open(groups)
    assert list(tmp_path.iterdir()) == []


def test_owners_that_cannot_be_are_named_by_check() -> None:
    flags = ("--socket-user", "#99999", "--socket-group", "no-such-group")
    found = check.problems(resolution_of("pages:hello", "--app-dir", ".", *flags))
    assert found == [
        "--socket-user: found #99999; it must be a user of this machine",
        "--socket-group: found no-such-group; it must be a group of this machine",
    ]


def test_a_file_that_was_removed_is_made_anew_at_sighup(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with Supervised(tmp_path, {"binds": [f"unix:{path}"]}) as server:
        (first,) = server.workers()
        with server.connect() as busy:
            busy.sendall(b"GET /pid HTTP/1.1\r\nHost: a\r\n")
            path.unlink()
            server.reload(2)
            assert first not in server.pids()
            busy.sendall(b"\r\n")
            assert int(read_response(busy).body) == first
        inode = path.stat().st_ino
        server.reload(3)
        # Nothing is wrong with it.
        assert path.stat().st_ino == inode
        assert server.get("/pid").status == 200
    assert not path.exists()


def test_a_file_is_not_made_anew_for_a_generation_that_does_not_come(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    group = {"binds": [f"unix:{path}"]}
    with Supervised(tmp_path, group) as server:
        (first,) = server.workers()
        with server.connect() as former:
            path.unlink()
            server.write(group | {"mounts": [{"path": "", "application": "no_such_module:app"}]})
            server.process.send_signal(signal.SIGHUP)
            server.wait_for("generation 1 goes on serving")
            assert not path.exists()
            assert int(ask(former).body) == first
        server.write(group)
        server.reload(3)
        assert server.get("/pid").status == 200


def test_a_file_that_another_server_has_taken_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with (
        Supervised(tmp_path, {"binds": [f"unix:{path}"]}) as server,
        server.connect() as former,
        socket.socket(socket.AF_UNIX) as other,
    ):
        path.unlink()
        other.bind(str(path))
        other.listen()
        server.process.send_signal(signal.SIGHUP)
        server.wait_for(f"{ADDRESS_IN_USE}; generation 1 goes on serving")
        assert ask(former).status == 200
    assert path.exists()


def ask(connection: socket.socket) -> Response:
    connection.sendall(b"GET /pid HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    return read_response(connection)
