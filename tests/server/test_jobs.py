"""A thread of the pool under a policy: each request is a job of its own."""

from __future__ import annotations

import re
import sys

import pytest
from served import Served

SHORT_SLICE_NS = 100_000
GIL_ENABLED = getattr(sys, "_is_gil_enabled", lambda: True)()


@pytest.mark.skipif(not GIL_ENABLED, reason="no GIL, no policy")
@pytest.mark.slow("needs a quiet machine")
@pytest.mark.serial
def test_a_request_does_not_pay_for_what_its_thread_did_before() -> None:
    """The application tells the slice that the kernel gives its thread: the common one if it is
    CPU-bound, a short one if not."""
    # One write: no time passes between a request that computes and the next.
    request = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"
    requests = b"".join(request % page for page in [b"compute", b"short"] * 5)
    with Served("jobs:application", "--threads", "1") as server:
        responses = server.converse(requests)
    slices_ns = [int(body) for body in re.findall(rb"\r\n\r\n(\d+)", responses)]
    if 0 in slices_ns:
        pytest.skip("this kernel's scheduler has no slices to set (Linux before 6.12)")
    assert len(slices_ns) == 10
    assert min(slices_ns[::2]) > SHORT_SLICE_NS
    assert slices_ns[1::2] == [SHORT_SLICE_NS] * 5
