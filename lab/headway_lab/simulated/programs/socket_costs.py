"""Measures the time to send a few bytes over the loopback device, and to receive bytes that have
arrived.

    socket_costs.py CORE COUNT

One thread has both ends, so nobody waits and nobody is woken.
"""

from __future__ import annotations

import os
import socket
import sys
import time

import window

PING = b"%d %d" % (time.monotonic_ns(), os.getpid())


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
    for end in (sender, receiver):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sender, receiver


def udp_pair() -> tuple[socket.socket, socket.socket]:
    sender, receiver = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    for end in (sender, receiver):
        end.bind(("127.0.0.1", 0))
    sender.connect(receiver.getsockname())
    receiver.connect(sender.getsockname())
    return sender, receiver


def times_ns(
    sender: socket.socket, receiver: socket.socket, data: bytes, count: int
) -> tuple[list[int], list[int]]:
    send_ns, receive_ns = [], []
    clock_ns = time.monotonic_ns
    for _ in range(count):
        # In turns, or TCP would have to acknowledge each for itself.
        sender, receiver = receiver, sender
        began_ns = clock_ns()
        sender.send(data)
        sent_ns = clock_ns()
        receiver.recv(64)
        received_ns = clock_ns()
        send_ns.append(sent_ns - began_ns)
        receive_ns.append(received_ns - sent_ns)
    return send_ns, receive_ns


def main() -> None:
    core, count = map(int, sys.argv[1:])
    os.sched_setaffinity(0, {core})
    tcp_send_ns, tcp_receive_ns = times_ns(*tcp_pair(), b"x", count)
    udp_send_ns, udp_receive_ns = times_ns(*udp_pair(), PING, count)
    window.answer(
        tcp_send_ns=tcp_send_ns,
        tcp_receive_ns=tcp_receive_ns,
        udp_send_ns=udp_send_ns,
        udp_receive_ns=udp_receive_ns,
    )


if __name__ == "__main__":
    main()
