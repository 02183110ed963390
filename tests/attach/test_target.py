"""Which processes `headway attach` refuses before it touches them, by what is known of them."""

from __future__ import annotations

import os
import sys

import pytest
from launch import HAS_MUSL

from headway.attach import target
from headway.attach.target import Refused, Target, check_version

OURS = "musl" if HAS_MUSL else "glibc"
OTHER = "glibc" if HAS_MUSL else "musl"
# As /proc/PID/maps has them in Alpine and in Debian.
MAPPINGS = {
    "musl": "7f0000000000-7f0000020000 r-xp 00000000 00:31 10 /lib/ld-musl-x86_64.so.1\n",
    "glibc": "7f0000000000-7f0000020000 r-xp 00000000 00:31 10 /lib/x86_64-linux-gnu/libc.so.6\n",
}


def like_ours(c_library: str) -> Target:
    version = sys.version_info[:2]
    return Target(os.getpid(), version, "t" in sys.abiflags, 0, "", c_library)


@pytest.mark.parametrize("c_library", MAPPINGS)
def test_the_c_library_is_known_by_its_mapping(c_library: str) -> None:
    assert target._c_library([MAPPINGS[c_library]]) == c_library


def test_a_process_with_another_c_library_is_refused() -> None:
    with pytest.raises(Refused, match=f"has {OTHER}, and this is Headway for {OURS}"):
        check_version(like_ours(OTHER))


def test_on_musl_gdb_is_no_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "_c_library", lambda _: "musl")
    if sys.version_info >= target.REMOTE_DEBUGGING:
        check_version(like_ours("musl"))
    else:
        with pytest.raises(Refused, match=r"on musl, .* this needs CPython 3\.14"):
            check_version(like_ours("musl"))
