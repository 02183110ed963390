"""A client of scripts/soak_server.py, what it asks for, and how it checks an answer.

Raises `Missing` or `Wrong`; whether that is allowed, since the process that had the connection was
killed, is for others to say. Knows nothing of processes. Each is used by one thread.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from urllib.parse import urlencode

from soak_conversation import Address, Conversation, Missing, Response, Wrong
from soak_site import text_of

SMALL_BUFFER_BYTES = 16_384


class Client:
    """The state of a visiting thread: its random numbers, the addresses, and its counts."""

    _numbers = count(1)

    def __init__(self, addresses: Sequence[Address], seed: float) -> None:
        self.addresses = addresses
        self.chance = random.Random(seed)
        self.counts: Counter[str] = Counter()
        # Connections by the kind of address.
        self.connected: Counter[str] = Counter()
        # Of the last request that `ask` made.
        self.token = ""
        self.wanted_size = 0
        # The conversation of the visit; it knows which failures were allowed.
        self.conversation: Conversation | None = None

    def connect(self, receive_buffer: int = 0, half_closes: bool = False) -> Conversation:
        """To any of the addresses that allow it."""
        address = self.chance.choice(
            [each for each in self.addresses if not (half_closes and each.tls)]
        )
        self.connected[address.kind] += 1
        try:
            self.conversation = Conversation(address, receive_buffer)
        except OSError as error:
            raise Missing(f"cannot connect: {error} ({address.kind})") from None
        return self.conversation

    def target(self, page: str, **query: object) -> tuple[str, str]:
        """A page, with a token that no other request has; counted as sent."""
        self.counts["sent"] += 1
        token = f"t{next(self._numbers)}"
        return f"/{page}?{urlencode({'token': token, **query})}", token

    def note_right_answer(self) -> None:
        self.counts["answered right"] += 1

    def size(self) -> int:
        """Mostly small."""
        return int(10 ** self.chance.uniform(0, 5))

    def ask(self, page: str, more: str = "", method: str = "GET", **query: object) -> bytes:
        """The bytes of a request for what `check_text` checks."""
        self.wanted_size = self.size()
        target, self.token = self.target(page, size=self.wanted_size, **query)
        return f"{method} {target} HTTP/1.1\r\nHost: soak\r\n{more}\r\n".encode()


Visit = Callable[[Client], None]
CLOSE = "Connection: close\r\n"


def check(response: Response, token: str, status: int, body: bytes) -> None:
    if response.status != status:
        raise Wrong(f"status {response.status} instead of {status}: {response.body[:100]!r}")
    if response.fields.get("x-token", token) != token:
        raise Wrong(f"the answer to {response.fields['x-token']} came to {token}")
    is_beginning = len(response.body) < len(body) and body.startswith(response.body)
    if not response.is_whole or (response.ends_with_connection and is_beginning):
        raise Missing(f"{len(response.body)} bytes of {len(body)}, then the end")
    if response.body != body:
        raise Wrong(f"{len(response.body)} bytes {response.body[:40]!r} instead of {len(body)}")


def check_text(client: Client, response: Response) -> None:
    check(response, client.token, 200, text_of(client.token, client.wanted_size))
    client.note_right_answer()


def check_closed(client: Client, response: Response, status: int) -> None:
    """The server refused, and closes."""
    if response.status != status:
        raise Wrong(f"status {response.status} instead of {status}")
    assert client.conversation
    client.conversation.read_end()
    client.note_right_answer()


def random_text(client: Client, more: str = "") -> bytes:
    """A request for a page that answers with text, one way or the other."""
    page = client.chance.choice(("text", "stream", "sized_stream", "write"))
    return client.ask(page, more, pieces=client.chance.randrange(1, 9))
