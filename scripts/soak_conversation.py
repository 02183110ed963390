"""One connection of a client of scripts/soak_server.py: sends the bytes it is given, and reads
responses to the byte, as RFC 9112 defines them.

Reads no more than a response, so that pipelined ones can be told apart. Knows nothing of what is
asked for. Used by one thread; `Open` and `Address` are shared.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from typing import NamedTuple

# No answer takes as long, on however busy a machine.
PATIENCE_S = 30.0


class Missing(Exception):
    """An answer did not come, or not all of it."""


class Stuck(Missing):
    """Nothing came, and the connection is open."""


class Exhausted(Exception):
    """The page says that its process has no descriptors left."""


class Wrong(Exception):
    """An answer came that is not the right one."""


class Response(NamedTuple):
    status: int
    fields: dict[str, str]  # names in lower case
    body: bytes
    # False: the connection ended before the body did.
    is_whole: bool = True

    @property
    def ends_with_connection(self) -> bool:
        """As with HTTP/1.0, where nothing else says whether the body is whole."""
        return not {"content-length", "transfer-encoding"} & self.fields.keys()

    @property
    def closes(self) -> bool:
        return self.fields.get("connection", "").lower() == "close"


class Address(NamedTuple):
    """Where a server listens: a host and port, or the path of a UNIX socket."""

    place: tuple[str, int] | str
    tls: ssl.SSLContext | None = None

    @property
    def kind(self) -> str:
        return "UNIX" if isinstance(self.place, str) else "TLS" if self.tls else "TCP"


class Open:
    """The ports of all clients' connections that are open; UNIX sockets have none."""

    def __init__(self) -> None:
        self._ports: set[int] = set()
        self._lock = threading.Lock()

    def add(self, port: int) -> None:
        with self._lock:
            self._ports.add(port)

    def remove(self, port: int) -> None:
        with self._lock:
            self._ports.discard(port)

    def ports(self) -> set[int]:
        with self._lock:
            return set(self._ports)


class Conversation:
    # Where connections are to be found that were begun and not ended.
    open = Open()

    def __init__(self, address: Address, receive_buffer: int = 0) -> None:
        self.began_s = time.monotonic()
        self.kind = address.kind
        # The process that answers here, once it has.
        self.pid: int | None = None
        # 0: a UNIX socket, of which nobody can see whose it is.
        self.port = 0
        place = address.place
        self.socket = socket.socket(socket.AF_UNIX if isinstance(place, str) else socket.AF_INET)
        try:
            self.socket.settimeout(PATIENCE_S)
            if receive_buffer:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            if not isinstance(place, str):
                self.socket.bind((place[0], 0))
                self.port = self.socket.getsockname()[1]
                self.open.add(self.port)
            self.socket.connect(place)
            if address.tls is not None:
                # Hands are shaken when something is sent: a process may be killed in between.
                self.socket = address.tls.wrap_socket(
                    self.socket, server_hostname="localhost", do_handshake_on_connect=False
                )
        except OSError:
            self.socket.close()
            self.open.remove(self.port)
            raise
        self._received = self.socket.makefile("rb")

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self._received.close()
        self.socket.close()
        self.open.remove(self.port)

    def send(self, request: bytes) -> None:
        """Sends a request. A failure is ignored, because the response may have come already."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, ssl.SSLError):
            self.socket.sendall(request)

    def half_close(self) -> None:
        """Not with TLS: Python's ssl reads no more once it has said its end."""
        assert not isinstance(self.socket, ssl.SSLSocket)
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Ends without a goodbye, when it is closed."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def read(self, size: int) -> bytes:
        """The next `size` bytes; fewer at the end of the stream."""
        try:
            return self._received.read(size)
        except TimeoutError:
            raise Stuck(f"nothing came for {PATIENCE_S:g} s") from None
        except OSError as error:
            raise Missing(f"{type(error).__name__} while reading") from None

    def wait_for_answer(self) -> None:
        """Until the first bytes have come."""
        try:
            self._received.peek(1)
        except TimeoutError:
            raise Stuck(f"no answer for {PATIENCE_S:g} s") from None
        except OSError as error:
            raise Missing(f"{type(error).__name__} while reading") from None

    def read_end(self) -> None:
        """The server is to say no more."""
        with contextlib.suppress(ConnectionResetError, ssl.SSLError):
            try:
                more = self._received.read(200)
            except TimeoutError:
                raise Stuck(f"it is open {PATIENCE_S:g} s after it should be closed") from None
            if more:
                raise Wrong(f"{more!r} came where nothing should")

    def read_response(self, has_body: bool = True) -> Response:
        """The next response; `has_body` is false for the one to HEAD."""
        status = self._read_status()
        while status == 100:
            self._read_fields()
            status = self._read_status()
        fields = self._read_fields()
        if (pid := fields.get("x-pid", "")).isdigit():
            self.pid = int(pid)
        if not has_body or status in (204, 304):
            return Response(status, fields, b"")
        if fields.get("transfer-encoding") == "chunked":
            return Response(status, fields, *self._read_chunks())
        if "content-length" in fields:
            length = int(fields["content-length"])
            body = self.read(length)
            return Response(status, fields, body, len(body) == length)
        return Response(status, fields, self.read(-1))

    def read_interim(self) -> None:
        """`100 Continue`, and nothing else."""
        if (status := self._read_status()) != 100:
            raise Wrong(f"status {status} instead of 100")
        self._read_fields()

    def _read_line(self) -> bytes:
        try:
            line = self._received.readline(65_537)
        except TimeoutError:
            raise Stuck(f"no answer for {PATIENCE_S:g} s") from None
        except OSError as error:
            raise Missing(type(error).__name__) from None
        if not line.endswith(b"\r\n"):
            raise Missing(f"closed after {line!r}" if line else "closed")
        return line[:-2]

    def _read_status(self) -> int:
        line = self._read_line()
        version, _, rest = line.partition(b" ")
        if version != b"HTTP/1.1" or not rest[:3].isdigit():
            raise Wrong(f"{line[:100]!r} is no status line")
        return int(rest[:3])

    def _read_fields(self) -> dict[str, str]:
        fields: dict[str, str] = {}
        while line := self._read_line():
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon or name.lower() in fields:
                raise Wrong(f"{line[:100]!r} is no field, or comes twice")
            fields[name.lower()] = value.strip()
        return fields

    def _read_chunks(self) -> tuple[bytes, bool]:
        chunks: list[bytes] = []
        try:
            while size := self._read_size():
                chunks.append(self.read(size))
                if len(chunks[-1]) < size:
                    return b"".join(chunks), False
                if self._read_line():
                    raise Wrong("no line end after a chunk")
            if self._read_line():
                raise Wrong("trailers that nobody sent")
        except Stuck:
            raise
        except Missing:
            return b"".join(chunks), False
        return b"".join(chunks), True

    def _read_size(self) -> int:
        line = self._read_line()
        try:
            return int(line, 16)
        except ValueError:
            raise Wrong(f"{line[:100]!r} is no chunk's size") from None
