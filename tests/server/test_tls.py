"""TLS between socket and HTTP: what a client of either version sees, and what is refused."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from launch import headway, run_main
from secured import Certificate, SecuredServer, make_certificate
from served import APPS, Served, read_response, read_to_end, status_of
from test_pep3333 import read_after_the_response
from test_serve_command import refuse

sys.path.insert(0, str(APPS))
from files import content

pytestmark = pytest.mark.free_threading

T = TypeVar("T")
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def pages(made: Certificate) -> Iterator[SecuredServer]:
    with SecuredServer("pages:unchecked", made, "--threads", "2") as server:
        yield server


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_by_either_version(pages: SecuredServer, version: ssl.TLSVersion) -> None:
    pages.context.minimum_version = version
    pages.context.maximum_version = version
    try:
        with pages.connect() as connection:
            assert connection.version() == version.name.replace("_", ".")
            assert connection.selected_alpn_protocol() == "http/1.1"
            for _ in range(3):
                connection.sendall(b"GET /environ HTTP/1.1\r\nHost: localhost\r\n\r\n")
                body = read_response(connection).body.decode()
                assert "wsgi.url_scheme='https'\n" in body
                assert "HTTPS='on'\n" in body
                assert "REMOTE_ADDR='127.0.0.1'\n" in body
    finally:
        pages.context.minimum_version = VERSIONS[0]
        pages.context.maximum_version = VERSIONS[-1]


def test_a_client_that_wants_another_protocol_is_refused(pages: SecuredServer) -> None:
    context = ssl.create_default_context(cafile=None)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with pages.connect_plainly() as connection, pytest.raises(ssl.SSLError, match=r"(?i)protocol"):
        pages.secure(connection, context)


def test_the_last_block_is_transmitted_while_the_application_closes(pages: SecuredServer) -> None:
    with pages.connect() as connection:
        for _ in range(2):
            connection.sendall(b"GET /large_closing_late?16000000 HTTP/1.1\r\nHost: a\r\n\r\n")
            assert read_response(connection).body == b"x" * 16_000_000
            assert pages.get("/release").body == b"goes on\n"


@pytest.mark.parametrize("size", [1, 16_000_000])
def test_a_body_may_be_read_after_the_whole_response(pages: SecuredServer, size: int) -> None:
    with pages.connect() as connection:
        read_after_the_response(connection, size)


def test_pipelined_requests(pages: SecuredServer) -> None:
    with pages.connect() as connection:
        request = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n%s\r\n%02d"
        last = b"Connection: close\r\n"
        connection.sendall(b"".join(request % (last * (n == 39), n) for n in range(40)))
        received = read_to_end(connection)
    bodies = [part.split(b"HTTP/1.1")[0] for part in received.split(b"\r\n\r\n")[1:]]
    assert bodies == [b"%02d" % n for n in range(40)]


@pytest.mark.parametrize("size", [1, 16_384, 500_000, 5_000_000])
def test_bodies_of_any_size_both_ways(pages: SecuredServer, size: int) -> None:
    body = content(size)
    assert pages.request("POST", "/echo", body).body == body
    assert pages.request("POST", "/count?65536", body).body == b"%d" % size
    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (size, body)
    with pages.connect() as connection:
        head = b"POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head + chunk)
        assert read_response(connection).body == b"%d" % size


def test_each_block_of_a_stream_comes_before_the_next(pages: SecuredServer) -> None:
    with pages.connect() as connection:
        connection.sendall(b"POST /handshake HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
        connection.sendall(b"x" * 70_000)
        while b"one\n" not in connection.recv(65_536):
            pass
        connection.sendall(b"y" * 29_999 + b"\n")
        assert b"you said " in read_until(connection, b"0\r\n\r\n")


def read_until(connection: socket.socket, end: bytes) -> bytes:
    received = b""
    while not received.endswith(end):
        piece = connection.recv(65_536)
        assert piece
        received += piece
    return received


def test_100_continue(pages: SecuredServer) -> None:
    with pages.connect() as connection:
        head = (
            b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
        )
        connection.sendall(head)
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"abc")
        assert read_response(connection).body == b"abc"


def test_slow_readers_hold_no_thread(made: Certificate) -> None:
    # More than the buffers of a socket take.
    size = 15_000_000
    with SecuredServer("files:application", made, "--threads", "1") as files:
        readers = [files.connect() for _ in range(3)]
        for reader in readers:
            reader.sendall(f"GET /?size={size} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert files.get("/?size=10").body == content(10)
        for reader in readers:
            assert read_response(reader).body == content(size)
            reader.close()


def test_a_handshake_in_single_bytes_blocks_nobody(made: Certificate) -> None:
    with SecuredServer("pages:hello", made, "--threads", "1") as pages:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        slow = pages.context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            slow.do_handshake()
        with pages.connect_plainly() as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in outgoing.read():
                connection.send(bytes([byte]))
            assert pages.get("/").status == 200
            incoming.write(connection.recv(65_536))
            while True:
                try:
                    slow.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    incoming.write(connection.recv(65_536))
            slow.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            for byte in outgoing.read():
                connection.send(bytes([byte]))
            # Session tickets may come first.
            received = until_done(lambda: slow.read(1000), connection, incoming, outgoing)
            assert status_of(received) == 200


def test_http_without_tls_is_told_so(pages: SecuredServer) -> None:
    with pages.connect_plainly() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        received = read_to_end(connection)
    assert status_of(received) == 400
    assert b"HTTPS" in received


@pytest.mark.parametrize("sent", [b"\0" * 100, b"\x16\x03\x01\x00\x05hello", b"\x80" * 5_000])
def test_what_is_neither_is_closed(pages: SecuredServer, sent: bytes) -> None:
    with pages.connect_plainly() as connection:
        connection.sendall(sent)
        try:
            received = read_to_end(connection)
        except ConnectionResetError:
            received = b""
    assert b"HTTP" not in received
    assert pages.get("/hello").status == 200


def test_the_end_of_a_whole_response_is_said(pages: SecuredServer) -> None:
    """suppress_ragged_eofs is off: an end without close_notify would raise."""
    with pages.connect() as connection:
        connection.sendall(b"GET /stream HTTP/1.0\r\n\r\n")
        assert read_to_end(connection).endswith(b"first,second\n")


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_truncated_response_does_not_look_complete(pages: SecuredServer, version: bytes) -> None:
    with pages.connect() as connection:
        connection.sendall(b"GET /raises_midway HTTP/%s\r\nHost: a\r\n\r\n" % version)
        with pytest.raises((ssl.SSLEOFError, ConnectionResetError)):
            read_to_end(connection)


def until_done(
    act: Callable[[], T],
    connection: socket.socket,
    incoming: ssl.MemoryBIO,
    outgoing: ssl.MemoryBIO,
) -> T:
    """Carries bytes between a session and its socket until `act` wants no more."""
    while True:
        try:
            return act()
        except ssl.SSLWantReadError:
            connection.sendall(outgoing.read())
            piece = connection.recv(65_536)
            assert piece
            incoming.write(piece)
        finally:
            connection.sendall(outgoing.read())


def test_a_client_that_has_said_its_end_gets_its_response(pages: SecuredServer) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = pages.context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pages.connect_plainly() as connection:
        until_done(session.do_handshake, connection, incoming, outgoing)
        session.write(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        with pytest.raises(ssl.SSLWantReadError):
            session.unwrap()
        connection.sendall(outgoing.read())
        connection.shutdown(socket.SHUT_WR)
        received = read_to_end(connection)
        # The session said its end, so Python reads no more from it; the record is there.
        assert len(received) > 100


def test_an_idle_connection_is_closed_in_order_when_the_server_stops(made: Certificate) -> None:
    with SecuredServer("pages:hello", made) as server:
        connection, silent = server.connect(), server.connect_plainly()
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert read_response(connection).status == 200
        assert server.stop() == 0
        assert connection.recv(1) == b""
        assert silent.recv(1) == b""
        connection.close()
        silent.close()


def wait_until_stopping(server: SecuredServer) -> None:
    """Until a new connection is not answered: refused, reset, or left waiting for its handshake."""
    while True:
        try:
            with server.connect_plainly() as probe:
                probe.settimeout(0.5)
                server.secure(probe).close()
        except OSError:
            return


def test_a_handshake_under_way_is_worth_a_request_when_the_server_stops(made: Certificate) -> None:
    with SecuredServer("pages:hello", made) as server:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = server.context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            session.do_handshake()
        with server.connect_plainly() as connection:
            hello = outgoing.read()
            connection.sendall(hello[:10])
            # An answer on another connection: the bytes before were seen.
            assert server.get("/").status == 200
            server.process.send_signal(signal.SIGTERM)
            wait_until_stopping(server)
            connection.sendall(hello[10:])
            until_done(session.do_handshake, connection, incoming, outgoing)
            session.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            received = until_done(lambda: session.read(65_536), connection, incoming, outgoing)
            assert status_of(received) == 200
            assert b"Connection: close" in received
        assert server.stop(None) == 0


def test_a_unix_socket_stays_plain(made: Certificate, tmp_path: Path) -> None:
    path = tmp_path / "plain.sock"
    files = ("--tls-certificate", str(made.certificate), "--tls-key", str(made.key))
    with Served("pages:environ", *files, "--bind", f"unix:{path}") as server:
        body = server.get("/").body.decode()
    assert "wsgi.url_scheme='http'\n" in body
    assert "HTTPS=" not in body


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_the_key_may_be_readable_by_root_alone() -> None:
    # Everything above the application must let that user pass, unlike pytest's own folder.
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        app = Path(directory) / "whoami.py"
        app.write_text((APPS / "processes.py").read_text())
        made = make_certificate(Path(directory))
        assert made.key.stat().st_mode & 0o077 == 0
        options = ("--user", "nobody", "--group", "daemon", "--python-path", directory)
        with SecuredServer("whoami:application", made, *options) as server:
            found = eval(server.get("/identity").body)
    assert found["uid"] == pwd.getpwnam("nobody").pw_uid


def test_certificates_that_are_no_good_are_named(made: Certificate, tmp_path: Path) -> None:
    other = make_certificate(tmp_path, "other")
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    missing = tmp_path / "missing.pem"
    pipe = tmp_path / "pipe.pem"
    os.mkfifo(pipe)
    for certificate, key, found in [
        (missing, made.key, f"{missing}: no such file"),
        (made.certificate, missing, f"{missing}: no such file"),
        (pipe, made.key, f"{pipe}: it is not a regular file"),
        (made.certificate, pipe, f"{pipe}: it is not a regular file"),
        (empty, made.key, f"{empty}: it must hold a certificate"),
        (made.certificate, made.certificate, f"{made.certificate}: it must hold an unencrypted"),
        (made.certificate, other.key, f"{other.key}: the key does not belong to"),
    ]:
        files = ("--tls-certificate", str(certificate), "--tls-key", str(key))
        # To open a pipe would take for ever, and no timeout of this process would end it.
        run = headway if pipe in (certificate, key) else run_main
        assert found in refuse("pages:hello", *files, run=run)
    assert "tls-key is missing" in refuse("pages:hello", "--tls-certificate", str(made.certificate))
