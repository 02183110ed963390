"""The standard library's C code in own-GIL interpreters that come and go: up to 3.13 CPython keeps
some of its data per process. The supervisor or the C library reports an abort."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from served import APPS
from test_interpreters import Tenants, needs_own_gils

pytestmark = needs_own_gils
ABORT = re.compile(r"SIG[A-Z]+|free\(\)|munmap_chunk\(\)|corruption")


def recycled(**fields: object) -> dict[str, object]:
    return {"name": "shop", "own_gil": True, "maximum_requests": 5} | fields


@pytest.mark.parametrize("application", ["flask_site:app", "django_site:application"])
@pytest.mark.slow("imports a framework into six interpreters")
def test_frameworks(tmp_path: Path, application: str) -> None:
    module, name = application.split(":")
    pytest.importorskip(module.split("_")[0])
    (tmp_path / "site_of_tests.py").write_text(
        f"import os\nfrom {module} import {name}\nos.write(2, b'imported\\n')\n"
    )
    group = recycled(interpreters=2, application=f"site_of_tests:{name}")
    path = [str(tmp_path), str(APPS)]
    with Tenants(tmp_path, group, threads=2, python_path=path) as server:
        while server.stderr.count("imported\n") < 6:
            assert server.get("/").status == 200, server.stderr
    assert not ABORT.search(server.stderr), server.stderr


def test_functions_that_are_first_called_with_keywords(tmp_path: Path) -> None:
    """gh-119213: the keywords belonged to the interpreter of that call."""
    (tmp_path / "keywords.py").write_text(
        "import datetime, decimal, hashlib, queue, ssl, zlib, zoneinfo\n"
        "from tenant import app\n"
        "zlib.decompress(zlib.compress(b'x'), wbits=15)\n"
        "passing = queue.SimpleQueue()\n"
        "passing.put(1)\n"
        "passing.get(timeout=1)\n"
    )
    (tmp_path / "main.py").write_text(
        "import atexit, os\n"
        "from tenant import app\n"
        "atexit.register(os.write, 2, b'atexit of the main interpreter\\n')\n"
    )
    groups = (
        {"name": "", "path": "/main", "application": "main:app"},
        recycled(application="keywords:app"),
    )
    with Tenants(tmp_path, *groups, python_path=[str(tmp_path), str(APPS)]) as server:
        first = server.ask("/")["interpreter"]
        second = server.wait_for_interpreter("/", first)["interpreter"]
        server.wait_for_interpreter("/", second)
        server.ask("/main/")
    assert "atexit of the main interpreter\n" in server.stderr
    assert not ABORT.search(server.stderr), server.stderr
