"""PEP 3333 to the letter, seen through pages that wsgiref.validate checks where it can."""

from __future__ import annotations

import ast
import re
import socket
from pathlib import Path

import pytest
from served import APPS, TIMEOUT_S, Served, read_response, read_to_end, status_of

pytestmark = pytest.mark.free_threading


def environ_of(server: Served, target: str, headers: str = "") -> dict[str, str]:
    lines = server.get(target, headers=headers).body.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_the_environ_has_what_is_required(checked: Served) -> None:
    headers = "X-Custom: 1\r\nContent-Type: a/b\r\nProxy: evil\r\nX_Custom: 2\r\n"
    environ = environ_of(checked, "/environ?a=b%20c&d", headers)
    expected = {
        "REQUEST_METHOD": "'GET'",
        "SCRIPT_NAME": "''",
        "PATH_INFO": "'/environ'",
        "QUERY_STRING": "'a=b%20c&d'",
        "REQUEST_URI": "'/environ?a=b%20c&d'",
        "CONTENT_TYPE": "'a/b'",
        "SERVER_NAME": "'127.0.0.1'",
        "SERVER_PORT": f"'{checked.address[1]}'",
        "SERVER_PROTOCOL": "'HTTP/1.1'",
        "REMOTE_ADDR": "'127.0.0.1'",
        "HTTP_HOST": "'test'",
        "HTTP_X_CUSTOM": "'1'",
        "wsgi.version": "(1, 0)",
        "wsgi.url_scheme": "'http'",
        "wsgi.multithread": "True",
        "wsgi.multiprocess": "False",
        "wsgi.run_once": "False",
    }
    assert {key: environ.get(key) for key in expected} == expected
    assert {"wsgi.input", "wsgi.errors", "wsgi.file_wrapper", "REMOTE_PORT"} <= environ.keys()
    assert "HTTP_PROXY" not in environ
    assert "HTTP_CONTENT_TYPE" not in environ


def test_a_unix_socket_has_a_name_and_no_client(tmp_path: Path) -> None:
    addresses = ("--bind", f"unix:{tmp_path}/socket", "--bind", "127.0.0.1:0")
    with Served("pages:application", *addresses) as server:
        environ = environ_of(server, "/environ")
    assert (environ["SERVER_NAME"], environ["SERVER_PORT"]) == ("'localhost'", "'80'")
    assert environ["REMOTE_ADDR"] == "''"
    assert "REMOTE_PORT" not in environ


@pytest.mark.parametrize("where", [(), ("--application-group", "shop", "--interpreters", "2")])
def test_the_server_is_where_the_request_came_by(tmp_path: Path, where: tuple[str, ...]) -> None:
    hosts = ("127.0.0.1", "localhost", *(["[::1]"] if has_ipv6() else []))
    unix = f"{tmp_path}/socket"
    binds = (*(f"{host}:0" for host in hosts), f"unix:{unix}")
    addresses = [option for bind in binds for option in ("--bind", bind)]
    with Served("pages:application", *addresses, *where) as server:
        server.wait_for("listening on unix:")
        found = re.findall(r"listening on http://(\S+):(\d+)\n", server.stderr)
        assert {host for host, _ in found} == set(hosts)
        for host, port in found:
            with socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S) as connection:
                assert server_of(connection) == (host, port)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(unix)
            assert server_of(connection) == ("localhost", "80")


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def server_of(connection: socket.socket) -> tuple[str, str]:
    connection.sendall(b"GET /environ HTTP/1.0\r\n\r\n")
    lines = read_response(connection).body.decode().splitlines()
    environ = dict(line.split("=", 1) for line in lines)
    return ast.literal_eval(environ["SERVER_NAME"]), ast.literal_eval(environ["SERVER_PORT"])


@pytest.mark.parametrize("group", ["%{GLOBAL}", "a"], ids=["main", "sub-interpreter"])
def test_variables_of_the_configuration_are_in_it(group: str) -> None:
    options = ("--environ", "ADDED=\u00fc", "--environ", "HTTPS=On", "--application-group", group)
    with Served("pages:application", *options, PYTHONUTF8="1") as server:
        environ = environ_of(server, "/environ")
    # A character for each byte.
    assert ast.literal_eval(environ["ADDED"]).encode("latin-1") == "\u00fc".encode()
    assert (environ["HTTPS"], environ["wsgi.url_scheme"]) == ("'On'", "'https'")
    assert environ["SERVER_NAME"] == "'127.0.0.1'"


def test_one_thread_is_not_multithread() -> None:
    with Served("pages:application", "--threads", "1") as server:
        assert environ_of(server, "/environ")["wsgi.multithread"] == "False"


def test_repeated_headers_are_joined(checked: Served) -> None:
    headers = "X: 1\r\nCookie: a=1\r\nx: 2\r\nCookie: b=2\r\n"
    environ = environ_of(checked, "/environ", headers)
    assert environ["HTTP_X"] == "'1, 2'"
    assert environ["HTTP_COOKIE"] == "'a=1; b=2'"


def test_paths_are_decoded_as_latin_1(checked: Served) -> None:
    response = checked.get("/%C3%A9nviron%2f")
    assert response.status == 404
    environ = environ_of(checked, "http://other:81/%65nviron?q")
    assert environ["PATH_INFO"] == "'/environ'"
    assert environ["HTTP_HOST"] == "'other:81'"


def test_all_ways_to_read_the_input(checked: Served) -> None:
    response = checked.request("POST", "/lines", b"a\n\nccc\ndd\nlast")
    expected = [b"a\n", b"\n", b"ccc\n", b"dd\n", b"last", b"", b""]
    assert ast.literal_eval(response.body.decode()) == expected


@pytest.mark.parametrize("framing", ["sized", "chunked"])
@pytest.mark.parametrize("length", [0, 1, 65_535, 65_536, 65_537, 3_000_000])
def test_bodies_of_any_size_arrive(checked: Served, length: int, framing: str) -> None:
    body = bytes(number % 251 for number in range(1000)) * (length // 1000 + 1)
    body = body[:length]
    if framing == "sized":
        assert checked.request("POST", "/echo", body).body == body
        return
    pieces = [body[start : start + 7000] for start in range(0, length, 7000)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    with checked.connect() as connection:
        head = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head + chunks + b"0\r\n\r\n")
        assert read_response(connection).body == body


def test_a_large_body_is_read_in_pieces(checked: Served) -> None:
    assert checked.request("POST", "/count", b"x" * 3_000_000).body == b"3000000"


def test_an_upload_that_is_read_in_pieces_is_not_kept() -> None:
    """The first piece is gathered before the application runs, so each read leaves a rest."""
    with Served("pages:unchecked", "--processes", "1") as server:
        (worker,) = server.workers()
        assert server.request("POST", "/count?65536", b"x" * 1_000_000).body == b"1000000"
        before = memory_of(worker, "VmRSS")
        pieces, piece = 1_600, b"x" * 125_000
        with server.connect() as connection:
            head = f"POST /count?65536 HTTP/1.1\r\nHost: a\r\nContent-Length: {pieces * len(piece)}"
            connection.sendall(head.encode() + b"\r\n\r\n")
            for _ in range(pieces):
                connection.sendall(piece)
            assert read_response(connection).body == b"200000000"
        assert memory_of(worker, "VmHWM") - before < 20_000_000


def memory_of(pid: int, field: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(
        int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(field)
    )


def test_a_body_without_a_length_is_chunked_and_the_connection_kept(checked: Served) -> None:
    with checked.connect() as connection:
        for _ in range(2):
            connection.sendall(b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
            response = read_response(connection)
            assert response.headers["transfer-encoding"] == "chunked"
            assert response.body == b"first,second\n"


def test_a_list_gets_a_content_length(pages: Served) -> None:
    response = pages.get("/hello")
    assert response.headers["content-length"] == "6"
    assert response.headers["server"].startswith("headway/")
    assert response.headers["date"].endswith(" GMT")
    assert pages.get("/nothing").headers["content-length"] == "0"


def test_each_block_is_transmitted_before_the_next_is_asked_for(checked: Served) -> None:
    head = b"POST /handshake HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"
    with checked.connect() as connection:
        connection.sendall(head + b"x" * 70_000)
        received = b""
        while not received.endswith(b"one\n\r\n"):
            received += connection.recv(1000)
        connection.sendall(b"x" * 29_999 + b"\n")
        assert b"you said xxx" in read_until(connection, b"0\r\n\r\n")


def test_the_last_block_is_transmitted_while_the_application_closes() -> None:
    with Served("pages:unchecked") as server, server.connect() as connection:
        for _ in range(2):
            connection.sendall(b"GET /large_closing_late?16000000 HTTP/1.1\r\nHost: a\r\n\r\n")
            assert read_response(connection).body == b"x" * 16_000_000
            assert server.get("/release").body == b"goes on\n"
            assert server.get("/was_closed").body == b"yes\n"


@pytest.mark.parametrize("size", [1, 16_000_000])
def test_a_body_may_be_read_after_the_whole_response(pages: Served, size: int) -> None:
    with pages.connect() as connection:
        read_after_the_response(connection, size)


def read_after_the_response(connection: socket.socket, size: int) -> None:
    head = f"POST /answers_before_it_reads?{size} HTTP/1.1\r\nHost: a\r\nContent-Length: 100000"
    connection.sendall(head.encode() + b"\r\n\r\n" + b"y" * 70_000)
    assert read_response(connection).body == b"x" * size
    connection.sendall(b"y" * 30_000)
    connection.sendall(b"GET /last_read HTTP/1.1\r\nHost: a\r\n\r\n")
    assert read_response(connection).body == b"100000"


def read_until(connection: socket.socket, end: bytes) -> bytes:
    received = b""
    while not received.endswith(end):
        piece = connection.recv(65536)
        assert piece, "closed too early"
        received += piece
    return received


def test_write_comes_before_what_is_returned(checked: Served) -> None:
    assert checked.get("/writer").body == b"written,returned\n"


def test_the_first_write_sends_the_head_even_without_a_block(checked: Served) -> None:
    head = b"POST /writes_nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"
    with checked.connect() as connection:
        connection.sendall(head + b"x" * 70_000)
        assert read_until(connection, b"\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")
        connection.sendall(b"x" * 29_999 + b"\n")
        assert read_until(connection, b"\r\n0\r\n\r\n").count(b"x") == 99_999


def test_responses_without_a_body(checked: Served) -> None:
    for target, status in (("/no_content", 204), ("/not_modified", 304)):
        response = checked.get(target)
        assert response.status == status
        assert response.body == b""
        assert "transfer-encoding" not in response.headers
    assert "content-length" not in checked.get("/no_content").headers


def test_a_file_is_sent_by_the_wrapper(checked: Served) -> None:
    assert checked.get("/sent_file").body == (APPS / "pages.py").read_bytes()


def test_wsgi_errors_is_stderr(checked: Served) -> None:
    assert checked.get("/log").body == b"logged\n"
    checked.wait_for("a line for wsgi.errors\n")


@pytest.mark.parametrize("target", ["/closing", "/raises_midway"])
def test_close_is_always_called(pages: Served, target: str) -> None:
    pages.converse(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert pages.get("/was_closed").body == b"yes\n"


@pytest.mark.parametrize("target", ["/raises", "/raises_after_start", "/exits", "/returns_text"])
def test_an_error_before_the_head_is_a_500_and_a_traceback(pages: Served, target: str) -> None:
    with pages.connect() as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        response = read_response(connection)
        assert response.status == 500
        assert "x-lost" not in response.headers
        assert b"purpose" not in response.body
        connection.sendall(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        assert read_response(connection).body == b"hello\n"
    pages.wait_for(rf"in GET {target}\n(?s:.+?)(Error|Exit): ")


@pytest.mark.parametrize(
    "request_line",
    [b"GET /raises_midway HTTP/1.1", b"GET /raises_midway_sized HTTP/1.1"],
)
def test_an_error_in_the_body_truncates_visibly(pages: Served, request_line: bytes) -> None:
    response = pages.converse(request_line + b"\r\nHost: a\r\n\r\n")
    assert status_of(response) == 200
    assert b"some of it" in response
    assert response.endswith((b"some of it", b"some of it\r\n")), "no end of a chunked body"


def test_an_error_in_a_body_that_closing_would_end_resets(pages: Served) -> None:
    with pages.connect() as connection:
        connection.sendall(b"GET /raises_midway HTTP/1.0\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            read_to_end(connection)


def test_an_error_in_close_comes_too_late_to_hurt(pages: Served) -> None:
    assert pages.get("/raises_in_close").body == b"whole\n"
    pages.wait_for("ValueError: raised in close\n")


def test_exc_info_replaces_a_head_that_is_not_sent(pages: Served) -> None:
    response = pages.get("/error_page")
    assert (response.status, response.body) == (500, b"handled\n")
    assert "x-lost" not in response.headers


def test_exc_info_is_raised_if_the_head_is_sent(pages: Served) -> None:
    response = pages.converse(b"GET /late_error_page HTTP/1.1\r\nHost: a\r\n\r\n")
    assert response.endswith(b"4\r\nsent\r\n"), "and no end"
    pages.wait_for("ValueError: too late\n")


def test_start_response_may_not_be_called_twice(pages: Served) -> None:
    assert pages.get("/starts_twice").body.startswith(b"AssertionError: start_response() was")


def test_an_application_must_start_a_response(pages: Served) -> None:
    assert pages.get("/never_starts").status == 500
    pages.wait_for("did not call start_response")


def test_too_short_a_body_closes_at_once(pages: Served) -> None:
    with pages.connect() as connection:
        connection.sendall(b"GET /too_short HTTP/1.1\r\nHost: a\r\n\r\n")
        assert read_to_end(connection).endswith(b"\r\n\r\nten bytes.")
    pages.wait_for("less than its Content-Length")


def test_too_long_a_body_is_cut(pages: Served) -> None:
    with pages.connect() as connection:
        connection.sendall(b"GET /too_long HTTP/1.1\r\nHost: a\r\n\r\n")
        assert read_response(connection).body == b"abc"
        connection.sendall(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        assert read_response(connection).body == b"hello\n"
    pages.wait_for("more than its Content-Length")


def test_heads_that_start_response_refuses(pages: Served) -> None:
    names = (
        "ValueError ValueError ValueError TypeError TypeError TypeError "
        "UnicodeEncodeError TypeError ValueError"
    )
    assert pages.get("/bad_headers").body.decode() == names


def test_the_input_of_a_request_that_is_over(pages: Served) -> None:
    assert pages.get("/kept_input").body == b"kept\n"
    assert pages.get("/kept_input").body == b"RuntimeError: this request is over\n"
