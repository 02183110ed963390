"""A closed loop of clients that count what they were answered, for tests that compare the count
with what telemetry says of it."""

from __future__ import annotations

import http.client
import threading
import time

TIMEOUT_S = 30


class Load:
    """Sends requests from several clients, each on a connection of its own. When the constructor
    returns, all were answered with 200."""

    def __init__(self, port: int, path: str, clients: int, requests: int) -> None:
        self.latencies_s: list[float] = []
        self._port, self._path, self._each = port, path, requests // clients
        self._failure: BaseException | None = None
        began_s = time.time()
        threads = [threading.Thread(target=self._ask) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.seconds = time.time() - began_s
        if self._failure is not None:
            raise self._failure
        self.requests = len(self.latencies_s)

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
        try:
            for _ in range(self._each):
                began_s = time.perf_counter()
                connection.request("GET", self._path)
                response = connection.getresponse()
                response.read()
                assert response.status == 200
                self.latencies_s.append(time.perf_counter() - began_s)
        except BaseException as error:
            self._failure = error
        finally:
            connection.close()
