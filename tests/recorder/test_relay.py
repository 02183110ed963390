"""Datagrams from host to host by TCP: what arrives, who is let in, and what hostile peers get."""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headway.address import Address
from headway.errors import CommandError
from headway.recorder import relay
from headway.recorder.relay import Forwarder, Listener, proof_of, read_line, read_token

TOKEN = "correct-horse-battery"
ANY = Address("127.0.0.1", 0)
TIMEOUT_S = 30


class Received:
    def __init__(self) -> None:
        self.datagrams: list[tuple[bytes, str]] = []

    def __call__(self, datagram: bytes, origin: str) -> None:
        self.datagrams.append((datagram, origin))


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def received() -> Received:
    return Received()


@pytest.fixture
def listener(stack: ExitStack, received: Received) -> Listener:
    return listen(stack, received)


def listen(
    stack: ExitStack, received: Received, at: Address = ANY, tls: ssl.SSLContext | None = None
) -> Listener:
    listener = Listener(at, TOKEN, received, tls)
    listener.start()
    stack.callback(listener.stop)
    return listener


def forward(
    stack: ExitStack, to: Address, token: str = TOKEN, tls: ssl.SSLContext | None = None
) -> Forwarder:
    forwarder = Forwarder(to, token, "beta", tls)
    forwarder.start()
    stack.callback(forwarder.stop)
    return forwarder


def admitted(listener: Listener) -> socket.socket:
    """A connection that has shown the token."""
    connection = socket.create_connection(("127.0.0.1", listener.address.port), TIMEOUT_S)
    nonce = read_line(connection).rpartition(" ")[2]
    connection.sendall(f"gamma {proof_of(TOKEN, nonce, 'gamma')}\n".encode())
    assert read_line(connection) == "ok"
    return connection


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(TIMEOUT_S)
    try:
        while connection.recv(1000):
            pass
    except ConnectionResetError:
        pass
    return True


def test_datagrams_arrive_in_order(
    stack: ExitStack, listener: Listener, received: Received
) -> None:
    sent = [bytes([n % 256]) * (1 + n * 37 % 9000) for n in range(500)]
    forwarder = forward(stack, listener.address)
    for datagram in sent:
        forwarder.add(datagram)
    wait_until(lambda: len(received.datagrams) == 500)
    assert received.datagrams == [(datagram, "beta") for datagram in sent]
    assert forwarder.health() == {
        "to": str(listener.address),
        "sent": 500,
        "lost": 0,
        "waiting": 0,
        "error": "",
    }
    assert listener.health()["peers"] == ["beta"]


def test_it_comes_back_when_the_listener_does(
    stack: ExitStack, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "LONGEST_PAUSE_S", 0.1)
    first = Listener(ANY, TOKEN, received)
    first.start()
    forwarder = forward(stack, first.address)
    forwarder.add(b"one")
    wait_until(lambda: received.datagrams)
    first.stop()
    # A connection that is gone is noticed by what is sent on it.
    wait_until(lambda: forwarder.add(b"lost?") or forwarder.error)
    forwarder.add(b"two")
    listen(stack, received, first.address)
    wait_until(lambda: (b"two", "beta") in received.datagrams)
    wait_until(lambda: forwarder.error == "")
    health = forwarder.health()
    assert health["sent"] + health["lost"] >= len(received.datagrams)


def test_what_waits_is_bounded(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "MAX_QUEUE_BYTES", 10_000)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    forwarder = forward(stack, Address("127.0.0.1", port))
    for _ in range(100):
        forwarder.add(bytes(1000))
    health = forwarder.health()
    assert (health["waiting"], health["lost"]) == (10, 90)
    wait_until(lambda: "refused" in forwarder.error)


def test_another_token_is_not_let_in(
    stack: ExitStack, listener: Listener, received: Received
) -> None:
    forwarder = forward(stack, listener.address, token="another-token-of-length")
    forwarder.add(b"x")
    wait_until(lambda: "token" in forwarder.error)
    assert received.datagrams == []
    assert listener.health()["refused"] >= 1


def test_an_old_proof_is_worth_nothing(listener: Listener, received: Received) -> None:
    with admitted(listener):
        pass
    connection = socket.create_connection(("127.0.0.1", listener.address.port), TIMEOUT_S)
    with connection:
        read_line(connection)
        connection.sendall(f"gamma {proof_of(TOKEN, 'another-nonce', 'gamma')}\n".encode())
        assert is_closed(connection)
    assert received.datagrams == []


@pytest.mark.parametrize(
    "said",
    [
        b"\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff \xff\n",
        b"x" * 5000,
        b" \n",
        b"\0 \0\n",
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\n",
    ],
)
def test_who_speaks_otherwise_is_not_let_in(
    listener: Listener, received: Received, said: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", listener.address.port), TIMEOUT_S) as peer:
        peer.sendall(said)
        assert is_closed(peer)
    with admitted(listener) as peer:
        peer.sendall(struct.pack("<I", 2) + b"ok")
        wait_until(lambda: received.datagrams == [(b"ok", "gamma")])


def test_lengths_that_no_datagram_has_end_it(listener: Listener, received: Received) -> None:
    for length in (65_537, 2**31, 2**32 - 1):
        with admitted(listener) as peer:
            peer.sendall(struct.pack("<I", length) + b"x" * 100)
            assert is_closed(peer)
    assert received.datagrams == []
    wait_until(lambda: listener.health()["refused"] == 3)


def test_pieces_of_frames_are_put_together(listener: Listener, received: Received) -> None:
    frames = b"".join(struct.pack("<I", len(each)) + each for each in (b"one", b"", b"two" * 500))
    with admitted(listener) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in frames:
            peer.sendall(bytes([byte]))
        wait_until(lambda: len(received.datagrams) == 2)
    assert [datagram for datagram, _ in received.datagrams] == [b"one", b"two" * 500]


def test_a_half_frame_is_nothing(listener: Listener, received: Received) -> None:
    with admitted(listener) as peer:
        peer.sendall(struct.pack("<I", 100) + b"x" * 99)
    wait_until(lambda: listener.health()["peers"] == [])
    assert received.datagrams == []


def test_silent_peers_go(
    stack: ExitStack, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "HANDSHAKE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(relay, "SILENCE_TIMEOUT_S", 0.2)
    listener = listen(stack, received)
    with socket.create_connection(("127.0.0.1", listener.address.port)) as peer:
        assert is_closed(peer)
    with admitted(listener) as peer:
        assert is_closed(peer)


def test_a_byte_now_and_then_keeps_no_place(
    stack: ExitStack, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "HANDSHAKE_TIMEOUT_S", 0.5)
    monkeypatch.setattr(relay, "SWEEP_INTERVAL_S", 0.1)
    listener = listen(stack, received)
    with socket.create_connection(("127.0.0.1", listener.address.port)) as peer:
        stopped = threading.Event()

        def drip() -> None:
            try:
                while not stopped.wait(0.05):
                    peer.sendall(b"x")
            except OSError:
                pass

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert is_closed(peer)
        finally:
            stopped.set()
            dripping.join()


def test_peers_are_bounded(
    stack: ExitStack, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "MAX_PEERS", 3)
    listener = listen(stack, received)
    with ExitStack() as peers:
        for _ in range(3):
            peers.enter_context(admitted(listener))
        with socket.create_connection(("127.0.0.1", listener.address.port)) as another:
            assert is_closed(another)
    wait_until(lambda: listener.health()["peers"] == [])
    with admitted(listener) as peer:
        peer.sendall(struct.pack("<I", 1) + b"x")
        wait_until(lambda: received.datagrams)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


def test_tls(
    stack: ExitStack,
    received: Received,
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # So long an end that does not speak TLS waits for one that does.
    monkeypatch.setattr(relay, "HANDSHAKE_TIMEOUT_S", 1.0)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate)
    listener = listen(stack, received, tls=server)
    client = ssl.create_default_context(cafile=certificate[0])
    forwarder = forward(stack, listener.address, tls=client)
    forwarder.add(b"private")
    wait_until(lambda: received.datagrams == [(b"private", "beta")])
    # One that trusts others, and one that does not speak TLS, get nowhere.
    stranger = forward(stack, listener.address, tls=ssl.create_default_context())
    wait_until(lambda: "CERTIFICATE" in stranger.error.upper())
    plain = forward(stack, listener.address)
    wait_until(lambda: plain.error not in ("", "not connected yet"))
    assert len(received.datagrams) == 1


@pytest.mark.parametrize("content", [b"", b"short", b"two words of some length", b"\xff" * 30])
def test_a_token_that_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(CommandError, match=r"one word of 16 ASCII characters") as caught:
        read_token(str(path))
    assert caught.value.exit_code == 2


def test_a_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    assert read_token(str(path)) == TOKEN
    with pytest.raises(CommandError, match="no such file"):
        read_token(str(tmp_path / "none"))
