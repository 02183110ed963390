"""PEP 3333 sentence by sentence, beside its main road; the main road is in test_pep3333.py."""

from __future__ import annotations

import ast
import re
import socket
from collections.abc import Iterator
from io import BytesIO
from random import Random
from urllib.parse import urlencode
from zlib import crc32

import pytest
from served import FREE_THREADING, Served, read_response, read_to_end, status_of

pytestmark = pytest.mark.free_threading


@pytest.fixture(scope="module")
def corners() -> Iterator[Served]:
    with Served("corners:unchecked") as server:
        yield server


def test_the_environ_is_a_dict_of_native_strings(corners: Served) -> None:
    assert corners.request("POST", "/environ_types?q", b"x", "X-A: \xe9\r\n").body == b"[]"


def test_over_a_unix_socket_too(tmp_path: object) -> None:
    with Served("corners:unchecked", "--bind", f"unix:{tmp_path}/socket") as server:
        assert server.get("/environ_types").body == b"[]"


def test_each_request_has_an_environ_of_its_own(corners: Served) -> None:
    assert [corners.get("/environ_is_mine").body for _ in range(2)] == [b"nothing", b"nothing"]
    assert corners.get("/environ_types").body == b"[]"


def test_sizes_for_the_input(corners: Served) -> None:
    body = b"abc\ndefg\n\nh"
    found = ast.literal_eval(corners.request("POST", "/input_sizes", body).body.decode())
    assert found[:7] == [b"", b"", b"ab", b"c\n", b"de", b"fg\n", b"\n"]
    assert found[7:] == [[b"h"], b"", b"", b"", [], [], b""], "the end is an empty string, always"


@pytest.mark.parametrize("framing", ["sized", "chunked"])
@pytest.mark.parametrize("seed", range(6))
def test_the_input_is_read_as_a_file_is(corners: Served, framing: str, seed: int) -> None:
    """Calls of any size, for a body that arrives in pieces of any size."""
    chosen = Random(seed)
    body = chosen.randbytes(chosen.choice([200_000, 3_000_000]))
    sizes = [0, 1, 100, 8_192, 65_536, 65_537, 500_000, 2_000_000]
    calls = [(chosen.choice(["read", "readline"]), chosen.choice(sizes)) for _ in range(40)]
    file = BytesIO(body)
    expected = [(len(data), crc32(data)) for data in (getattr(file, name)(n) for name, n in calls)]
    with corners.connect() as connection:
        is_chunked = framing == "chunked"
        length = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(body)}"
        target = f"/input_calls?{urlencode(calls)}"
        connection.sendall(f"POST {target} HTTP/1.1\r\nHost: a\r\n{length}\r\n\r\n".encode())
        at = 0
        while at < len(body):
            piece = body[at : at + chosen.choice([1, 1_000, 70_000, 300_000])]
            at += len(piece)
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece) if is_chunked else piece)
        if is_chunked:
            connection.sendall(b"0\r\n\r\n")
        assert ast.literal_eval(read_response(connection).body.decode()) == expected


def test_what_a_failed_read_has_received_can_still_be_read(corners: Served) -> None:
    with corners.connect() as connection:
        head = b"POST /input_after_an_error HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n"
        connection.sendall(head + b"x" * 100_000)
        connection.shutdown(socket.SHUT_WR)
        read_to_end(connection)
    assert corners.get("/what_was_after_the_error").body == b"OSError 90000"


def test_wrong_arguments_for_the_input(corners: Served) -> None:
    names = b"TypeError TypeError TypeError TypeError OverflowError AttributeError"
    assert corners.request("POST", "/input_misused", b"x").body == names


def test_wsgi_errors_takes_lines(corners: Served) -> None:
    assert corners.get("/error_lines").status == 200
    corners.wait_for("one of two\ntwo of two: ")


def test_fields_are_sent_as_they_are(corners: Served) -> None:
    head = corners.converse(b"GET /fields HTTP/1.1\r\nHost: a\r\n\r\n").partition(b"\r\n\r\n")[0]
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 299 Fein \xfc"
    sent = [b"Set-Cookie: a=1", b"X-AbC: \xe9", b"set-cookie: b=2", b"X-Empty: "]
    assert [line for line in lines if line in sent] == sent
    assert [line for line in lines if line.startswith((b"Date", b"Server"))] == [
        b"Date: today",
        b"Server: mine",
    ]


HOP_BY_HOP = (
    "Keep-Alive=timeout%3D5",
    "Proxy-Authenticate=Basic",
    "Proxy-Authorization=Basic+eA%3D%3D",
    "TE=trailers",
    "Trailers=X",
    "Transfer-Encoding=chunked",
    "Upgrade=websocket",
    "connection=keep-alive",
)


def test_hop_by_hop_fields_are_left_out(corners: Served) -> None:
    with corners.connect() as connection:
        for _ in range(2):
            for field in HOP_BY_HOP:
                request = f"GET /hop_by_hop?{field} HTTP/1.1\r\nHost: a\r\n\r\n"
                connection.sendall(request.encode())
                response = read_response(connection)
                assert (response.status, response.body) == (200, b"one\n")
                assert response.headers["x-kept"] == "yes"
                assert field.partition("=")[0].lower() not in response.headers
    for field in HOP_BY_HOP:
        name = field.partition("=")[0].title() if field.islower() else field.partition("=")[0]
        corners.wait_for(rf"application at /: the response's field {name} is left out")
    assert corners.stderr.count("is left out") == len(HOP_BY_HOP), "each one is logged once"


@pytest.mark.parametrize("value", ["close", "Close", "close,+x"])
def test_an_application_may_close_the_connection(corners: Served, value: str) -> None:
    with corners.connect() as connection:
        connection.sendall(
            f"GET /hop_by_hop?Connection={value} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
            + b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"
        )
        response = read_to_end(connection)
    assert response.count(b"HTTP/1.1 200 OK\r\n") == response.count(b"Connection: close\r\n") == 1
    assert response.endswith(b"\r\n\r\none\n")


@pytest.mark.parametrize("options", [(), ("--application-group", "shop")])
def test_each_application_that_sends_a_hop_by_hop_field_is_named(options: tuple[str, ...]) -> None:
    mounts = ("--mount", "/a=corners:unchecked", "--mount", "/b=corners:unchecked")
    with Served("pages:application", *mounts, *options) as server:
        for path in ("/a", "/b", "/a"):
            assert server.get(f"{path}/hop_by_hop?Upgrade=h2c").status == 200
        server.wait_for("application at /b: the response's field Upgrade is left out")
    assert len(re.findall("application at .*is left out", server.stderr)) == 2


@pytest.mark.parametrize(
    ("target", "body"), [("/one_block", b"the only block"), ("/a_tuple", b"a tuple")]
)
def test_a_length_that_can_be_known(corners: Served, target: str, body: bytes) -> None:
    response = corners.get(target)
    assert (response.headers["content-length"], response.body) == (str(len(body)), body)


def test_the_first_iteration_may_start_the_response(corners: Served) -> None:
    assert corners.get("/started_by_the_first_block").body == b"late, and in time\n"


@pytest.mark.parametrize("target", ["/started_too_late", "/raises_before_the_first_block"])
def test_an_error_before_the_first_block_is_a_500(corners: Served, target: str) -> None:
    response = corners.get(target)
    assert response.status == 500
    assert "x-lost" not in response.headers
    corners.wait_for(rf"in GET {target}\n(?s:.+?)Error: ")


def test_an_empty_block_sends_nothing(corners: Served) -> None:
    response = corners.get("/recovers_before_the_first_block")
    assert (response.status, response.body) == (503, b"recovered\n")
    assert "x-lost" not in response.headers


def test_close_is_called_when_the_client_is_gone(corners: Served) -> None:
    with corners.connect() as connection:
        connection.sendall(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
        connection.recv(65536)
    assert corners.get("/was_closed").body == b"yes\n"


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /closing_unstarted HTTP/1.1",
        b"GET /closing_unwanted HTTP/1.1",
        b"HEAD /closing HTTP/1.1",
    ],
)
def test_close_is_called_without_a_body(corners: Served, request_line: bytes) -> None:
    corners.converse(request_line + b"\r\nHost: a\r\n\r\n")
    assert corners.get("/was_closed").body == b"yes\n"


@pytest.mark.parametrize(
    "what", ["none", "int", "bytes", "str", "type", "list", "mixed", "bytearray"]
)
def test_garbage_is_an_error_of_the_application(corners: Served, what: str) -> None:
    response = corners.get(f"/garbage?{what}")
    assert response.status == 500
    corners.wait_for(rf"in GET /garbage\?{what}\n(?s:.*?)TypeError: ")
    assert corners.get("/hello").status == 200


def test_write_takes_bytes_only(corners: Served) -> None:
    assert corners.get("/writes_garbage").body == b"bytes only\n"


def test_interim_responses_are_the_servers(corners: Served) -> None:
    assert corners.get("/no_interim").body == b"ValueError ValueError ValueError"


def test_304_has_no_length_that_nobody_gave(corners: Served) -> None:
    """RFC 9110, 8.6: it would be that of a body which the server does not know."""
    assert "content-length" not in corners.get("/not_modified").headers


@pytest.mark.parametrize("method", ["POST", "HEAD"])
def test_an_answer_although_the_body_was_malformed(corners: Served, method: str) -> None:
    """Framed as for any request of this kind, and the last on its connection."""
    head = f"{method} /swallows_errors_of_the_client HTTP/1.1\r\nHost: a\r\n".encode()
    body = b"11170\r\n" + b"x" * 70_000 + b"\r\nnonsense\r\n"
    with corners.connect() as connection:
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + body)
        response = read_to_end(connection)
    assert status_of(response) == 200
    head, _, sent = response.partition(b"\r\n\r\n")
    assert b"\r\nConnection: close" in head
    assert sent == b"" if method == "HEAD" else sent.startswith(b"OSError: A chunk of the body")


def test_a_client_that_resets_in_mid_body(corners: Served) -> None:
    with corners.connect() as connection:
        connection.sendall(b"POST /count HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n")
        connection.sendall(b"x" * 100_000)
    with corners.connect() as connection:
        connection.sendall(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        assert read_response(connection).body == b"hello\n"


def test_any_number_of_field_names(corners: Served) -> None:
    """Names that are new in every request, long ones and the usual ones beside them."""
    for round_number in range(8):
        names = [f"X-{round_number}-{number}" for number in range(80)] + ["Y" * 300]
        fields = "".join(f"{name}: of {name}\r\n" for name in [*names, "Accept", "Accept"])
        lines = corners.get("/environ", headers=fields).body.decode().splitlines()
        for name in names:
            key = "HTTP_" + name.upper().replace("-", "_")
            assert f"{key}='of {name}'" in lines
        assert "HTTP_ACCEPT='of Accept, of Accept'" in lines


@pytest.mark.skipif(FREE_THREADING, reason="there is no GIL to drop")
def test_the_gil_is_not_held_while_a_large_block_is_sent(corners: Served) -> None:
    """To copy and send a small one takes no longer than to have the GIL again. A large one is sent
    in more than one piece to a client that reads slowly. A busy machine can add a forced drop to
    one request, but not to each of thirty."""

    def fewest_drops(size: int) -> int:
        return min(drops(size) for _ in range(30))

    def drops(size: int) -> int:
        assert len(corners.get(f"/counting_drops?{size}").body) == size
        return int(corners.get(f"/drops_of?{size}").body)

    assert fewest_drops(1_000_000) > fewest_drops(100_000)


def test_a_list_is_sent_as_it_was_when_it_was_returned(corners: Served) -> None:
    """Its large blocks are sent without the GIL, so that other threads can change it."""
    for _ in range(20):
        body = corners.get("/changing_list").body
        assert (len(body), set(body)) in [(8_000_000, {ord("a")}), (4_500_000, {ord("b")})]
