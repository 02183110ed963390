"""Which route a request took, as Flask, Django, Bottle and applications themselves say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from heard import SLOW, Ear
from served import FREE_THREADING, Served
from ticking import Ticking


@pytest.fixture
def ear(tmp_path: Path) -> Iterator[Ear]:
    with Ear(tmp_path) as ear:
        yield ear


def serve(ear: Ear, app: str, *options: str, **changes: str) -> Served:
    return Ticking(app, ear.target, *options, **changes)


def endpoints(ear: Ear, requests: int) -> dict[str, tuple[int, bool]]:
    """Waits for that many requests; by endpoint, their number and whether it is a route."""

    def counted() -> dict[str, tuple[int, bool]]:
        counts: dict[str, tuple[int, bool]] = {}
        for row in ear.rows("endpoints"):
            name = row["endpoint_name"]
            before = counts.get(name, (0, False))[0]
            counts[name] = (before + row["endpoint_requests"], bool(row["endpoint_is_route"]))
        return counts

    ear.wait_for(2, lambda _: sum(count for count, _ in counted().values()) >= requests)
    return counted()


@pytest.mark.parametrize("mode", [(), ("--application-group", "site", "--interpreters", "2")])
def test_flask(ear: Ear, mode: tuple[str, ...]) -> None:
    with serve(ear, "routes_flask:app", *mode) as server:
        for target, status in [
            ("/users/1", 200),
            ("/users/2?x=y", 200),
            ("/users/none", 404),
            ("/shop/chairs/7", 200),
            ("/raises/word", 500),
        ]:
            assert server.get(target).status == status
        assert endpoints(ear, 5) == {
            "/users/<int:number>": (2, True),
            "(404)": (1, False),
            "/shop/<category>/<item>": (1, True),
            "/raises/<word>": (1, True),
        }


def test_django(ear: Ear) -> None:
    with serve(ear, "routes_django:application") as server:
        for target, status in [
            ("/users/1/", 200),
            ("/users/2/", 200),
            ("/stream/3/", 200),
            ("/raises/word/", 500),
            ("/shop/chairs/seven/", 200),
            ("/articles/2026/", 200),
            ("/none", 404),
        ]:
            assert server.get(target).status == status
        assert endpoints(ear, 7) == {
            "/users/<int:number>/": (2, True),
            "/stream/<int:number>/": (1, True),
            "/raises/<word>/": (1, True),
            "/shop/<slug:category>/<slug:item>/": (1, True),
            "/articles/(?P<year>[0-9]{4})/": (1, True),
            "(404)": (1, False),
        }


@pytest.mark.free_threading
def test_bottle_and_what_applications_say_themselves(ear: Ear) -> None:
    with serve(ear, "routes_said:application") as server:
        for target in ("/orders/1", "/orders/2", "/said", "/said", "/long"):
            assert server.get(target).status == 200
        assert endpoints(ear, 5) == {
            "/orders/<number:int>": (2, True),
            "/said/<by>/<itself>": (2, True),
            "ü" * 100: (1, True),
        }


@pytest.mark.free_threading
def test_what_goes_wrong_means_that_the_route_is_not_known(ear: Ear) -> None:
    """And never that the application, or the next request, hears of it."""
    hostile = ("/number", "/surrogate", "/hostile", "/bound", "/iterable")
    with serve(ear, "routes_said:application", "--threads", "1") as server:
        for target in hostile * 3:
            response = server.get(target)
            assert (response.status, response.body) == (200, b"fine\n")
        assert endpoints(ear, 15) == dict.fromkeys(hostile, (3, False))
        assert "Traceback" not in server.stderr
        assert "KeyboardInterrupt" not in server.stderr


def test_applications_below_paths_have_their_routes_there(ear: Ear) -> None:
    mounts = ("--mount", "/here=routes_flask:app", "--mount", "/there=routes_flask:app")
    with serve(ear, "routes_said:application", *mounts, "--slow-requests", "0.000001") as server:
        for target in ("/here/users/1", "/there/users/1", "/there/users/2"):
            assert server.get(target).status == 200
        told = ear.wait_for(SLOW, lambda fields: fields["slow_path_info"] == "/users/2").fields
        assert endpoints(ear, 3) == {
            "/here/users/<int:number>": (1, True),
            "/there/users/<int:number>": (2, True),
        }
    assert told["slow_script_name"] == "/there"
    assert told["slow_endpoint"] == "/there/users/<int:number>"


def test_routes_are_bounded(ear: Ear) -> None:
    """An application that says a route of its own for each request has its first ones told."""
    with serve(ear, "routes_said:application") as server, server.connect() as connection:
        request = "GET /many/{} HTTP/1.1\r\nHost: a\r\n\r\n"
        for start in range(0, 1_500, 100):
            connection.sendall(
                "".join(request.format(start + each) for each in range(100)).encode()
            )
            received = b""
            while received.count(b"fine\n") < 100:
                received += connection.recv(65_536)
        told = endpoints(ear, 1_500)
    assert len(told) < 1_100
    assert sum(count for count, _ in told.values()) == 1_500


@pytest.mark.free_threading
@pytest.mark.skipif(not FREE_THREADING, reason="only without a GIL threads run at the same time")
def test_a_route_that_other_threads_replace_stays_alive_while_it_is_read(ear: Ear) -> None:
    """The debug allocator overwrites freed memory, so that a freed name ends the process."""
    app = "routes_said:replaced"
    with serve(ear, app, PYTHONMALLOC="debug") as server, server.connect() as connection:
        (worker,) = server.workers()
        for _ in range(600):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 50)
            received = b""
            while received.count(b"fine\n") < 50:
                block = connection.recv(65_536)
                assert block, server.stderr
                received += block
        assert server.workers() == [worker]
