"""`--check` refuses what the processes of a server could not take on, and nothing else."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from configured import resolution_of
from launch import execute

from headway.server.config import check

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")

# Becomes an ordinary user who has two supplementary groups, and tries each line of flags in a child
# of its own: what `--check` says, and what `take_on` does. That user may be unable to read the
# standard library, so everything is imported before.
TRIES = """
import encodings.idna, json, os, resource, sys
sys.path.insert(0, {tests!r})
from configured import resolution_of
from headway.errors import CommandError
from headway.server import identity
from headway.server.config import check

resource.setrlimit(resource.RLIMIT_DATA, (1 << 33, 1 << 33))
os.setgroups([8, 9])
os.setresgid(1, 1, 1)
os.setresuid(2, 2, 2)
for flags in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        resolution = resolution_of("pages:hello", "--app-dir", ".", *flags)
        found = check.problems(resolution)
        try:
            identity.take_on(resolution.settings.groups[0])
            refusal = ""
        except CommandError as error:
            refusal = str(error)
        print(json.dumps([flags, found, refusal]), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
ALLOWED = [
    [],
    ["--group=#1"],
    ["--user=#2", "--group=#1"],
    ["--cpu-priority=5"],
    ["--memory-limit=4G"],
    ["--cpu-time-limit=100"],
    # The recorder makes it, in a folder of its own.
    ["--telemetry=unix:/nobody-made-it"],
]
FORBIDDEN = {
    ("--group=#8",): "--group: found #8; only root can run processes as another group",
    ("--user=#1",): "--user: found #1; only root can run processes as another user",
    ("--supplementary-groups=#8,#9",): (
        "--supplementary-groups: found #8; only root can give processes further groups"
    ),
    ("--cpu-priority=-5",): "--cpu-priority: found -5; without root it must be 0 or more",
    ("--memory-limit=16G",): (
        "--memory-limit: found 17179869184; without root it must be 8589934592 or less"
    ),
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that each user can pass, unlike those of pytest."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_what_a_process_cannot_take_on_is_named_by_check(folder: Path) -> None:
    tries = TRIES.format(tests=str(Path(__file__).parent))
    flags = json.dumps([*ALLOWED, *FORBIDDEN])
    result = execute([sys.executable, "-c", tries, flags], cwd=folder)
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(lines) == len(ALLOWED) + len(FORBIDDEN), result.stderr
    for flags, found, refusal in lines:
        assert bool(found) == bool(refusal), (flags, found, refusal)
        assert found[:1] == [FORBIDDEN[tuple(flags)]] if refusal else flags in ALLOWED


def test_root_may_take_on_all() -> None:
    every = [flag for flags in (*ALLOWED, *FORBIDDEN) for flag in flags]
    assert check.problems(resolution_of("pages:hello", "--app-dir", ".", *every)) == []


@pytest.mark.parametrize("option", ["pid-file", "error-log", "access-log", "status-socket"])
@pytest.mark.parametrize("what", ["a folder", "of another user", "in a folder of another user"])
def test_a_file_that_cannot_be_written_is_named(folder: Path, option: str, what: str) -> None:
    file = folder / "file"
    if what == "a folder":
        file.mkdir()
    elif what == "of another user":
        file.touch()
    path = f"common:{file}" if option == "access-log" else str(file)
    as_user = (
        f"import encodings.idna, os, sys; sys.path.insert(0, {str(Path(__file__).parent)!r});"
        "from configured import resolution_of; from headway.server.config import check;"
        "os.setresuid(2, 2, 2);"
        f"found = resolution_of('pages:hello', '--app-dir', '.', '--{option}', {path!r});"
        "print(*check.problems(found))"
    )
    result = execute([sys.executable, "-c", as_user], cwd=folder)
    assert result.returncode == 0, result.stderr
    if what == "in a folder of another user" or option == "status-socket":
        reason = "this user cannot write to its directory"
    else:
        reason = "it must be a file that this user can write to"
    assert result.stdout == f"--{option}: found {file}; {reason}\n"
