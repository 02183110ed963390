"""Datagrams from host to host: over TCP, from a recorder that forwards to one that listens.

    listener:  "headway-relay 1 NONCE\\n"
    forwarder: "HOST PROOF\\n"                  PROOF: HMAC-SHA256 of NONCE and HOST under the token
    listener:  "ok\\n", or it closes
    forwarder: length u32, little-endian, and so many bytes; a length of 0 says "still here"

The token itself never travels, and is compared in constant time. What follows is as private as the
connection: TLS is up to both ends' options. Each peer of a listener has a thread; how many there
are, how much each sends at once and how long it may say nothing is bounded.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from headway.address import Address
from headway.errors import CommandError, reason_of
from headway.server.binding import bind

GREETING = "headway-relay 1"
MAX_LINE_BYTES = 512
MAX_DATAGRAM_BYTES = 65_536
LENGTH = struct.Struct("<I")
MAX_PEERS = 64
# For TLS, the greeting and the proof.
HANDSHAKE_TIMEOUT_S = 10.0
SWEEP_INTERVAL_S = 1.0
KEEP_ALIVE_S = 15.0
SILENCE_TIMEOUT_S = 60.0
SEND_TIMEOUT_S = 30.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
MAX_QUEUE_BYTES = 32 * 1024 * 1024
MIN_TOKEN_LENGTH = 16


def read_token(path: str) -> str:
    """Raises `CommandError` with exit code 2."""
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(10_000).strip()
    except UnicodeDecodeError:
        token = ""
    except OSError as error:
        raise CommandError(f"--token-file {path}: {reason_of(error)}", exit_code=2) from None
    if len(token) < MIN_TOKEN_LENGTH or not token.isprintable() or " " in token:
        raise CommandError(
            f"--token-file {path}: it must have one word of {MIN_TOKEN_LENGTH} ASCII characters "
            "or more",
            exit_code=2,
        )
    return token


def proof_of(token: str, nonce: str, host: str) -> str:
    return hmac.new(token.encode(), f"{nonce} {host}".encode(), "sha256").hexdigest()


class Refused(Exception):
    """The other end does not speak as it should, or has another token."""


class Forwarder:
    """Sends datagrams on; `add` never waits, and what finds no room is lost, the oldest first."""

    def __init__(
        self,
        address: Address,
        token: str,
        host: str,
        tls: ssl.SSLContext | None = None,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._address = address
        self._token = token
        self._host = host
        self._tls = tls
        self._tell = tell
        self._changed = threading.Condition()
        self._queue: deque[bytes] = deque()
        self._bytes = 0
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name="headway-forwarder", daemon=True)
        self.sent = 0
        self.lost = 0
        self.error = "not connected yet"

    def start(self) -> None:
        self._thread.start()

    def add(self, datagram: bytes) -> None:
        with self._changed:
            self._queue.append(datagram)
            self._bytes += len(datagram)
            while self._bytes > MAX_QUEUE_BYTES:
                self._bytes -= len(self._queue.popleft())
                self.lost += 1
            self._changed.notify()

    def stop(self, timeout_s: float = 2.0) -> None:
        """What waits may go out for so long."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def health(self) -> dict[str, Any]:
        with self._changed:
            return {
                "to": str(self._address),
                "sent": self.sent,
                "lost": self.lost,
                "waiting": len(self._queue),
                "error": self.error,
            }

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._is_ending:
            try:
                with contextlib.closing(self._connect()) as connection:
                    self._say("")
                    pause_s = FIRST_PAUSE_S
                    self._send(connection)
            except (OSError, Refused) as error:
                self._say(str(error) if isinstance(error, Refused) else reason_of(error))
            with self._changed:
                self._changed.wait_for(lambda: self._is_ending, pause_s)
            # Many that lost the same listener do not all come back at once.
            pause_s = min(LONGEST_PAUSE_S, pause_s * (1.5 + secrets.randbelow(1000) / 1000))

    def _say(self, error: str) -> None:
        if error != self.error:
            what = f"cannot forward to {self._address}: {error}" if error else "forwards again"
            if error or self.error != "not connected yet":
                self._tell(what)
            self.error = error

    def _connect(self) -> socket.socket:
        address = (self._address.host, self._address.port)
        connection = socket.create_connection(address, HANDSHAKE_TIMEOUT_S)
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_hostname=self._address.host)
            greeting, _, nonce = read_line(connection).rpartition(" ")
            if greeting != GREETING or not nonce:
                raise Refused("what answers there is no headway telemetry --listen-tcp")
            proof = proof_of(self._token, nonce, self._host)
            connection.sendall(f"{self._host} {proof}\n".encode())
            try:
                answer = read_line(connection)
            except Refused:
                answer = ""
            if answer != "ok":
                raise Refused("it does not accept the token")
            connection.settimeout(SEND_TIMEOUT_S)
        except BaseException:
            connection.close()
            raise
        return connection

    def _send(self, connection: socket.socket) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._is_ending, KEEP_ALIVE_S)
                batch = [self._queue.popleft() for _ in range(min(64, len(self._queue)))]
                self._bytes -= sum(map(len, batch))
            if not batch and self._is_ending:
                return
            frames = b"".join(LENGTH.pack(len(each)) + each for each in batch)
            try:
                connection.sendall(frames or LENGTH.pack(0))
            except OSError:
                # Some of them may have arrived. Twice would be wrong; lost is counted.
                self.lost += len(batch)
                raise
            self.sent += len(batch)


class Peer(NamedTuple):
    """Who is connected, without a host until it is admitted."""

    host: str
    since: float


class Listener:
    """Accepts peers and hands on what they send, with the peer's host."""

    def __init__(
        self,
        address: Address,
        token: str,
        receive: Callable[[bytes, str], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Raises `CommandError` with exit code 2 where it cannot listen."""
        self._socket, self.address = bind(address, option="--listen-tcp")
        self._socket.settimeout(SWEEP_INTERVAL_S)
        self._token = token
        self._receive = receive
        self._tls = tls
        self._lock = threading.Lock()
        self._peers: dict[socket.socket, Peer] = {}
        self._is_ending = False
        self._thread = threading.Thread(target=self._accept, name="headway-relay", daemon=True)
        self.refused = 0
        self.received = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_ending = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()
        with self._lock:
            peers = list(self._peers)
        for peer in peers:
            cut(peer)

    def health(self) -> dict[str, Any]:
        with self._lock:
            return {
                "at": str(self.address),
                "peers": sorted(peer.host for peer in self._peers.values() if peer.host),
                "received": self.received,
                "refused": self.refused,
            }

    def _accept(self) -> None:
        while not self._is_ending:
            self._sweep()
            try:
                peer, _ = self._socket.accept()
            except TimeoutError:
                continue
            except OSError:
                if not self._is_ending:
                    # No descriptors left, say: later there may be.
                    time.sleep(0.1)
                continue
            with self._lock:
                has_room = len(self._peers) < MAX_PEERS
                if has_room:
                    self._peers[peer] = Peer("", time.monotonic())
                else:
                    self.refused += 1
            if has_room:
                threading.Thread(
                    target=self._serve, args=(peer,), name="headway-peer", daemon=True
                ).start()
            else:
                peer.close()

    def _sweep(self) -> None:
        """Cuts off who has not been admitted in time, however often it sends a byte."""
        oldest = time.monotonic() - HANDSHAKE_TIMEOUT_S
        with self._lock:
            late = [peer for peer, of in self._peers.items() if not of.host and of.since < oldest]
        for peer in late:
            cut(peer)

    def _serve(self, peer: socket.socket) -> None:
        connection = peer
        try:
            peer.settimeout(HANDSHAKE_TIMEOUT_S)
            if self._tls is not None:
                connection = self._tls.wrap_socket(peer, server_side=True)
            host = self._admit(connection)
            with self._lock:
                self._peers[peer] = Peer(host, time.monotonic())
            connection.settimeout(SILENCE_TIMEOUT_S)
            self._take(connection, host)
        except Refused:
            with self._lock:
                self.refused += 1
        except OSError:
            pass
        finally:
            with self._lock:
                del self._peers[peer]
            connection.close()

    def _admit(self, connection: socket.socket) -> str:
        nonce = secrets.token_hex(16)
        connection.sendall(f"{GREETING} {nonce}\n".encode())
        host, _, proof = read_line(connection).rpartition(" ")
        if not hmac.compare_digest(proof.encode(), proof_of(self._token, nonce, host).encode()):
            raise Refused("another token")
        if not host or len(host) > 255 or not host.isprintable():
            raise Refused("no name")
        connection.sendall(b"ok\n")
        return host

    def _take(self, connection: socket.socket, host: str) -> None:
        buffer = bytearray()
        while True:
            while len(buffer) >= LENGTH.size:
                (length,) = LENGTH.unpack_from(buffer)
                if length > MAX_DATAGRAM_BYTES:
                    raise Refused("a length that no datagram has")
                if len(buffer) < LENGTH.size + length:
                    break
                datagram = bytes(buffer[LENGTH.size : LENGTH.size + length])
                del buffer[: LENGTH.size + length]
                if datagram:
                    with self._lock:
                        self.received += 1
                    self._receive(datagram, host)
            piece = connection.recv(MAX_DATAGRAM_BYTES)
            if not piece:
                return
            buffer += piece


def cut(peer: socket.socket) -> None:
    """Whoever reads or writes there is woken up."""
    with contextlib.suppress(OSError):
        peer.shutdown(socket.SHUT_RDWR)


def read_line(connection: socket.socket) -> str:
    """Reads byte by byte, since what follows belongs to others. Raises `Refused`, `OSError`."""
    line = bytearray()
    while len(line) < MAX_LINE_BYTES:
        byte = connection.recv(1)
        if not byte:
            raise Refused("the connection ended")
        if byte == b"\n":
            try:
                return line.decode("ascii")
            except UnicodeDecodeError:
                break
        line += byte
    raise Refused("no line that is expected here")
