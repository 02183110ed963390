"""Every program in tests/programs: the same under `headway run` as under python, and counters that
balance (docs/design/words.md)."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from launch import PROGRAMS, Result, headway, python, read_json

pytestmark = pytest.mark.free_threading

ALL = sorted(path.name for path in PROGRAMS.glob("*.py"))


def without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|line \d+", "", text)


@cache
def under_python(name: str) -> Result:
    return python(PROGRAMS / name)


@pytest.mark.parametrize(
    "follow", [pytest.param(False, marks=pytest.mark.slow("is part of --follow")), True]
)
@pytest.mark.parametrize("name", ALL)
def test_a_program_is_not_disturbed_and_its_books_balance(
    tmp_path: Path, name: str, follow: bool
) -> None:
    out = tmp_path / "out.json"
    options = ["--follow"] if follow else []
    plain = under_python(name)
    measured = headway("run", "--json", out, *options, PROGRAMS / name)
    assert measured.stdout == plain.stdout
    assert measured.returncode == plain.returncode
    assert without_addresses(measured.stderr).startswith(without_addresses(plain.stderr))
    report = read_json(out)
    for process in (report, *report["children"]):
        check_counters(process)
    assert not Path(f"{out}.ledger").exists()


def check_counters(process: dict[str, Any]) -> None:
    rows = {
        gil["id"]: [t for t in process["threads"] if t["gil"] == gil["id"]]
        for gil in process["gils"]
    }
    for gil in process["gils"]:
        threads = rows[gil["id"]]
        drops = gil["voluntary_drops"] + gil["forced_drops"]
        assert gil["takes"] + gil["held_at_open"] == drops + gil["held_now"]
        assert gil["held_s"] + gil["handoff_s"] + gil["idle_s"] == pytest.approx(
            gil["wall_s"], rel=1e-3
        )
        assert sum(t["held_s"] for t in threads) == pytest.approx(gil["held_s"], rel=1e-3, abs=1e-9)
        for count in ("takes", "contended_takes", "voluntary_drops", "forced_drops"):
            assert sum(t[count] for t in threads) == gil[count]
        assert gil["anomalies"] == 0
        for row in (gil, *threads):
            assert row["wait"]["count"] == row["contended_takes"] <= row["takes"]
            assert sum(count for _, count in row["wait"]["buckets"]) == row["wait"]["count"]
            assert sum(count for _, count in row["hold"]["buckets"]) == row["hold"]["count"]
    assert process["unmeasured_events"] == 0


FILTERED = """
import ctypes, platform, struct, threading
number = {"x86_64": 157, "aarch64": 167}[platform.machine()]
kills, allows = (6, 0, 0, 0x8000_0000), (6, 0, 0, 0x7FFF_0000)
load_number, load_operation, get_name = (0x20, 0, 0, 0), (0x20, 0, 0, 16), 16
rules = load_number, (0x15, 0, 3, number), load_operation, (0x15, 0, 1, get_name), kills, allows
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("rules", ctypes.c_void_p)]
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
program = Program(len(rules), ctypes.addressof(code))
if libc.prctl(22, 2, ctypes.byref(program), 0, 0):  # PR_SET_SECCOMP
    print("no filter")
for _ in range(3):
    thread = threading.Thread(target=sum, args=(range(1000),))
    thread.start()
    thread.join()
print("done")
"""


def test_a_filter_that_kills_for_a_system_call_which_python_does_not_need() -> None:
    """`prctl(PR_GET_NAME)` asks for the kernel's name of a thread, and these threads have one of
    Python's. From 3.14 on CPython gives it to the kernel, by another operation of `prctl`."""
    done = headway("run", "--no-kernel-hints", "--policy", "priority", "-c", FILTERED)
    if "no filter" in done.stdout:
        pytest.skip("seccomp is not available here")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
