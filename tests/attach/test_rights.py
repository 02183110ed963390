"""The rights of a debugger: which command an administrator is told, and that they are given up."""

from __future__ import annotations

import ctypes
import os
import re

import pytest

from headway.attach import rights, target

NOBODY = 65534
KEEP_CAPABILITIES = 8  # PR_SET_KEEPCAPS of prctl(2)


def effective() -> int:
    with open("/proc/thread-self/status") as file:
        found = re.search(r"CapEff:\s+([0-9a-f]+)", file.read())
    assert found is not None
    return int(found[1], 16)


def become_nobody_with(capability: int) -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(KEEP_CAPABILITIES, 1, 0, 0, 0)
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    bit = 1 << capability
    words = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)
    libc.capset((ctypes.c_uint32 * 2)(rights.VERSION, 0), words)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a capability")
def test_the_right_is_given_up() -> None:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            become_nobody_with(rights.SYS_PTRACE)
            had = effective()
            rights.drop()
            os.write(write_end, f"{had:#x} {effective():#x}".encode())
        finally:
            os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with open(read_end) as said:
        assert said.read() == "0x80000 0x0"


def test_root_and_who_has_no_right_keep_what_they_have() -> None:
    before = effective()
    rights.drop()
    assert effective() == before


@pytest.mark.parametrize(
    ("scope", "told"),
    [
        (0, "sudo -u '#1000' headway attach 4711"),
        (
            1,
            "sudo setpriv --reuid 1000 --regid 100 --clear-groups --inh-caps +sys_ptrace "
            "--ambient-caps +sys_ptrace headway attach 4711",
        ),
        (3, "sudo -u '#1000' headway attach 4711"),
    ],
)
def test_the_command_for_an_administrator(
    monkeypatch: pytest.MonkeyPatch, scope: int, told: str
) -> None:
    monkeypatch.setattr(target, "_ptrace_scope", lambda: scope)
    assert target._as_user(os.stat_result((0, 0, 0, 0, 1000, 100, 0, 0, 0, 0)), 4711) == told
