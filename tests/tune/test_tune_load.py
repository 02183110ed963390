"""The load of `headway tune serve`, in front of a server that answers when the test does."""

import select
import socket
import threading
import time

from headway.tune import load

CONNECTIONS = 4
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def test_a_load_ends_once_its_requests_are_answered() -> None:
    order = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        with load.running(host, port, 1000, CONNECTIONS, {"/": 1.0}) as running:
            clients = [listener.accept()[0] for _ in range(CONNECTIONS)]
            assert all(each.recv(1000).startswith(b"GET / ") for each in clients)

            def drain() -> None:
                running.drain()
                order.append("drained")

            draining = threading.Thread(target=drain)
            draining.start()
            draining.join(0.1)
            for number, each in enumerate(clients):
                order.append(f"answer {number}")
                each.sendall(ANSWER)
            # The load may have sent further requests before it was to end.
            while draining.is_alive():
                for each in select.select(clients, [], [], 0.01)[0]:
                    if each.recv(1000):
                        each.sendall(ANSWER)
        assert order == [*(f"answer {number}" for number in range(CONNECTIONS)), "drained"]
        for each in clients:
            with each:
                assert each.recv(1000) == b""


def test_the_throughput_of_an_overload_is_that_of_the_answers() -> None:
    """The client sends a thousand requests a second, of which four are answered."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        begin_ns = time.monotonic_ns()
        with load.running(host, port, 1000, CONNECTIONS, {"/": 1.0}) as running:
            clients = [listener.accept()[0] for _ in range(CONNECTIONS)]
            for each in clients:
                assert each.recv(1000)
                each.sendall(ANSWER)
            time.sleep(0.2)
            end_ns = time.monotonic_ns()
            figures = running.figures(begin_ns, end_ns, None)
        seconds = (end_ns - begin_ns) / 1e9
        assert round(figures["requests_per_s"] * seconds) == CONNECTIONS
        for each in clients:
            each.close()
