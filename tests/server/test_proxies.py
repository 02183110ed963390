"""Behind proxies: the PROXY protocol header, and whose word about a request's origin counts."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from secured import SecuredServer, make_certificate
from served import Served, read_response, read_to_end, status_of
from test_serve_command import refuse

REQUEST = b"GET /environ HTTP/1.1\r\nHost: inner:8000\r\nConnection: close\r\n%s\r\n"
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def version_2(command: int, family: int, addresses: bytes, records: bytes = b"") -> bytes:
    rest = addresses + records
    return SIGNATURE + struct.pack("!BBH", command, family, len(rest)) + rest


def ip(text: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)


IPV4 = ip("192.0.2.7") + ip("192.0.2.1") + struct.pack("!HH", 4711, 443)
IPV6 = ip("2001:db8::7") + ip("2001:db8::1") + struct.pack("!HH", 4712, 443)
NOOP = b"\x04\x00\x02xx"
HEADERS = [
    (b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 443\r\n", "192.0.2.7", "4711"),
    (b"PROXY TCP6 2001:db8::7 2001:db8::1 4712 443\r\n", "2001:db8::7", "4712"),
    (b"PROXY UNKNOWN\r\n", "127.0.0.1", None),
    (version_2(0x21, 0x11, IPV4), "192.0.2.7", "4711"),
    (version_2(0x21, 0x21, IPV6, NOOP * 100), "2001:db8::7", "4712"),
    (version_2(0x20, 0x00, b"", NOOP), "127.0.0.1", None),
    # The family of LOCAL is not looked at, nor are addresses.
    (version_2(0x20, 0x11, b""), "127.0.0.1", None),
    (version_2(0x20, 0x11, IPV4, NOOP), "127.0.0.1", None),
    (version_2(0x20, 0x99, b"anything", NOOP * 700), "127.0.0.1", None),
]


@pytest.fixture(scope="module")
def behind_balancer() -> Iterator[Served]:
    options = ("--proxy-protocol-from", "127.0.0.0/8", "--access-log", "json")
    with Served("pages:unchecked", *options) as server:
        yield server


def environ_in(received: bytes) -> dict[str, str]:
    head, _, body = received.partition(b"\r\n\r\n")
    assert status_of(head + b"\r\n") == 200
    pairs = (line.split("=", 1) for line in body.decode().splitlines() if "=" in line)
    return {key: value.strip("'") for key, value in pairs}


def ask(server: Served, sent: bytes) -> bytes:
    with server.connect() as connection:
        connection.sendall(sent)
        return read_to_end(connection)


@pytest.mark.parametrize(("header", "address", "port"), HEADERS)
def test_the_header_says_who_the_client_is(
    behind_balancer: Served, header: bytes, address: str, port: str | None
) -> None:
    environ = environ_in(ask(behind_balancer, header + REQUEST % b""))
    assert environ["REMOTE_ADDR"] == address
    assert port in (None, environ["REMOTE_PORT"])


@pytest.mark.parametrize("header", [HEADERS[0][0], HEADERS[4][0][:60], HEADERS[5][0]])
def test_a_header_in_single_bytes(behind_balancer: Served, header: bytes) -> None:
    if header.startswith(SIGNATURE) and len(header) == 60:
        header = version_2(0x21, 0x21, IPV6, NOOP)
    with behind_balancer.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in header + REQUEST % b"":
            connection.send(bytes([byte]))
        environ_in(read_to_end(connection))


@pytest.mark.parametrize(
    "sent",
    [
        REQUEST % b"",
        b"POST / HTTP/1.1\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 65536\r\n" + REQUEST % b"",
        b"PROXY TCP4 2001:db8::7 192.0.2.1 4711 443\r\n" + REQUEST % b"",
        b"PROXY " + b"x" * 200,
        SIGNATURE + b"\x31\x11\x00\x0c" + IPV4 + REQUEST % b"",
        version_2(0x21, 0x11, IPV4[:8]) + REQUEST % b"",
        SIGNATURE + b"\x21\x11\xff\xff" + b"x" * 5_000,
        SIGNATURE + b"\x20\x00\xff\xff" + b"x" * 5_000,
    ],
)
def test_without_a_header_there_is_no_answer(behind_balancer: Served, sent: bytes) -> None:
    try:
        received = ask(behind_balancer, sent)
    except ConnectionResetError:
        received = b""
    assert received == b""
    behind_balancer.wait_for("did not begin with a PROXY protocol header")
    assert behind_balancer.stderr.count("did not begin with") == 1


def test_one_header_holds_for_all_requests_of_a_connection(behind_balancer: Served) -> None:
    request = b"GET /environ HTTP/1.1\r\nHost: a\r\n\r\n"
    with behind_balancer.connect() as connection:
        connection.sendall(HEADERS[0][0] + request * 3)
        file = connection.makefile("rb")
        addresses = [line for line in file_lines(file, 3) if line.startswith("REMOTE_ADDR")]
    assert addresses == ["REMOTE_ADDR='192.0.2.7'"] * 3


def file_lines(file: object, responses: int) -> list[str]:
    lines: list[str] = []
    for _ in range(responses):
        length = 0
        while (line := file.readline()) != b"\r\n":  # type: ignore[attr-defined]
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        lines += file.read(length).decode().splitlines()  # type: ignore[attr-defined]
    return lines


def test_the_access_log_has_the_client(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    options = ("--proxy-protocol-from", "127.0.0.1", "--access-log", f"json:{log}")
    with Served("pages:unchecked", *options) as server:
        ask(server, HEADERS[0][0] + REQUEST % b"")
    assert json.loads(log.read_text())["address"] == "192.0.2.7"


def test_nobody_else_may_send_a_header() -> None:
    with Served("pages:unchecked", "--proxy-protocol-from", "192.0.2.0/24") as server:
        for header, _, _ in HEADERS:
            assert status_of(ask(server, header + REQUEST % b"")) == 400
        assert environ_in(ask(server, REQUEST % b""))["REMOTE_ADDR"] == "127.0.0.1"


def test_the_header_comes_before_tls(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    options = ("--proxy-protocol-from", "127.0.0.1")
    with SecuredServer("pages:unchecked", made, *options) as server:
        connection = server.connect_plainly()
        connection.sendall(HEADERS[3][0])
        with server.secure(connection) as secured:
            secured.sendall(REQUEST % b"")
            environ = environ_in(read_to_end(secured))
    assert (environ["REMOTE_ADDR"], environ["HTTPS"]) == ("192.0.2.7", "on")


def test_a_unix_socket_behind_a_balancer(tmp_path: Path) -> None:
    bind = ("--bind", f"unix:{tmp_path / 'socket'}")
    with Served("pages:unchecked", *bind, "--proxy-protocol-from", "unix") as server:
        environ = environ_in(ask(server, HEADERS[0][0] + REQUEST % b""))
    assert environ["REMOTE_ADDR"] == "192.0.2.7"


ALL = "X-Forwarded-For,X-Forwarded-Proto,X-Forwarded-Host,X-Forwarded-Port"
FIELDS = (
    b"X-Forwarded-For: 6.6.6.6, 192.0.2.7, 127.0.0.9\r\nX-Forwarded-Proto: https\r\n"
    b"X-Forwarded-Host: shop.example\r\nForwarded: for=6.6.6.6;host=evil.example\r\n"
)


def test_nobody_is_believed_unless_it_is_said(pages: Served) -> None:
    environ = environ_in(ask(pages, REQUEST % FIELDS))
    assert environ["REMOTE_ADDR"] == "127.0.0.1"
    assert environ["wsgi.url_scheme"] == "http"
    assert environ["HTTP_HOST"] == "inner:8000"
    assert environ["HTTP_X_FORWARDED_FOR"] == "6.6.6.6, 192.0.2.7, 127.0.0.9"
    assert environ["HTTP_FORWARDED"] == "for=6.6.6.6;host=evil.example"


def test_a_trusted_proxy_is_believed(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    options = ("--trusted-proxies", "127.0.0.0/8", "--access-log", f"combined:{log}")
    with Served("pages:unchecked", *options, "--trusted-proxy-headers", ALL) as server:
        environ = environ_in(ask(server, REQUEST % (FIELDS + b"Referer: here\r\n")))
    assert environ["REMOTE_ADDR"] == "192.0.2.7"
    assert "REMOTE_PORT" not in environ
    assert environ["wsgi.url_scheme"] == "https"
    assert environ["HTTPS"] == "on"
    assert environ["HTTP_HOST"] == environ["SERVER_NAME"] == "shop.example"
    assert environ["SERVER_PORT"] == "443"
    assert "HTTP_FORWARDED" not in environ, "which the proxy does not set"
    line = log.read_text()
    assert line.startswith("192.0.2.7 - - [")
    assert '"here" "-" response_time=' in line


@pytest.fixture(scope="module")
def behind_proxy() -> Iterator[Served]:
    with Served("pages:unchecked", "--trusted-proxies", "127.0.0.0/8") as server:
        yield server


def test_by_default_a_proxy_says_no_host(behind_proxy: Served) -> None:
    environ = environ_in(ask(behind_proxy, REQUEST % FIELDS))
    assert environ["REMOTE_ADDR"] == "192.0.2.7"
    assert environ["HTTP_HOST"] == "inner:8000"
    assert "HTTP_X_FORWARDED_HOST" not in environ


def test_rfc_7239() -> None:
    field = (
        b'Forwarded: for=6.6.6.6, for="[2001:db8::7]:4711";proto=https;host="a.example:8443"\r\n'
    )
    options = ("--trusted-proxies", "127.0.0.1", "--trusted-proxy-headers", "Forwarded")
    with Served("pages:unchecked", *options) as server:
        environ = environ_in(ask(server, REQUEST % field))
    assert (environ["REMOTE_ADDR"], environ["REMOTE_PORT"]) == ("2001:db8::7", "4711")
    assert environ["HTTP_HOST"] == "a.example:8443"
    assert (environ["SERVER_NAME"], environ["SERVER_PORT"]) == ("a.example", "8443")


def test_what_others_say_does_not_reach_the_application() -> None:
    options = ("--trusted-proxies", "192.0.2.0/24", "--trusted-proxy-headers", ALL)
    with Served("pages:unchecked", *options) as server:
        environ = environ_in(ask(server, REQUEST % FIELDS))
    assert environ["REMOTE_ADDR"] == "127.0.0.1"
    assert environ["wsgi.url_scheme"] == "http"
    assert not [key for key in environ if "FORWARDED" in key]


def test_the_word_holds_for_one_request(behind_proxy: Served) -> None:
    with behind_proxy.connect() as connection:
        for field, address in [(b"X-Forwarded-For: 192.0.2.7\r\n", "192.0.2.7"), (b"", "127.")]:
            connection.sendall(b"GET /environ HTTP/1.1\r\nHost: a\r\n" + field + b"\r\n")
            body = read_response(connection).body.decode()
            assert f"REMOTE_ADDR='{address}" in body


@pytest.mark.parametrize(
    ("option", "value", "found"),
    [
        ("--trusted-proxies", "10.0.0.1/8", "10.0.0.1/8"),
        ("--proxy-protocol-from", "somewhere", "somewhere"),
        ("--trusted-proxy-headers", "X-Real-IP", "X-Real-IP"),
    ],
)
def test_bad_names_are_one_line(option: str, value: str, found: str) -> None:
    line = refuse("pages:hello", option, value)
    assert option in line
    assert found in line
