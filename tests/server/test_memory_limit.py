"""A response that the memory limit has no room for fails alone."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
from served import Served

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


@pytest.mark.skipif(
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
