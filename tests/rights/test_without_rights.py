"""Headway in containers that allow little: each limit with each use. Either it works, or one line
says why not, and the program runs on as without Headway."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from launch import headway, report_in
from surroundings import HERE, Surroundings, no_filters

pytestmark = [
    pytest.mark.slow("real namespaces, and programs that run for a second in each"),
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
]

Seen = dict[str, Any]

# Docker's default profile forbids these without further capabilities, among others; ptrace and
# process_vm_readv before Linux 4.8 only.
DOCKER = (
    "EPERM:acct,add_key,bpf,clock_adjtime,clock_settime,delete_module,finit_module,fsopen,"
    "init_module,io_uring_setup,kcmp,kexec_load,keyctl,lookup_dcookie,mbind,mount,move_pages,"
    "open_by_handle_at,perf_event_open,pivot_root,process_vm_readv,process_vm_writev,ptrace,"
    "quotactl,reboot,request_key,set_mempolicy,setns,settimeofday,swapoff,swapon,umount2,unshare,"
    "userfaultfd",
    "ENOSYS:clone3",
)
# Of these none that a debugger needs, nor the reader of running threads' stacks: Headway uses no
# other call that Docker forbids.
KILLED = (
    DOCKER[0].replace("EPERM", "kill").replace(",process_vm_readv,process_vm_writev,ptrace", "")
)
# Calls that gVisor does not have.
GVISOR_CALLS = (
    "ENOSYS:clone3,close_range,epoll_pwait2,openat2,pidfd_open,process_vm_readv,sched_getattr,"
    "sched_setattr",
)
# Calls of Headway that CPython does not make.
OWN_CALLS = (
    "flock,membarrier,memfd_create,mremap,process_vm_readv,sched_getattr,sched_setattr,sigaltstack,"
    "tgkill,times"
)
LIMITS = {
    "a random user": Surroundings(),
    "a read-only root": Surroundings(read_only=True),
    "no writable folder": Surroundings(read_only=True, temporary="ro", shared_memory=False),
    "noexec /tmp": Surroundings(read_only=True, temporary="noexec"),
    "no /dev/shm": Surroundings(shared_memory=False),
    "no /proc/self/mem": Surroundings(readable_executable=False),
    "no /proc": Surroundings(proc=False),
    "Docker's filter": Surroundings(filtered=DOCKER),
    "Docker's filter, killing": Surroundings(filtered=(KILLED,)),
    "gVisor's calls": Surroundings(filtered=GVISOR_CALLS),
    "own calls: EPERM": Surroundings(filtered=(f"EPERM:{OWN_CALLS}",)),
    "own calls: ENOSYS": Surroundings(filtered=(f"ENOSYS:{OWN_CALLS}",)),
    "gVisor": Surroundings(gvisor=True),
    "little memory and 0.2 CPU": Surroundings(memory_mib=128, cores=0.2),
    "all of them": Surroundings(
        read_only=True,
        temporary="ro",
        shared_memory=False,
        proc=False,
        filtered=(*DOCKER, f"ENOSYS:{OWN_CALLS}"),
        memory_mib=128,
        cores=0.2,
    ),
}
EVERY_LIMIT = pytest.mark.parametrize("limit", LIMITS)
NO_FOLDER = ("no writable folder", "all of them")
NO_STACKS = (
    *("Docker's filter", "gVisor's calls", "own calls: EPERM", "own calls: ENOSYS", "all of them"),
)
NO_COPY = ("own calls: EPERM", "own calls: ENOSYS", "all of them")


def use(limit: str, what: str, folder: Path) -> Seen:
    script = str(HERE / "uses.py")
    done = LIMITS[limit].run(folder, sys.executable, script, what)
    assert done.returncode == 0, done.stderr
    seen: Seen = json.loads(done.stdout)
    assert "Traceback" not in done.stdout
    return seen


def said(seen: Seen) -> list[str]:
    """The lines on stderr before the report."""
    text = seen.get("stderr", seen.get("text", ""))
    return text.removesuffix(report_in(f"\n{text}")).splitlines()


@EVERY_LIMIT
@pytest.mark.parametrize("what", ["meter", "policy", "variable"])
def test_a_program_is_measured(limit: str, what: str, tmp_path: Path) -> None:
    seen = use(limit, what, tmp_path)
    assert (seen["status"], seen["stdout"], said(seen)) == (0, "done\n", []), seen
    assert "\nlight " in seen["stderr"]
    assert "\nheavy " in seen["stderr"]


@EVERY_LIMIT
def test_a_program_measures_itself(limit: str, tmp_path: Path) -> None:
    seen = use(limit, "install", tmp_path)
    assert seen == {"status": 0, "stdout": "True ['MainThread', 'sleeper']\n", "stderr": ""}


@EVERY_LIMIT
def test_children_are_in_the_report_or_a_line_says_why_not(limit: str, tmp_path: Path) -> None:
    seen = use(limit, "children", tmp_path)
    lost = "headway run: children started by exec or spawn are not in the report: "
    reasons = {
        "no /proc": "/proc/N/fd: No such file or directory",
        "no /proc/self/mem": "/proc/N/fd: only this process itself may open them",
        "own calls: EPERM": "memfd_create: Operation not permitted",
        "own calls: ENOSYS": "memfd_create: Function not implemented",
        "all of them": "/proc/N/fd: No such file or directory",
    }
    assert (seen["status"], seen["stdout"]) == (0, "done\n"), seen
    lines = [re.sub(r"\d+", "N", line) for line in said(seen)]
    assert lines == ([lost + reasons[limit]] if limit in reasons else [])
    if limit not in reasons:
        assert "Of 3 processes" in seen["stderr"]


@EVERY_LIMIT
def test_a_signal_ends_a_program_with_a_report_or_a_line(limit: str, tmp_path: Path) -> None:
    seen = use(limit, "interrupted", tmp_path)
    no_copy = "headway run: no report, since memfd_create, which copies the counters, is refused"
    assert seen["status"] == -15, seen
    assert said(seen) == ["ready", *([no_copy] if limit in NO_COPY else [])]
    assert bool(report_in(seen["text"])) == (limit not in NO_COPY)


@EVERY_LIMIT
@pytest.mark.parametrize("what", ["json", "profile", "trace"])
def test_files_are_written_or_refused(limit: str, what: str, tmp_path: Path) -> None:
    seen = use(limit, what, tmp_path)
    if limit in NO_FOLDER:
        name = {"json": "report.json", "profile": "report.svg", "trace": "trace.svg"}[what]
        refused = f"headway run: --{what} '/tmp/{name}' cannot be written: Read-only file system"
        assert (seen["status"], seen["stdout"], said(seen)) == (2, "", [refused])
        return
    assert (seen["status"], seen["stdout"]) == (0, "done\n"), seen
    lines = said(seen)
    if what == "profile" and (limit in NO_STACKS or len(lines) == 2):
        # gVisor has process_vm_readv from some version on.
        assert limit in (*NO_STACKS, "gVisor")
        assert "no stack of a running thread was read, so lines are missing: process" in lines[0]
        del lines[0]
    if what != "json":
        (line,) = lines
        assert f"/tmp/{'report' if what == 'profile' else what}.svg" in line
    elif limit in NO_COPY:
        assert lines == [
            "headway run: the ledger /tmp/report.json.ledger cannot be kept (No room in it, or "
            "mremap is forbidden): after a crash there will be no report"
        ]
    else:
        assert lines == []


@EVERY_LIMIT
def test_a_recorder_receives_the_reports_of_a_program_and_a_server(
    limit: str, tmp_path: Path
) -> None:
    seen = use(limit, "recorder", tmp_path)
    if limit in NO_FOLDER:
        refused = "headway telemetry: --listen unix:/tmp/recorder.sock: read-only file system"
        assert seen == {"recorder": {"status": 2, "text": f"{refused}\n"}}
        return
    assert (seen["program"]["status"], said(seen["program"])) == (0, [])
    assert (seen["answer"], seen["server"]["status"]) == ("served\n", 0)
    assert 'headway_requests_total{host="' in seen["metrics"]
    assert seen["top"]["status"] == 0
    if limit == "little memory and 0.2 CPU":
        assert "The cgroup's CPU limit is in the way" in seen["top"]["stdout"]
    assert seen["recorder"]["status"] == 0, seen["recorder"]
    lines = [line.split(":")[1].split(" ")[1] for line in seen["recorder"]["text"].splitlines()]
    # SQLite may not use a call that it needs: then the recorder keeps the last minutes only.
    assert lines[-2:] == ["receiving", "showing"]
    assert lines[:-2] in ([], ["the"])


def test_a_program_that_forbids_itself_threads_gets_none(tmp_path: Path) -> None:
    """A thread of Headway, which reads the stacks of late event loops, would be its end."""
    seen = use("a random user", "forbids_threads", tmp_path)
    assert (seen["status"], seen["stdout"], said(seen)) == (0, "done\n", []), seen
    assert "Late event loop: MainThread" in " ".join(seen["stderr"].split())


@pytest.mark.parametrize(
    "rules",
    [(), ("EPERM:openat,open",), ("forks",)],
    ids=["as it is", "nor files", "but forks"],
)
def test_a_reported_program_that_forbids_itself_threads_gets_none(
    rules: tuple[str, ...], tmp_path: Path
) -> None:
    """The reporter's thread is older than the filter, but none starts after it."""
    if why := no_filters():
        pytest.skip(why)
    ended = headway(
        "run", "--telemetry", f"unix:{tmp_path}/socket", HERE / "forbids_threads.py", *rules
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr


@EVERY_LIMIT
def test_a_server_serves(limit: str, tmp_path: Path) -> None:
    seen = use(limit, "served", tmp_path)
    assert (seen["answer"], seen["server"]["status"]) == ("served\n", 0), seen


@EVERY_LIMIT
def test_attach_measures_or_leaves_the_process_alone(limit: str, tmp_path: Path) -> None:
    seen = use(limit, "attached", tmp_path)
    assert seen["alive"]
    assert seen["program"] == {"status": -15, "text": "ready\n"}
    attach = seen["attach"]
    if attach["status"] == 0:
        assert attach["stdout"].startswith("headway  Python ")
        return
    assert (attach["status"], attach["stdout"]) == (2, "")
    (line,) = attach["stderr"].splitlines()
    reasons = {
        "no writable folder": "no folder can be made",
        "no /proc/self/mem": "may not be looked into: CAP_SYS_PTRACE is missing",
        "no /proc": "/proc is not mounted here",
        "Docker's filter": "ptrace: Operation not permitted: CAP_SYS_PTRACE is missing",
        "gVisor": "was left alone: /proc/self/ns/mnt is missing",
        "all of them": "/proc is not mounted here",
    }
    # Some gdb cannot call functions on some machines.
    assert reasons.get(limit, "this gdb cannot call a function") in line


@pytest.mark.parametrize(
    ("limit", "what", "status", "line"),
    [
        ("no writable folder", "audit", 1, "headway audit: no temporary file: no usable temporary"),
        ("no writable folder", "tune", 1, "headway tune: no temporary file: no usable temporary"),
        ("no /proc", "tune", 1, "headway tune: /proc/stat: no such file or directory; "),
        ("a random user", "by_default", 2, "headway telemetry: --store: this user has no home"),
        ("no writable folder", "live", 2, "headway telemetry: --listen unix:/tmp/recorder.sock: "),
    ],
)
def test_a_command_that_cannot_work_says_so_in_one_line(
    limit: str, what: str, status: int, line: str, tmp_path: Path
) -> None:
    seen = use(limit, what, tmp_path)
    assert seen["status"] == status
    text = seen.get("stderr", seen.get("text", ""))
    assert [each for each in text.splitlines() if each.startswith("headway")] == [
        text.splitlines()[-1]
    ]
    assert text.splitlines()[-1].startswith(line), text


@pytest.mark.parametrize(
    ("limit", "line"),
    [
        ("no writable folder", "--dashboard: a temporary directory for the socket of its recorder"),
        ("no /proc", "--dashboard: /proc is not mounted here"),
    ],
)
def test_a_dashboard_that_no_process_could_report_to_is_refused(
    limit: str, line: str, tmp_path: Path
) -> None:
    seen = use(limit, "dashboard", tmp_path)
    assert (seen["answer"], seen["server"]["status"]) == ("", 1)
    assert seen["server"]["text"].startswith(f"headway serve: {line}"), seen
