"""The hint that I/O-bound threads get under a policy: a shorter slice of the kernel's scheduler."""

import platform
from typing import Any

import pytest
from launch import GIL_ENABLED
from metered import run_metered

SHORT_SLICE_NS = 100_000
SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}.get(platform.machine(), -1)

# Tells the slice of a thread, in nanoseconds; 0 where the kernel has none to tell.
SLICE = f"""
import ctypes, os, struct, subprocess, sys, threading, time
def slice_ns(native_id=0):
    attributes = ctypes.create_string_buffer(48)
    ctypes.CDLL(None).syscall({SCHED_GETATTR}, native_id, attributes, 48, 0)
    return struct.unpack_from("IIQiIQQQ", attributes)[5]
"""
# A thread that naps beside two that compute, so that it waits for the GIL again and again; `seen`
# has what it saw of itself.
NAP_BESIDE_COMPUTING = """
computing, napping, seen, begun = True, True, [], []
def compute():
    while computing: sum(range(100))
def nap():
    while napping:
        time.sleep(0.001)
        seen.append(slice_ns())
hogs = [threading.Thread(target=compute) for _ in range(2)]
napper = threading.Thread(target=nap)
def start():
    [thread.start() for thread in (*hogs, napper)]
def let_it_nap(rounds=100):
    end = len(seen) + rounds
    while len(seen) < end: time.sleep(0.01)
def stop():
    global computing, napping
    computing = napping = False
    [thread.join() for thread in (*hogs, napper)]
"""


def kernel_has_slices() -> bool:
    namespace: dict[str, Any] = {}
    exec(SLICE, namespace)
    return bool(namespace["slice_ns"]())


pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(not GIL_ENABLED, reason="no GIL, no policy"),
    pytest.mark.skipif(
        SCHED_GETATTR < 0 or not kernel_has_slices(),
        reason="this kernel's scheduler has no slices to set (Linux before 6.12)",
    ),
]


@pytest.mark.parametrize("policy", ["priority", "deadline"])
def test_io_bound_threads_get_a_short_slice_and_computing_ones_none(policy: str) -> None:
    # Mostly: on a busy machine a thread is for a moment what it usually is not.
    code = f"""
{SLICE}{NAP_BESIDE_COMPUTING}
import statistics
common = slice_ns()
gil.install({policy!r})
start()
let_it_nap()
looks = []
for _ in range(25):
    let_it_nap(4)
    looks.append([slice_ns(thread.native_id) for thread in (napper, *hogs)])
nap_slice, *hog_slices = map(statistics.mode, zip(*looks))
gil.install("interval")
let_it_nap()
after = slice_ns(napper.native_id)
stop()
show([common, nap_slice, hog_slices, after])
"""
    ((common, nap_slice, hog_slices, after),) = run_metered(code)
    assert nap_slice == SHORT_SLICE_NS
    assert hog_slices == [common, common]
    assert after == common


def test_without_hints_slices_stay() -> None:
    code = f"""
{SLICE}{NAP_BESIDE_COMPUTING}
common = slice_ns()
gil.install("priority", kernel_hints=False)
start()
let_it_nap()
stop()
show([common, sorted(set(seen))])
"""
    ((common, seen),) = run_metered(code)
    assert seen == [common]


def test_a_change_by_a_guest_gives_no_hints_that_the_program_does_not_want() -> None:
    code = f"""
{SLICE}{NAP_BESIDE_COMPUTING}
from headway.meter import engine
common = slice_ns()
gil.install("priority", kernel_hints=False)
engine.change_policy("deadline")
start()
let_it_nap()
stop()
show([common, sorted(set(seen)), gil.snapshot().to_dict()["policy"]])
"""
    ((common, seen, policy),) = run_metered(code)
    assert (seen, policy) == ([common], "deadline")


def test_what_a_hinted_thread_forks_begins_without() -> None:
    code = f"""
{SLICE}{NAP_BESIDE_COMPUTING}
common = slice_ns()
found = []
def start_others():
    for _ in range(100): time.sleep(0.001)
    mine = slice_ns()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write_end, struct.pack("Q", slice_ns()))
        os._exit(0)
    os.waitpid(pid, 0)
    found.append(("fork", struct.unpack("Q", os.read(read_end, 8))[0]))
    found.append(("before", mine))
gil.install("priority")
hogs[0].start()
starter = threading.Thread(target=start_others)
starter.start(); starter.join()
computing = False
show([common, dict(found)])
"""
    ((common, found),) = run_metered(code)
    assert found == {"before": SHORT_SLICE_NS, "fork": common}


def test_removed_the_hints_are_gone() -> None:
    code = f"""
{SLICE}{NAP_BESIDE_COMPUTING}
common = slice_ns()
gil.install("priority")
start()
let_it_nap()
before = slice_ns(napper.native_id)
gil.uninstall()
after = slice_ns(napper.native_id)
stop()
show([common, before, after])
"""
    ((common, before, after),) = run_metered(code)
    assert (before, after) == (SHORT_SLICE_NS, common)
