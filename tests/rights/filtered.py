"""Becomes a command under a filter of system calls (seccomp), which its children inherit.

    python filtered.py RULE... -- COMMAND...

A RULE is ANSWER:CALL,CALL...; the answer to these calls is EPERM, ENOSYS, or `kill`, which ends the
process. All other calls are allowed. The numbers of the calls are those of libseccomp.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

LIBRARY = "libseccomp.so.2"
ALLOW = 0x7FFF_0000
ANSWERS = {
    "EPERM": 0x0005_0000 | errno.EPERM,
    "ENOSYS": 0x0005_0000 | errno.ENOSYS,
    "kill": 0x8000_0000,
}
UNKNOWN = -1  # __NR_SCMP_ERROR


def filter_calls(rules: list[str]) -> None:
    library = ctypes.CDLL(LIBRARY)
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    library.seccomp_rule_add.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
    ]
    context = library.seccomp_init(ALLOW)
    for rule in rules:
        answer, _, names = rule.partition(":")
        for name in names.split(","):
            number = library.seccomp_syscall_resolve_name(name.encode())
            if number == UNKNOWN:
                sys.exit(f"{name} is no system call that {LIBRARY} knows")
            # A call that this machine's processor does not have gets a negative number.
            added = library.seccomp_rule_add(context, ANSWERS[answer], number, 0)
            if added != 0 and number >= 0:
                sys.exit(f"{rule}: {name}: {os.strerror(-added)}")
    loaded = library.seccomp_load(context)
    if loaded != 0:
        sys.exit(f"the filter was refused: {os.strerror(-loaded)}")


if __name__ == "__main__":
    end = sys.argv.index("--")
    filter_calls(sys.argv[1:end])
    command = sys.argv[end + 1 :]
    os.execv(command[0], command)
