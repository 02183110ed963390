"""HTTP/1.1 as RFC 9112 has it, where servers are known to differ.

The cases are facts collected from suites and findings of others, which each row names:
- garden N, garden proxy N: the bugs of servers and of proxies that http-garden (narfindustries)
  found and numbers in its TROPHIES.md;
- probe X: a case of Http11Probe (MDA2AV), by its identifier without the category;
- h1spec: a case of uNetworking's h1spec;
- RFC N, section: what no suite asks.
Where a suite allows both refusal and acceptance, an ambiguous request is refused here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from served import Served, read_response, read_to_end, status_of

pytestmark = pytest.mark.free_threading

H = b"Host: a\r\n"
GET = b"GET /x HTTP/1.1\r\n" + H
POST = b"POST /x HTTP/1.1\r\n" + H
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
NEXT = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture(scope="module")
def mirror() -> Iterator[Served]:
    with Served("mirror:application") as server:
        yield server


REQUEST_LINE = {
    b"GET /x \r\n\r\n": (400, "h1spec: request without HTTP version"),
    b"GET /x\r\n\r\n": (400, "probe HTTP09-REQUEST"),
    b"GET /x HTTP/9.9\r\n" + H + b"\r\n": (505, "h1spec: invalid HTTP version"),
    b"GET /x HTTP/0.9\r\n" + H + b"\r\n": (505, "RFC 9110, 2.5: another major version"),
    b"GET /x HTTP/1.2\r\n\r\n": (400, "RFC 9110, 2.5: 1.2 needs a host as 1.1 does"),
    b"GET /x HTTP/1.32\r\n" + H + b"\r\n": (400, "garden 5"),
    b"GET /x HTTP/1\r\n" + H + b"\r\n": (400, "probe VERSION-MISSING-MINOR"),
    b"GET /x HTTP/01.1\r\n" + H + b"\r\n": (400, "probe VERSION-LEADING-ZEROS"),
    b"GET /x HTTP/4294967295.255\r\n" + H + b"\r\n": (400, "garden 24"),
    b"GET /x HTTP/ 1.1\r\n" + H + b"\r\n": (400, "probe VERSION-WHITESPACE"),
    b"GET /x http/1.1\r\n" + H + b"\r\n": (400, "probe VERSION-CASE"),
    b"GET /x HTTP/\r\r1.1\r\n" + H + b"\r\n": (400, "garden 15"),
    b"GET  /x HTTP/1.1\r\n" + H + b"\r\n": (400, "probe MULTI-SP-REQUEST-LINE"),
    b"GET\t/x\tHTTP/1.1\r\n" + H + b"\r\n": (400, "probe REQUEST-LINE-TAB"),
    b"GET /x y HTTP/1.1\r\n" + H + b"\r\n": (400, "probe SPACE-IN-TARGET"),
    b"GET /x\nHTTP/1.1\r\n" + H + b"\r\n": (400, "garden 9"),
    b"GET /x HTTP/1.1\r" + H + b"\r\n": (400, "probe CR-ONLY-LINE-ENDING"),
    b"GET /x HTTP/1.1\n" + H + b"\r\n": (400, "probe BARE-LF-REQUEST-LINE"),
    b"GET /x HTTP/1.1\nHost: a\n\n": (400, "garden proxy 16"),
    b"\r\n" * 9 + GET + b"\r\n": (400, "RFC 9112, 2.2: at least one empty line is to be ignored"),
    b"\nGET /x HTTP/1.1\r\n" + H + b"\r\n": (400, "RFC 9112, 2.2: a lone LF is no empty line"),
    b" GET /x HTTP/1.1\r\n" + H + b"\r\n": (400, "RFC 9112, 2.2: white space before a request"),
    b"Extra lineGET / HTTP/1.1\r\n" + H + b"\r\n": (400, "h1spec: invalid prefix of request"),
    b'G=":<>(e),[T];?" /x HTTP/1.1\r\n' + H + b"\r\n": (400, "garden 6"),
    b"\0 / HTTP/............0596.7407.\r\n\r\n": (400, "garden 40"),
    b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03": (400, "RFC 8446, 5.1: TLS to a plain port"),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": (505, "RFC 9113, 3.4: the preface of HTTP/2"),
    b"CONNECT a:443 HTTP/1.1\r\n" + H + b"\r\n": (501, "probe METHOD-CONNECT"),
    b"GET ! HTTP/1.1\r\n" + H + b"\r\n": (400, "garden 7"),
    b"GET * HTTP/1.1\r\n" + H + b"\r\n": (400, "probe ASTERISK-WITH-GET"),
    b"GET /x#y HTTP/1.1\r\n" + H + b"\r\n": (400, "probe FRAGMENT-IN-TARGET"),
    b"GET /\xc0\xaf HTTP/1.1\r\n" + H + b"\r\n": (400, "probe URL-OVERLONG-UTF8"),
    b"GET http://u:p@a/x HTTP/1.1\r\n" + H + b"\r\n": (400, "RFC 9110, 4.2.4: user information"),
}

HOST = {
    b"GET /x HTTP/1.1\r\n\r\n": (400, "probe MISSING-HOST"),
    GET + b"Host: b\r\n\r\n": (400, "h1spec: multiple Host headers"),
    GET + b"Host: a\r\n\r\n": (400, "probe DUPLICATE-HOST-SAME"),
    b"GET /x HTTP/1.1\r\nHost:\r\n\r\n": (400, "probe HOST-EMPTY-VALUE"),
    b"GET /x HTTP/1.1\r\nHost: u@a\r\n\r\n": (400, "probe HOST-WITH-USERINFO"),
    b"GET /x HTTP/1.1\r\nHost: a/b\r\n\r\n": (400, "probe HOST-WITH-PATH"),
    b"GET /x HTTP/1.1\r\nHost: a,b\r\n\r\n": (400, "RFC 9110, 7.2: a list"),
    b"GET /x HTTP/1.1\r\nHost: a:b\r\n\r\n": (400, "RFC 9110, 7.2: a port is digits"),
    b"GET /x HTTP/1.1\r\nHost: ::1\r\n\r\n": (400, "RFC 3986, 3.2.2: IPv6 without brackets"),
    b"GET /x HTTP/1.1\r\nHost: a\0.b\r\n\r\n": (400, "garden proxy 12"),
    b"GET /x HTTP/1.1\r\nHost: \xffa\xff\r\n\r\n": (400, "garden 46"),
}

FIELDS = {
    GET + b"X-Test : y\r\n\r\n": (400, "probe SP-BEFORE-COLON"),
    GET + b"X-Test\t: y\r\n\r\n": (400, "probe TAB-IN-NAME"),
    GET + b"X: y\r\n z\r\n\r\n": (400, "probe OBS-FOLD"),
    b"GET /x HTTP/1.1\r\n " + H + b"\r\n": (400, "probe WHITESPACE-BEFORE-HEADERS"),
    b"GET /x HTTP/1.1\r\n\tContent-Length: 1\r\n" + H + b"\r\nX": (400, "garden 4"),
    GET + b"X\n: y\r\n\r\n": (400, "garden proxy 14"),
    GET + b"X: y\nZ: z\r\n\r\n": (400, "probe BARE-LF-HEADER"),
    GET + b"X:\n\nGET / HTTP/1.1\r\n\r\n": (400, "garden 19"),
    GET + b"X: v\rw\r\n\r\n": (400, "garden 34"),
    GET + b"X: v\0w\r\n\r\n": (400, "garden 35"),
    GET + b"X: v\0\rw\r\n\r\n": (400, "garden 2"),
    GET + b"X: v\x07\r\n\r\n": (400, "h1spec: header containing invalid control character"),
    GET + b"X: :/\rSmuggled: :)\r\n\r\n": (400, "garden 13"),
    GET + b": y\r\n\r\n": (400, "garden 18"),
    GET + b":\r\nX: am chopped off\r\n\r\n": (400, "garden 27"),
    GET + b"Content-Length 10\r\n\r\n0123456789": (400, "garden 28"),
    GET + b"X-Bad[]: y\r\n\r\n": (400, "h1spec: invalid header characters"),
    GET + b"\xefoo: bar\r\n\r\n": (400, "garden 8"),
    GET + b"Content-Length\x85: 10\r\n\r\n0123456789": (400, "garden 20"),
    GET + b"\rZGET /evil: HTTP/1.1\r\n" + H + b"\r\n": (400, "garden 30"),
    GET + b"Expect: 200-ok\r\n\r\n": (417, "probe EXPECT-UNKNOWN"),
}

FRAMING = {
    POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": (
        400,
        "garden proxy 23",
    ),
    POST + b"Transfer-Encoding: chunked\r\nContent-Length: 30\r\n\r\n0\r\n\r\n": (
        400,
        "probe TECL-PIPELINE",
    ),
    POST + b"Content-Length: 5\r\nTRANSFER-ENCODING: Chunked\r\n\r\n0\r\n\r\n": (
        400,
        "probe CLTE-SMUGGLED-GET-TE-CASE-MISMATCH",
    ),
    POST + b"Content-Length: 5\r\nTransfer-Encoding: identity\r\n\r\nhello": (
        400,
        "probe TE-IDENTITY",
    ),
    POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": (
        400,
        "garden 11",
    ),
    POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n": (
        400,
        "probe TE-DUPLICATE-HEADERS-SMUGGLED-GET",
    ),
    POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n": (
        400,
        "probe TE-NOT-FINAL-CHUNKED",
    ),
    POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n": (
        400,
        "RFC 9112, 6.1: chunked once",
    ),
    POST + b"Transfer-Encoding: ,\r\n\r\n0\r\n\r\n": (400, "RFC 9110, 5.6.1.2: no element"),
    POST + b"Transfer-Encoding: chunked,,chunked\r\n\r\n0\r\n\r\n": (
        400,
        "RFC 9112, 6.1: chunked once, with an empty element",
    ),
    POST + b"Transfer-Encoding: \r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": (
        400,
        "RFC 9112, 6.1: an empty field before",
    ),
    POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: ,\r\n\r\n0\r\n\r\n": (
        400,
        "RFC 9112, 6.1: an empty field after",
    ),
    POST + b"Content-Length: 5\r\nTransfer-Encoding: , chunked\r\n\r\n0\r\n\r\n": (
        400,
        "RFC 9112, 6.1: a length beside an empty element",
    ),
    b"POST /x HTTP/1.0\r\n" + H + b"Transfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n": (
        400,
        "RFC 9112, 6.1: an empty element, without codings in HTTP/1.0",
    ),
    POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n": (
        501,
        "RFC 9112, 6.1: a coding not understood",
    ),
    POST + b"Transfer-Encoding: blegh\r\n\r\n1\r\nZ\r\n0\r\n\r\n": (400, "garden 44"),
    POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n": (400, "probe TE-XCHUNKED"),
    POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n': (
        400,
        "RFC 9112, 7: a coding is a token",
    ),
    POST + b"Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n": (
        400,
        "RFC 9112, 7.1: chunked has no parameters",
    ),
    POST + b"Transfer-Encoding:\r\n\r\n0\r\n\r\n": (400, "probe TE-EMPTY-VALUE"),
    POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n": (400, "probe TE-VTAB"),
    POST + b"Transfer-Encoding: \x0cchunked\r\n\r\n0\r\n\r\n": (400, "probe TE-FORMFEED"),
    POST + b"Transfer-Encoding: chunked\0\r\n\r\n0\r\n\r\n": (400, "probe TE-NULL"),
    POST + b"Transfer-Encoding: \xa0chunked\xa0\r\n\r\n0\r\n\r\n": (400, "garden 12"),
    POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n": (400, "probe TE-SP-BEFORE-COLON"),
    POST + b"Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n\r\nhello": (
        400,
        "probe TE-OBS-FOLD",
    ),
    POST + b"Transfer-\r\nEncoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n": (
        400,
        "garden 37",
    ),
    b"POST /x HTTP/1.0\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n": (
        400,
        "probe TE-HTTP10",
    ),
    POST + b"Content-Length: +1_0\r\n\r\n0123456789": (400, "garden 10"),
    POST + b"Content-Length: -48\r\n\r\n": (400, "garden 26"),
    POST + b"Content-Length: 1Z\r\n\r\nZ": (400, "garden 29"),
    POST + b"Content-Length: 0x10\r\n\r\nZ": (400, "garden proxy 1"),
    POST + b"Content-Length: \r\n\r\n": (400, "garden 16"),
    POST + b"Content-Length: \r\nContent-Length: 43\r\n\r\n": (400, "garden 42"),
    POST + b"Content-Length: 1\r\nContent-Length: 0\r\n\r\nZ": (400, "garden 23"),
    POST + b"Content-Length: 5, 5\r\n\r\nhello": (400, "probe CL-COMMA-SAME"),
    POST + b"Content-Length: 5 5\r\n\r\nhello": (400, "RFC 9110, 8.6: digits only"),
    POST + b"Content-Length: 99999999999999999999\r\n\r\n": (400, "probe CL-OVERFLOW"),
    POST + b"Content-Length : 5\r\n\r\nhello": (400, "garden 3"),
}

CHUNKS = {
    CHUNKED + b"0_2e\r\n\r\n": (400, "garden 1"),
    CHUNKED + b"+0\r\n\r\n": (400, "probe CHUNK-INVALID-SIZE-DESYNC"),
    CHUNKED + b"-0x0\r\n\r\n": (400, "garden proxy 19"),
    CHUNKED + b"\r\n\r\n": (400, "garden 17"),
    CHUNKED + b"           0\r\n\r\n": (400, "garden proxy 24"),
    CHUNKED + b"1these-bytes-never-get-validated\r\nZ\r\n0\r\n\r\n": (400, "garden proxy 7"),
    CHUNKED + b"INVALID!!!\r\n": (400, "garden 47"),
    CHUNKED + b"FFFFFFFFFFFFFFFF1\r\nhello\r\n0\r\n\r\n": (400, "probe CHUNK-SIZE-OVERFLOW"),
    CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n": (400, "RFC 9112, 7.1: no space at the end"),
    CHUNKED + b"5 5\r\nhello\r\n0\r\n\r\n": (400, "RFC 9112, 7.1: a size has no spaces"),
    CHUNKED + b"5\nhello\r\n0\r\n\r\n": (400, "RFC 9112, 7.1: CRLF"),
    CHUNKED + b"5\rhello\r\n0\r\n\r\n": (400, "probe CHUNK-BARE-CR-TERM"),
    CHUNKED + b"5\r\nhello\n0\r\n\r\n": (400, "probe CHUNK-LF-TERM"),
    CHUNKED + b"5\r\nhelloXX0\r\n\r\n": (400, "garden 39"),
    CHUNKED + b"3\r\nhello\r\n0\r\n\r\n": (400, "probe CHUNK-SPILL"),
    CHUNKED + b"5;\r\nhello\r\n0\r\n\r\n": (400, "probe CHUNK-BARE-SEMICOLON"),
    CHUNKED + b"5;a[=b\r\nhello\r\n0\r\n\r\n": (400, "probe CHUNK-EXT-INVALID-TOKEN"),
    CHUNKED + b"5;\nhello\r\n0\r\n\r\n": (400, "probe CHUNK-EXT-LF"),
    CHUNKED + b"5;a\rX\r\nhello\r\n0\r\n\r\n": (400, "probe CHUNK-EXT-CR"),
    CHUNKED + b"5;\0ext\r\nhello\r\n0\r\n\r\n": (400, "probe CHUNK-EXT-CTRL"),
    CHUNKED + b"5;" + b"a" * 65_536 + b"\r\nhello\r\n0\r\n\r\n": (400, "probe CHUNK-EXT-64K"),
    CHUNKED + b"5\r\r;ABCD\r\nhello\r\n0\r\n\r\n": (400, "garden 31"),
    CHUNKED + b"2;a=b\r\rXX\r\n41\r\n0\r\n\r\n": (400, "garden 36"),
    CHUNKED + (b"1;" + b"a" * 100 + b"\r\nx\r\n") * 101: (400, "Go CVE-2023-39326"),
    CHUNKED + b"0\r\n\n": (400, "probe CHUNK-LF-TRAILER"),
    CHUNKED + b"0\r\n X: y\r\n\r\n": (400, "RFC 9112, 7.1.2: a trailer line is a field line"),
    CHUNKED + b"0\r\nX:POST\rHTTP/1.1\r\n\r\n": (400, "RFC 9112, 2.2: a lone CR"),
    CHUNKED + b"0\r\nGET /evil HTTP/1.1\r\n" + H + b"\r\n": (
        400,
        "RFC 9112, 7.1.2: no request is a trailer",
    ),
}


def named(table: dict[bytes, tuple[int, str]]) -> list[object]:
    return [pytest.param(request, row[0], id=row[1]) for request, row in table.items()]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [*named(REQUEST_LINE), *named(HOST), *named(FIELDS), *named(FRAMING), *named(CHUNKS)],
)
def test_refused_once_and_for_all(mirror: Served, request_bytes: bytes, status: int) -> None:
    """One refusal with a reason, and what was to follow is no request."""
    with mirror.connect() as connection:
        connection.sendall(request_bytes + NEXT)
        response = read_to_end(connection)
    assert status_of(response) == status
    head, _, body = response.partition(b"\r\n\r\n")
    assert b"\r\nConnection: close" in head
    assert f"Content-Length: {len(body)}\r\n".encode() in head, "and nothing behind it"


ACCEPTED = {
    "h1spec: valid GET request with edge cases": (
        b"GET /x HTTP/1.1\r\nhoSt:\ta\r\nempty:\r\n\r\n",
        {"uri": "/x", "headers": {"HTTP_HOST": "a", "HTTP_EMPTY": ""}},
    ),
    "probe LEADING-CRLF": (b"\r\n\r\n" + GET + b"\r\n", {"uri": "/x"}),
    "probe METHOD-CASE": (b"get /x HTTP/1.1\r\n" + H + b"\r\n", {"method": "get"}),
    "RFC 9110, 9.1: any token is a method": (
        b"M-SEARCH!~ /x HTTP/1.1\r\n" + H + b"\r\n",
        {"method": "M-SEARCH!~"},
    ),
    "probe METHOD-TRACE": (b"TRACE /x HTTP/1.1\r\n" + H + b"\r\n", {"method": "TRACE"}),
    "probe OPTIONS-STAR": (
        b"OPTIONS * HTTP/1.1\r\n" + H + b"\r\n",
        {"method": "OPTIONS", "uri": "*", "path": ""},
    ),
    "RFC 9112, 3.2.2: the target's host counts": (
        b"GET http://b:81/x?y HTTP/1.1\r\n" + H + b"\r\n",
        {"path": "/x", "query": "y", "headers": {"HTTP_HOST": "b:81"}},
    ),
    "RFC 9110, 4.2.3: no path is the root": (
        b"GET http://b?y HTTP/1.1\r\n" + H + b"\r\n",
        {"path": "/", "query": "y"},
    ),
    "RFC 3986, 3.2.2: an IPv6 host": (
        b"GET /x HTTP/1.1\r\nHost: [2001:db8::1]:8000\r\n\r\n",
        {"headers": {"HTTP_HOST": "[2001:db8::1]:8000"}},
    ),
    "probe LONG-URL-OK": (b"GET /%s HTTP/1.1\r\n" % (b"a" * 7900) + H + b"\r\n", {}),
    "probe UPGRADE-POST": (
        POST + b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 5\r\n\r\nhello",
        {"body": "hello"},
    ),
    "RFC 9113, 3.1: h2c is no longer offered": (
        GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n",
        {"protocol": "HTTP/1.1"},
    ),
    "h1spec: valid POST request with body": (
        POST + b"Content-Length: 5\r\n\r\nhello",
        {"body": "hello"},
    ),
    "garden 32": (POST + b"Content-Length: 010\r\n\r\n0123456789", {"body": "0123456789"}),
    "RFC 9112, 6.3: equal lengths": (
        POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        {"body": "hello", "length": "5"},
    ),
    "probe GET-WITH-CL-BODY": (GET + b"Content-Length: 5\r\n\r\nhello", {"body": "hello"}),
    "probe POST-NO-CL-NO-TE": (POST + b"\r\n", {"body": ""}),
    "probe UNDERSCORE-CL": (POST + b"Content_Length: 99\r\n\r\n", {"body": "", "length": None}),
    "probe UNDERSCORE-TE": (POST + b"Transfer_Encoding: chunked\r\n\r\n", {"body": ""}),
    "h1spec: chunked Transfer-Encoding": (
        CHUNKED + b"c\r\nHellO world1\r\n0\r\n\r\n",
        {"body": "HellO world1", "length": "12"},
    ),
    "garden 21": (
        POST + b"Transfer-Encoding: ,chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        {"body": "hello"},
    ),
    "RFC 9110, 5.6.1.2: empty elements": (
        POST + b"Transfer-Encoding: ,, chunked ,\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        {"body": "hello"},
    ),
    "probe HTTP12-VERSION": (
        b"POST /x HTTP/1.2\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        {"uri": "/x", "body": "hello", "protocol": "HTTP/1.1"},
    ),
    "probe CHUNKED-EXTENSION": (
        CHUNKED + b'5;a ; b = "c;\\"d" ;e=f\r\nhello\r\n0;last\r\n\r\n',
        {"body": "hello"},
    ),
    "probe CHUNKED-HEX-UPPERCASE": (
        CHUNKED + b"A\r\n0123456789\r\n0\r\n\r\n",
        {"body": "0123456789"},
    ),
    "RFC 9112, 7.1: leading zeros, a long last chunk": (
        CHUNKED + b"0005\r\nhello\r\n000\r\n\r\n",
        {"body": "hello"},
    ),
    "probe TRAILER-CL, TRAILER-TE, TRAILER-HOST, TRAILER-AUTH": (
        CHUNKED + b"5\r\nhello\r\n0\r\nContent-Length: 9\r\nTransfer-Encoding: x\r\nHost: b\r\n"
        b"Authorization: c\r\n\r\n",
        {"body": "hello", "length": "5", "headers": {"HTTP_HOST": "a"}},
    ),
    "garden 41": (GET + b"X: \x85y\xa0\r\n\r\n", {"headers": {"HTTP_X": "\x85y\xa0"}}),
    "garden 48": (
        POST + b"Content-Length: 34\r\n\r\n" + b"GET / HTTP/1.1\r\nHost: a\r\nid: 12\r\n\r\n"[:34],
        {"body": "GET / HTTP/1.1\r\nHost: a\r\nid: 12\r\n\r\n"[:34]},
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_with_one_meaning(mirror: Served, name: str) -> None:
    """The application sees the request, and the next request begins where this one ends."""
    request, expected = ACCEPTED[name]
    with mirror.connect() as connection:
        connection.sendall(request)
        seen = json.loads(read_response(connection).body)
        connection.sendall(NEXT)
        follow_up = json.loads(read_response(connection).body)
    headers = expected.get("headers")
    assert {key: seen[key] for key in expected if key != "headers"} == {
        key: value for key, value in expected.items() if key != "headers"
    }
    assert headers is None or {key: seen["headers"][key] for key in headers} == headers
    assert "HTTP_AUTHORIZATION" not in seen["headers"], "a trailer is no header"
    assert (follow_up["uri"], follow_up["body"]) == ("/next", "")


def test_unfinished_requests_are_waited_for(mirror: Served) -> None:
    """h1spec: every beginning of a request, and then its rest."""
    request = CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"
    connections = [mirror.connect() for _ in range(1, len(request))]
    for end, connection in enumerate(connections, 1):
        connection.sendall(request[:end])
    assert mirror.get("/x").status == 200
    for end, connection in enumerate(connections, 1):
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
        connection.settimeout(30)
        connection.sendall(request[end:])
        assert json.loads(read_response(connection).body)["body"] == "hello"
        connection.close()


@pytest.mark.parametrize(
    ("request_head", "kept"),
    [
        (b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close, TE\r\n", False),
        (b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: TE\r\nConnection: Close\r\n", False),
        (b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, close\r\n", False),
        (b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: closed\r\n", True),
        (b"GET /x HTTP/1.0\r\n", False),
        (b"GET /x HTTP/1.0\r\nConnection: Keep-Alive\r\n", True),
        (b"GET /x HTTP/1.0\r\nConnection: close, keep-alive\r\n", False),
    ],
)
def test_who_closes(mirror: Served, request_head: bytes, kept: bool) -> None:
    """RFC 9112, 9.3 and 9.6."""
    with mirror.connect() as connection:
        connection.sendall(request_head + b"\r\n" + b"GET /last HTTP/1.0\r\n\r\n")
        answers = read_to_end(connection)
    assert answers.count(b"HTTP/1.1 200 OK\r\n") == (2 if kept else 1)
    assert answers.count(b"Connection: close\r\n") == 1, "said before it is done"


def test_no_interim_response_to_http_10(mirror: Served) -> None:
    """RFC 9110, 15.2, and probe NO-1XX-HTTP10."""
    request = b"POST /x HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello"
    assert status_of(mirror.converse(request)) == 200


def test_no_100_continue_once_the_body_has_begun_to_come(mirror: Served) -> None:
    """RFC 9110, 10.1.1: it may be left out, and here there is nobody left who waits for it."""
    with mirror.connect() as connection:
        connection.sendall(POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello")
        assert json.loads(read_response(connection).body)["body"] == "hello"
        connection.sendall(NEXT)
        assert json.loads(read_response(connection).body)["uri"] == "/next"
