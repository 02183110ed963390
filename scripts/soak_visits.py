"""Visits of clients that do as they should, if slowly, and want a page that does too: each is one
connection from its beginning to its end. See `soak_client` for what they raise.
"""

from __future__ import annotations

import time
import zlib

from soak_client import CLOSE, SMALL_BUFFER_BYTES, Client, check, check_text, random_text
from soak_conversation import Exhausted, Wrong
from soak_site import FILE_BYTES, FILE_TOKEN, text_of


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
        client.note_right_answer()


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
            client.note_right_answer()
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


def half_closed(client: Client) -> None:
    """Is done with sending, and wants its answer all the same."""
    with client.connect(half_closes=True) as conversation:
        conversation.send(random_text(client))
        conversation.half_close()
        check_text(client, conversation.read_response())
        conversation.read_end()


def slow_reader(client: Client) -> None:
    with client.connect(SMALL_BUFFER_BYTES) as conversation:
        size = 1_000_000
        page = client.chance.choice(("text", "stream", "sized_stream"))
        target, token = client.target(page, size=size, pieces=20)
        conversation.send(f"GET {target} HTTP/1.0\r\nHost: soak\r\n\r\n".encode())
        time.sleep(client.chance.random())
        response = conversation.read_response()
        check(response, token, 200, text_of(token, size))
        client.note_right_answer()


def upload_body(client: Client) -> tuple[bytes, str, bytes]:
    """Body, target, and the answer."""
    size = client.chance.choice((0, 1, 1_000, 60_000, 66_000, 300_000))
    how = client.chance.choice(("whole", "pieces", "lines"))
    target, token = client.target("upload", how=how)
    body = text_of(token, size)
    client.token = token
    return body, target, f"{token} {size} {zlib.crc32(body)}".encode()


def sized_upload(client: Client) -> None:
    with client.connect() as conversation:
        for _ in range(client.chance.randrange(1, 4)):
            body, target, answer = upload_body(client)
            head = f"POST {target} HTTP/1.1\r\nHost: soak\r\nContent-Length: {len(body)}\r\n\r\n"
            conversation.send(head.encode() + body)
            response = conversation.read_response()
            check(response, client.token, 200, answer)
            client.note_right_answer()
            if response.closes:
                return


def chunked_upload(client: Client) -> None:
    with client.connect() as conversation:
        body, target, answer = upload_body(client)
        head = f"POST {target} HTTP/1.1\r\nHost: soak\r\nTransfer-Encoding: chunked\r\n\r\n"
        conversation.send(head.encode())
        while body:
            size = client.chance.randrange(1, 50_000)
            piece, body = body[:size], body[size:]
            conversation.send(b"%x;of=it\r\n%b\r\n" % (len(piece), piece))
        conversation.send(b"0\r\nX-Trailer: after\r\n\r\n")
        check(conversation.read_response(), client.token, 200, answer)
        client.note_right_answer()


def awaited_upload(client: Client) -> None:
    """Waits for `100 Continue`."""
    with client.connect() as conversation:
        body, target, answer = upload_body(client)
        head = f"POST {target} HTTP/1.1\r\nHost: soak\r\nContent-Length: {len(body)}\r\n"
        conversation.send(head.encode() + b"Expect: 100-continue\r\n\r\n")
        if body:
            conversation.read_interim()
            conversation.send(body)
        check(conversation.read_response(), client.token, 200, answer)
        client.note_right_answer()


def unread_upload(client: Client) -> None:
    with client.connect() as conversation:
        size = client.chance.choice((1_000, 60_000, 300_000))
        target, token = client.target("upload", how="none")
        head = f"POST {target} HTTP/1.1\r\nHost: soak\r\nContent-Length: {size}\r\n\r\n"
        conversation.send(head.encode() + text_of(token, size))
        check(conversation.read_response(), token, 200, f"{token} 0 0".encode())
        client.note_right_answer()


def download(client: Client) -> None:
    """A file, by sendfile."""
    with client.connect() as conversation:
        target, token = client.target("file")
        conversation.send(f"GET {target} HTTP/1.1\r\nHost: soak\r\n\r\n".encode())
        response = conversation.read_response()
        if (response.status, response.body) == (503, b"Too many open files"):
            raise Exhausted("no descriptors left")
        check(response, token, 200, text_of(FILE_TOKEN, FILE_BYTES))
        client.note_right_answer()


def heavy(client: Client) -> None:
    with client.connect() as conversation:
        page = client.chance.choice(("sleep", "compute"))
        conversation.send(client.ask(page, CLOSE, seconds=client.chance.random() * 0.1))
        check_text(client, conversation.read_response())
