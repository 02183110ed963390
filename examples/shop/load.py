"""Visitors for the shop: a bounded load of light and heavy requests, from a process of its own.

    python load.py HOST PORT --seconds 5 --light 4 --heavy 2

Each visitor is a thread with one connection that it keeps, asks for a page, waits for all of it,
thinks, and asks again. Prints one JSON list with a pair for each request: the page's name and the
seconds from the first byte sent to the last received. Stops by itself.
"""

import argparse
import http.client
import json
import random
import threading
import time
from collections.abc import Callable

LIGHT_PAGES = ("home", "product", "cart")
THINK_S = 0.02

Sample = tuple[str, float]


def path_of(page: str, chance: random.Random) -> str:
    product_id = chance.randrange(1, 500)
    return {
        "home": "/",
        "product": f"/product/{product_id}",
        "cart": "/cart",
        "recommendations": f"/recommendations/{product_id}",
    }[page]


class Visitor:
    """One visitor's connection, and the cookie that names his cart."""

    def __init__(self, host: str, port: int, seed: int) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=30)
        self._cookie = ""
        self._chance = random.Random(seed)

    def request(self, method: str, path: str) -> None:
        headers = {"Cookie": self._cookie} if self._cookie else {}
        self._connection.request(method, path, headers=headers)
        response = self._connection.getresponse()
        response.read()
        if response.status >= 400:
            raise RuntimeError(f"{method} {path} was answered with status {response.status}")
        cookie = response.getheader("Set-Cookie")
        if cookie:
            self._cookie = cookie.partition(";")[0]

    def fill_cart(self) -> None:
        for _ in range(3):
            self.request("POST", f"/cart/{self._chance.randrange(1, 500)}")

    def visit(self, page: str) -> float:
        path = path_of(page, self._chance)
        start = time.perf_counter()
        self.request("GET", path)
        return time.perf_counter() - start

    def think(self) -> None:
        time.sleep(self._chance.uniform(0.5, 1.5) * THINK_S)

    def leave(self) -> None:
        self._connection.close()


def browse(visitor: Visitor, deadline: float, samples: list[Sample]) -> None:
    """Light pages in turn."""
    visitor.fill_cart()
    while True:
        for page in LIGHT_PAGES:
            if time.monotonic() >= deadline:
                return
            samples.append((page, visitor.visit(page)))
            visitor.think()


def ask_for_recommendations(visitor: Visitor, deadline: float, samples: list[Sample]) -> None:
    """The heavy page, again and again."""
    while time.monotonic() < deadline:
        samples.append(("recommendations", visitor.visit("recommendations")))


def run(host: str, port: int, seconds: float, light: int, heavy: int) -> list[Sample]:
    """All visitors' requests, once the last of them is answered. Raises what a visitor raised."""
    deadline = time.monotonic() + seconds
    samples: list[Sample] = []
    errors: list[Exception] = []

    def live(habit: Callable[[Visitor, float, list[Sample]], None], visitor: Visitor) -> None:
        try:
            habit(visitor, deadline, samples)
        except (OSError, http.client.HTTPException, RuntimeError) as error:
            errors.append(error)
        finally:
            visitor.leave()

    habits = [browse] * light + [ask_for_recommendations] * heavy
    threads = [
        threading.Thread(target=live, args=(habit, Visitor(host, port, seed)))
        for seed, habit in enumerate(habits)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description="Puts a bounded load on the shop.")
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="how long (default: %(default)s)"
    )
    parser.add_argument("--light", type=int, default=4, help="visitors who browse (%(default)s)")
    parser.add_argument("--heavy", type=int, default=0, help="who ask for recommendations (0)")
    arguments = parser.parse_args()
    try:
        samples = run(
            arguments.host, arguments.port, arguments.seconds, arguments.light, arguments.heavy
        )
    except (OSError, http.client.HTTPException, RuntimeError) as error:
        raise SystemExit(f"load: {error}") from None
    print(json.dumps(samples))


if __name__ == "__main__":
    main()
