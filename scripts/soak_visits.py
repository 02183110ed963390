"""What the clients of scripts/soak_server.py do: each visit is one connection from its beginning to
its end, good or bad, and checks every answer.

A visit raises `Missing` or `Wrong`; whether that is allowed, since the process that had the
connection was killed, is for others to say. Knows nothing of processes.
"""

from __future__ import annotations

import random
import time
import zlib
from collections import Counter
from collections.abc import Callable
from itertools import count
from urllib.parse import urlencode

from soak_conversation import Conversation, Missing, Response, Stuck, Wrong
from soak_site import FILE_BYTES, FILE_TOKEN, SHORT_BODY, text_of

# Beyond what the kernel keeps for both ends of a connection.
LARGE_BYTES = 16_000_000
SMALL_BUFFER_BYTES = 16_384


class Client:
    """Who visits: chance, the address, and what is counted. One for each thread."""

    _numbers = count(1)

    def __init__(self, address: tuple[str, int], seed: float) -> None:
        self.address = address
        self.chance = random.Random(seed)
        self.counts: Counter[str] = Counter()
        # Whom to ask who may have failed, while and after a visit.
        self.conversation: Conversation | None = None

    def connect(self, receive_buffer: int = 0) -> Conversation:
        try:
            self.conversation = Conversation(self.address, receive_buffer)
        except OSError as error:
            raise Missing(f"cannot connect: {error}") from None
        return self.conversation

    def target(self, page: str, **query: object) -> tuple[str, str]:
        """A page, with a token that no other request has."""
        token = f"t{next(self._numbers)}"
        return f"/{page}?{urlencode({'token': token, **query})}", token

    def size(self) -> int:
        """Mostly small."""
        return int(10 ** self.chance.uniform(0, 5))

    def counted(self, response: Response) -> Response:
        self.counts["answered right"] += 1
        return response

    def ask(self, page: str, more: str = "", method: str = "GET", **query: object) -> bytes:
        """The bytes of a request for what `check_text` checks."""
        self.wanted_size = self.size()
        target, self.token = self.target(page, size=self.wanted_size, **query)
        self.counts["sent"] += 1
        return f"{method} {target} HTTP/1.1\r\nHost: soak\r\n{more}\r\n".encode()


Visit = Callable[[Client], None]
CLOSE = "Connection: close\r\n"


def check(response: Response, token: str, status: int, body: bytes) -> None:
    if response.status != status:
        raise Wrong(f"status {response.status} instead of {status}: {response.body[:100]!r}")
    if response.fields.get("x-token", token) != token:
        raise Wrong(f"the answer to {response.fields['x-token']} came to {token}")
    if not response.is_whole:
        raise Missing(f"{len(response.body)} bytes of {len(body)}, then the end")
    if response.body != body:
        raise Wrong(f"{len(response.body)} bytes {response.body[:40]!r} instead of {len(body)}")


def check_text(client: Client, response: Response) -> None:
    check(response, client.token, 200, text_of(client.token, client.wanted_size))
    client.counts["answered right"] += 1


def check_closed(client: Client, response: Response, status: int) -> None:
    """The server refused, and closes."""
    if response.status != status:
        raise Wrong(f"status {response.status} instead of {status}")
    assert client.conversation
    client.conversation.read_end()
    client.counts["answered right"] += 1


def random_text(client: Client, more: str = "") -> bytes:
    """A request for a page that answers with text, one way or the other."""
    page = client.chance.choice(("text", "stream", "sized_stream", "write"))
    return client.ask(page, more, pieces=client.chance.randrange(1, 9))


def keep_alive(client: Client) -> None:
    """Thinks between its requests, for less than a retiring worker keeps it."""
    with client.connect() as conversation:
        for _ in range(client.chance.randrange(1, 40)):
            conversation.send(random_text(client))
            response = conversation.read_response()
            check_text(client, response)
            if response.closes:
                return conversation.read_end()
            time.sleep(client.chance.random() * 0.1)


def one_request(client: Client) -> None:
    with client.connect() as conversation:
        conversation.send(random_text(client, CLOSE))
        check_text(client, conversation.read_response())
        conversation.read_end()


def old_client(client: Client) -> None:
    """HTTP/1.0: the end of the connection may be that of the body."""
    with client.connect() as conversation:
        conversation.send(random_text(client).replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n"))
        check_text(client, conversation.read_response())
        conversation.read_end()


def head(client: Client) -> None:
    with client.connect() as conversation:
        page = client.chance.choice(("text", "stream", "sized_stream"))
        conversation.send(client.ask(page, CLOSE, "HEAD", pieces=3))
        response = conversation.read_response(has_body=False)
        check(response, client.token, 200, b"")
        if page != "stream" and response.fields["content-length"] != str(client.wanted_size):
            raise Wrong(f"Content-Length {response.fields['content-length']} of HEAD")
        conversation.read_end()
        client.counts["answered right"] += 1


def pipelined(client: Client) -> None:
    with client.connect() as conversation:
        asked = []
        for _ in range(client.chance.randrange(2, 12)):
            request = random_text(client)
            asked.append((request, client.token, client.wanted_size))
        conversation.send(b"".join(request for request, _, _ in asked))
        for index, (_, token, size) in enumerate(asked):
            response = conversation.read_response()
            check(response, token, 200, text_of(token, size))
            client.counts["answered right"] += 1
            if response.closes:
                # It retires: what comes after was not begun, and is for the client to send again.
                client.counts["sent"] -= len(asked) - index - 1
                return conversation.read_end()


def slow_writer(client: Client) -> None:
    """Byte by byte, but done before head-timeout."""
    with client.connect() as conversation:
        request = client.ask("text")
        step = client.chance.randrange(1, 20)
        for start in range(0, len(request), step):
            conversation.send(request[start : start + step])
            time.sleep(0.01)
        check_text(client, conversation.read_response())


def slowloris(client: Client) -> None:
    """Never done: the server answers 408, or closes, when head-timeout is over."""
    with client.connect() as conversation:
        request = client.ask("text")[:-2]
        for start in range(len(request)):
            conversation.send(request[start : start + 1])
            time.sleep(client.chance.random() * 0.02)
        check_closed(client, conversation.read_response(), 408)


def silent(client: Client) -> None:
    """Connects and says nothing, or nothing any more."""
    with client.connect() as conversation:
        client.counts["sent"] += 1
        if client.chance.random() < 0.5:
            conversation.half_close()
            conversation.read_end()
        else:
            time.sleep(client.chance.random())
        client.counts["answered right"] += 1


def half_closed(client: Client) -> None:
    """Is done with sending, and wants its answer all the same."""
    with client.connect() as conversation:
        conversation.send(random_text(client))
        conversation.half_close()
        check_text(client, conversation.read_response())
        conversation.read_end()


def slow_reader(client: Client) -> None:
    with client.connect(SMALL_BUFFER_BYTES) as conversation:
        client.counts["sent"] += 1
        size = 1_000_000
        page = client.chance.choice(("text", "stream", "sized_stream"))
        target, token = client.target(page, size=size, pieces=20)
        conversation.send(f"GET {target} HTTP/1.0\r\nHost: soak\r\n\r\n".encode())
        time.sleep(client.chance.random())
        response = conversation.read_response()
        check(response, token, 200, text_of(token, size))
        client.counts["answered right"] += 1


def stalled_reader(client: Client) -> None:
    """Takes nothing for longer than write-timeout: the server gives up."""
    with client.connect(SMALL_BUFFER_BYTES) as conversation:
        client.counts["sent"] += 1
        page = client.chance.choice(("text", "sized_stream"))
        target, token = client.target(page, size=LARGE_BYTES, pieces=200)
        conversation.send(f"GET {target} HTTP/1.1\r\nHost: soak\r\n\r\n".encode())
        time.sleep(client.chance.uniform(7, 9))
        try:
            response = conversation.read_response()
        except Stuck:
            raise
        except Missing:
            # Reset.
            client.counts["answered right"] += 1
            return
        if response.is_whole:
            raise Wrong("the whole response, though nothing was taken of it for long")
        if response.body != text_of(token, LARGE_BYTES)[: len(response.body)]:
            raise Wrong("other bytes than asked for")
        client.counts["answered right"] += 1


def aborted_download(client: Client) -> None:
    with client.connect(SMALL_BUFFER_BYTES) as conversation:
        client.counts["sent"] += 1
        page = client.chance.choice(("text", "stream", "sized_stream"))
        target, token = client.target(page, size=1_000_000, pieces=100)
        conversation.send(f"GET {target} HTTP/1.1\r\nHost: soak\r\n\r\n".encode())
        if client.chance.random() < 0.7:
            beginning = conversation.read(client.chance.randrange(1, 10_000))
            if not beginning.startswith(b"HTTP/1.1 200 "[: len(beginning)]):
                raise Wrong(f"{beginning[:100]!r} is no answer to {token}")
        if client.chance.random() < 0.5:
            conversation.reset()
        client.counts["answered right"] += 1


def aborted_upload(client: Client) -> None:
    with client.connect() as conversation:
        client.counts["sent"] += 1
        length = client.chance.choice((1_000, 1_000_000))
        target, _ = client.target("upload", how="whole")
        request = f"POST {target} HTTP/1.1\r\nHost: soak\r\nContent-Length: {length}\r\n\r\n"
        conversation.send(request.encode() + bytes(client.chance.randrange(length)))
        how = client.chance.randrange(3)
        if how == 0:
            conversation.reset()
        elif how == 1:
            conversation.half_close()
            response = conversation.read_response()
            if response.status != 400:
                raise Wrong(f"status {response.status} instead of 400")
        client.counts["answered right"] += 1


def upload_body(client: Client) -> tuple[bytes, str, str, bytes]:
    """Body, reading, target, and the answer."""
    size = client.chance.choice((0, 1, 1_000, 60_000, 66_000, 300_000))
    how = client.chance.choice(("whole", "pieces", "lines"))
    target, token = client.target("upload", how=how)
    body = text_of(token, size)
    client.counts["sent"] += 1
    client.token = token
    return body, how, target, f"{token} {size} {zlib.crc32(body)}".encode()


def sized_upload(client: Client) -> None:
    with client.connect() as conversation:
        for _ in range(client.chance.randrange(1, 4)):
            body, _, target, answer = upload_body(client)
            head = f"POST {target} HTTP/1.1\r\nHost: soak\r\nContent-Length: {len(body)}\r\n\r\n"
            conversation.send(head.encode() + body)
            response = conversation.read_response()
            check(response, client.token, 200, answer)
            client.counts["answered right"] += 1
            if response.closes:
                return


def chunked_upload(client: Client) -> None:
    with client.connect() as conversation:
        body, _, target, answer = upload_body(client)
        head = f"POST {target} HTTP/1.1\r\nHost: soak\r\nTransfer-Encoding: chunked\r\n\r\n"
        conversation.send(head.encode())
        while body:
            size = client.chance.randrange(1, 50_000)
            piece, body = body[:size], body[size:]
            conversation.send(b"%x;of=it\r\n%b\r\n" % (len(piece), piece))
        conversation.send(b"0\r\nX-Trailer: after\r\n\r\n")
        check(conversation.read_response(), client.token, 200, answer)
        client.counts["answered right"] += 1


def awaited_upload(client: Client) -> None:
    """Waits for `100 Continue`."""
    with client.connect() as conversation:
        body, _, target, answer = upload_body(client)
        body, answer = (body, answer) if body else (b"", answer)
        head = f"POST {target} HTTP/1.1\r\nHost: soak\r\nContent-Length: {len(body)}\r\n"
        conversation.send(head.encode() + b"Expect: 100-continue\r\n\r\n")
        if body:
            conversation.read_interim()
            conversation.send(body)
        check(conversation.read_response(), client.token, 200, answer)
        client.counts["answered right"] += 1


def unread_upload(client: Client) -> None:
    with client.connect() as conversation:
        client.counts["sent"] += 1
        size = client.chance.choice((1_000, 60_000, 300_000))
        target, token = client.target("upload", how="none")
        head = f"POST {target} HTTP/1.1\r\nHost: soak\r\nContent-Length: {size}\r\n\r\n"
        conversation.send(head.encode() + text_of(token, size))
        check(conversation.read_response(), token, 200, f"{token} 0 0".encode())
        client.counts["answered right"] += 1


def download(client: Client) -> None:
    """A file, by sendfile. 503: hoarders have all descriptors."""
    with client.connect() as conversation:
        target, token = client.target("file")
        client.counts["sent"] += 1
        conversation.send(f"GET {target} HTTP/1.1\r\nHost: soak\r\n\r\n".encode())
        response = conversation.read_response()
        if (response.status, response.body) == (503, b"Too many open files"):
            client.counts["allowed to fail"] += 1
            return
        check(response, token, 200, text_of(FILE_TOKEN, FILE_BYTES))
        client.counts["answered right"] += 1


GET = b"GET /text HTTP/1.1\r\nHost: soak\r\n"
POST = b"POST /upload HTTP/1.1\r\nHost: soak\r\n"
MALFORMED: tuple[tuple[bytes, int], ...] = (
    (GET + b"no colon\r\n\r\n", 400),
    (GET + b"X : y\r\n\r\n", 400),
    (GET + b"X: a\0b\r\n\r\n", 400),
    (b"GET /text HTTP/1.1\r\n\r\n", 400),
    (b"GET /text HTTP/3.0\r\nHost: soak\r\n\r\n", 505),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    (POST + b"Content-Length: -1\r\n\r\n", 400),
    (POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\nabc\r\n0\r\n\r\n", 400),
    (GET + b"X: " + b"y" * 100_000 + b"\r\n\r\n", 431),
    (GET + b"X: y\r\n" * 500 + b"\r\n", 431),
    (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: soak\r\n\r\n", 414),
)


def malformed(client: Client) -> None:
    with client.connect() as conversation:
        if client.chance.random() < 0.5:
            conversation.send(random_text(client))
            response = conversation.read_response()
            check_text(client, response)
            if response.closes:
                return
        request, status = client.chance.choice(MALFORMED)
        client.counts["sent"] += 1
        conversation.send(request + GET + b"\r\n")
        check_closed(client, conversation.read_response(), status)


def failing(client: Client) -> None:
    """The application raises, at every place where it can."""
    with client.connect() as conversation:
        when = client.chance.choice(("before", "start", "exc_info", "after", "mid", "close"))
        target, token = client.target("fail", when=when)
        client.counts["sent"] += 1
        conversation.send(f"GET {target} HTTP/1.1\r\nHost: soak\r\n\r\n".encode())
        response = conversation.read_response()
        whole = text_of(token, 100_000)
        if when == "close":
            check(response, token, 200, whole)
        elif when == "mid":
            if response.status != 200 or response.is_whole:
                raise Wrong(f"status {response.status}, and it looks complete")
            if response.body != whole[: len(response.body)]:
                raise Wrong("other bytes than those before the exception")
        elif response.status != 500 or not response.is_whole:
            raise Wrong(f"status {response.status} instead of 500 ({when})")
        client.counts["answered right"] += 1


def garbage(client: Client) -> None:
    with client.connect() as conversation:
        what = client.chance.choice(("none", "number", "text", "texts"))
        target, _ = client.target("garbage", what=what)
        client.counts["sent"] += 1
        conversation.send(f"GET {target} HTTP/1.1\r\nHost: soak\r\n\r\n".encode())
        response = conversation.read_response()
        if response.status != 500 or not response.is_whole:
            raise Wrong(f"status {response.status} instead of 500 ({what})")
        client.counts["answered right"] += 1


def too_short(client: Client) -> None:
    """Content-Length promises more: closed at once."""
    with client.connect() as conversation:
        target, _ = client.target("short")
        client.counts["sent"] += 1
        conversation.send(f"GET {target} HTTP/1.1\r\nHost: soak\r\n\r\n".encode())
        response = conversation.read_response()
        if (response.body, response.is_whole) != (SHORT_BODY, False):
            raise Wrong(f"{response.body!r} of a page that is too short")
        client.counts["answered right"] += 1


def heavy(client: Client) -> None:
    with client.connect() as conversation:
        page = client.chance.choice(("sleep", "compute"))
        conversation.send(client.ask(page, CLOSE, seconds=client.chance.random() * 0.1))
        check_text(client, conversation.read_response())


def forking(client: Client) -> None:
    with client.connect() as conversation:
        conversation.send(client.ask("fork"))
        check_text(client, conversation.read_response())


def overlong(client: Client) -> None:
    """Beyond request-timeout: the page is interrupted, and the answer says so."""
    with client.connect() as conversation:
        conversation.send(client.ask("overlong"))
        response = conversation.read_response()
        if response.status != 504:
            raise Wrong(f"status {response.status} instead of 504")
        client.counts["answered right"] += 1


# How often each is chosen, beside the others.
VISITS: dict[Visit, float] = {
    keep_alive: 10,
    one_request: 20,
    old_client: 4,
    head: 4,
    pipelined: 6,
    slow_writer: 4,
    slowloris: 1,
    silent: 4,
    half_closed: 6,
    slow_reader: 3,
    stalled_reader: 0.4,
    aborted_download: 4,
    aborted_upload: 4,
    sized_upload: 6,
    chunked_upload: 6,
    awaited_upload: 4,
    unread_upload: 3,
    download: 6,
    malformed: 6,
    failing: 6,
    garbage: 2,
    too_short: 2,
    heavy: 6,
    forking: 0.5,
    overlong: 0.1,
}
