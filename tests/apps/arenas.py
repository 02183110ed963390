"""Tells how many memory arenas the C library has in this process, once THREADS have allocated."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable
from typing import Any

THREADS = 4
# glibc takes a block of this size from an arena, and keeps none of them for the thread alone.
BLOCK_BYTES = 50_000
BLOCKS = 20
together = threading.Barrier(THREADS)
kept = threading.local()


def arenas() -> int:
    libc = ctypes.CDLL(None)
    libc.open_memstream.restype = ctypes.c_void_p
    text, length = ctypes.c_char_p(), ctypes.c_size_t()
    stream = ctypes.c_void_p(libc.open_memstream(ctypes.byref(text), ctypes.byref(length)))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    return (text.value or b"").count(b"<heap nr=")


def app(
    environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    kept.blocks = [bytes(BLOCK_BYTES) for _ in range(BLOCKS)]
    together.wait(timeout=30)
    body = str(arenas()).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
