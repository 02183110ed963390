"""A response that the memory limit has no room for fails alone."""

from __future__ import annotations

import sysconfig
import time
from pathlib import Path

import pytest
from served import Served, read_response

APP = """
import os

BYTES = 120 << 20

def application(environ, start_response):
    kind = environ["PATH_INFO"]
    write = start_response("200 OK", [])
    if kind == "/list":
        return [bytes(BYTES)]
    if kind == "/generator":
        return iter([bytes(BYTES)])
    if kind == "/write":
        write(bytes(BYTES))
        return []
    return [str(os.getpid()).encode()]
"""


pytestmark = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="the allocator of a free-threaded build reserves 1 GB at its start",
)


@pytest.mark.parametrize("kind", ["list", "generator", "write"])
def test_a_block_without_memory_for_it_is_an_error_of_its_request(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / "large.py").write_text(APP)
    options = ("--app-dir", str(tmp_path), "--memory-limit", "200M")
    with Served("large:application", *options) as server:
        before = server.get("/pid").body
        assert server.get(f"/{kind}").status == 500
        assert server.get("/pid").body == before
    assert "MemoryError: no memory for a block of the response" in server.stderr


def test_a_block_and_its_copy_are_all_the_memory_that_a_slow_client_costs(tmp_path: Path) -> None:
    """The framing of the pieces is in the memory that is reserved for the copy."""
    (tmp_path / "large.py").write_text(APP)
    options = ("--app-dir", str(tmp_path), "--memory-limit", "340M")
    with Served("large:application", *options) as server, server.connect() as connection:
        connection.sendall(b"GET /generator HTTP/1.1\r\nHost: a\r\n\r\n")
        # Until the block is copied.
        time.sleep(0.5)
        assert len(read_response(connection).body) == 120 << 20
