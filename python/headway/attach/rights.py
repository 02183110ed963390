"""Gives up the right to look into other processes once it has been used.

Where the system leaves ptrace(2) to those with CAP_SYS_PTRACE, an administrator gives the command
that capability alone, as the user of the process (setpriv(1)). What the process answers may be
hostile, so it is read without. Source: capabilities(7).
"""

from __future__ import annotations

import ctypes
import os

SYS_PTRACE = 19
# _LINUX_CAPABILITY_VERSION_3 of linux/capability.h, with two groups of three words.
VERSION = 0x20080522
WORDS = 6


def drop() -> None:
    """Removes CAP_SYS_PTRACE from this thread, which is the only one. The kernel removes it from
    the ambient set, too. Root attaches to processes of root alone, and keeps what it is."""
    if os.geteuid() == 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(VERSION, 0)
    # Effective, permitted, inheritable of the capabilities below 32, then of the others.
    words = (ctypes.c_uint32 * WORDS)()
    if libc.capget(header, words) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    for index in range(WORDS // 2):
        words[index] &= ~(1 << SYS_PTRACE)
    if libc.capset(header, words) != 0:
        raise OSError(ctypes.get_errno(), "capset")
