"""Visits of clients that do what they should not, and of those whose page does. What the server
has to do then is checked as every other answer is. See `soak_client` for what they raise.
"""

from __future__ import annotations

import time

from soak_client import SMALL_BUFFER_BYTES, Client, check, check_closed, check_text, random_text
from soak_conversation import Missing, Stuck, Wrong
from soak_site import SHORT_BODY, text_of

# Beyond what the kernel keeps for both ends of a connection.
LARGE_BYTES = 16_000_000

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
    with client.connect(half_closes=True) as conversation:
        client.counts["sent"] += 1
        if client.chance.random() < 0.5:
            conversation.half_close()
            conversation.read_end()
        else:
            time.sleep(client.chance.random())
        client.note_right_answer()


def stalled_reader(client: Client) -> None:
    """Takes next to nothing for longer than write-timeout: the server gives up."""
    with client.connect(SMALL_BUFFER_BYTES) as conversation:
        page = client.chance.choice(("text", "sized_stream"))
        target, token = client.target(page, size=LARGE_BYTES, pieces=200)
        conversation.send(f"GET {target} HTTP/1.1\r\nHost: soak\r\n\r\n".encode())
        try:
            # On a busy machine the request is in the queue first.
            conversation.wait_for_answer()
            # The server looks each write-timeout whether the kernels have moved a byte, so it gives
            # up within 8 s, and later if a stream waits for the GIL before it fills them.
            time.sleep(client.chance.uniform(15, 20))
            response = conversation.read_response()
        except Stuck:
            raise
        except Missing:
            # Reset.
            client.note_right_answer()
            return
        if response.is_whole:
            answer = f"the whole answer to {page}, {response.status}, {len(response.body)} bytes"
            raise Wrong(f"{answer}, though nothing was taken of it for long")
        if response.body != text_of(token, LARGE_BYTES)[: len(response.body)]:
            raise Wrong("other bytes than asked for")
        client.note_right_answer()


def aborted_download(client: Client) -> None:
    with client.connect(SMALL_BUFFER_BYTES) as conversation:
        page = client.chance.choice(("text", "stream", "sized_stream"))
        target, token = client.target(page, size=1_000_000, pieces=100)
        conversation.send(f"GET {target} HTTP/1.1\r\nHost: soak\r\n\r\n".encode())
        if client.chance.random() < 0.7:
            beginning = conversation.read(client.chance.randrange(1, 10_000))
            if not beginning.startswith(b"HTTP/1.1 200 "[: len(beginning)]):
                raise Wrong(f"{beginning[:100]!r} is no answer to {token}")
        if client.chance.random() < 0.5:
            conversation.reset()
        client.note_right_answer()


def aborted_upload(client: Client) -> None:
    with client.connect(half_closes=True) as conversation:
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
        client.note_right_answer()


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
        client.note_right_answer()


def garbage(client: Client) -> None:
    with client.connect() as conversation:
        what = client.chance.choice(("none", "number", "text", "texts"))
        target, _ = client.target("garbage", what=what)
        conversation.send(f"GET {target} HTTP/1.1\r\nHost: soak\r\n\r\n".encode())
        response = conversation.read_response()
        if response.status != 500 or not response.is_whole:
            raise Wrong(f"status {response.status} instead of 500 ({what})")
        client.note_right_answer()


def too_short(client: Client) -> None:
    """Content-Length promises more: closed at once."""
    with client.connect() as conversation:
        target, _ = client.target("short")
        conversation.send(f"GET {target} HTTP/1.1\r\nHost: soak\r\n\r\n".encode())
        response = conversation.read_response()
        if (response.body, response.is_whole) != (SHORT_BODY, False):
            raise Wrong(f"{response.body!r} of a page that is too short")
        client.note_right_answer()


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
        client.note_right_answer()
