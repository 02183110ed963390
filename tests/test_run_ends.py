"""When the report of `headway run` comes, when it cannot, and what `headway report` reads then."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from launch import (
    GIL_ENABLED,
    PROGRAMS,
    TIMEOUT_S,
    Result,
    environment,
    execute,
    headway,
    python,
    read_json,
    report_in,
    run_main,
    start,
)

pytestmark = pytest.mark.free_threading

WAITS_FOR_EVER = {
    "in sleep": "import time; print('up', flush=True); time.sleep(600)",
    "computing": "print('up', flush=True)\nwhile True: sum(range(1000))",
    "in a C call that keeps the GIL": (
        "import ctypes; print('up', flush=True); ctypes.PyDLL(None).usleep(600_000_000)"
    ),
    "beside threads": (
        "import sys, threading\n"
        "def compute():\n  while True: sum(range(1000))\n"
        # Without a GIL, three would leave the report's process no processor.
        "count = 3 if getattr(sys, '_is_gil_enabled', lambda: True)() else 1\n"
        "threads = [threading.Thread(target=compute, name=f'hog-{n}') for n in range(count)]\n"
        "for thread in threads: thread.start()\n"
        "print('up', flush=True)\n"
        "for thread in threads: thread.join()"
    ),
    "with stdin closed": ("import os, time; os.close(0); print('up', flush=True); time.sleep(600)"),
}


def wait_until_gone(path: Path) -> None:
    end = time.monotonic() + TIMEOUT_S
    while path.exists():
        assert time.monotonic() < end, f"{path} is there after {TIMEOUT_S} s"
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("state", WAITS_FOR_EVER)
def test_a_signal_at_its_default_reports_and_ends(
    tmp_path: Path, state: str, number: signal.Signals
) -> None:
    out = tmp_path / "out.json"
    process = start("run", "--json", out, "-c", WAITS_FOR_EVER[state])
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == -number
    assert stdout == ""
    assert stderr == report_in(stderr) != ""
    report = read_json(out)
    assert report["pid"] == process.pid
    # The process that reports removes it last, and is left to itself after ten seconds.
    wait_until_gone(Path(f"{out}.ledger"))
    names = {thread["name"] for thread in report["threads"]}
    if state == "beside threads" and report["gil"] == "enabled":
        assert {"MainThread", "hog-0", "hog-1", "hog-2"} <= names


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("is_full", [False, True], ids=["broken pipe", "full disk"])
def test_a_stderr_that_cannot_be_written_does_not_keep_the_files(
    tmp_path: Path, is_full: bool, number: signal.Signals
) -> None:
    if is_full:
        theirs = os.open("/dev/full", os.O_WRONLY)
    else:
        ours, theirs = os.pipe()
        os.close(ours)
    out, trace = tmp_path / "out.json", tmp_path / "trace.json"
    # Without a GIL there is nothing to trace.
    traces = ["--trace", trace] if GIL_ENABLED else []
    words = ["--json", out, *traces, "-c", WAITS_FOR_EVER["in sleep"]]
    with start("run", *words, stderr=theirs) as process:
        os.close(theirs)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        assert process.wait(TIMEOUT_S) == -number
    assert read_json(out)["pid"] == process.pid
    assert sorted(tmp_path.iterdir()) == [out, *traces[1:]]


def test_ctrl_c_reports_after_the_traceback(tmp_path: Path) -> None:
    # CPython notices a signal that arrives just before the system call when that returns.
    program = "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.1)"
    process = start("run", "-c", program)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == -signal.SIGINT
    assert stderr.index("KeyboardInterrupt") < stderr.index("headway  Python")
    assert stderr.count("headway  Python") == 1


def test_a_signal_in_another_thread_ends_a_program_that_is_about_to_end() -> None:
    code = """
import os, signal, threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.kill(os.getpid(), signal.SIGTERM)
"""
    for _ in range(5):
        result = headway("run", "-c", code)
        assert result.returncode == -signal.SIGTERM
        assert "headway  Python" in result.stderr


@pytest.mark.parametrize("function", ["settrace", "setprofile"])
def test_the_program_does_not_trace_the_report(function: str) -> None:
    # Python deletes what is in the module sys after all callbacks of atexit.
    code = f"""
import os, sys
files = []
def trace(frame, event, argument):
    files.append(frame.f_code.co_filename)
class Last:
    def __del__(self, files=files, write=os.write):
        ours = sum(['/headway/' in file for file in files[:]])
        write(1, b"%d" % ours)
sys.last = Last()
sys.{function}(trace)
"""
    result = headway("run", "-c", code)
    assert "headway  Python" in result.stderr
    # Up to the call that ends tracing. The report would be hundreds.
    assert int(result.stdout) < 10


def test_the_programs_own_handler_takes_the_place_of_ours() -> None:
    code = """
import os, signal, sys
assert signal.signal(signal.SIGTERM, lambda *_: sys.exit(12)) is signal.SIG_DFL
os.kill(os.getpid(), signal.SIGTERM)
"""
    result = headway("run", "-c", code)
    assert result.returncode == 12
    assert result.stderr.count("headway  Python") == 1


def test_getsignal_shows_no_handler() -> None:
    code = "import signal; print(signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP))"
    assert headway("run", "-c", code).stdout == python("-c", code).stdout


PUTS_THE_DEFAULT_BACK = {
    "signal.signal": (
        "old = signal.signal(number, lambda *_: 0)\n"
        "assert old is signal.SIG_DFL\n"
        "signal.signal(number, old)\n"
    ),
    "asyncio": (
        "import asyncio\n"
        "async def main():\n"
        "    loop = asyncio.get_running_loop()\n"
        "    loop.add_signal_handler(number, print)\n"
        "    loop.remove_signal_handler(number)\n"
        "asyncio.run(main())\n"
    ),
    "siginterrupt": "signal.siginterrupt(number, True)\n",
    "faulthandler": (
        "import faulthandler\n"
        "faulthandler.register(number, file=open(os.devnull, 'w'), chain=True)\n"
    ),
    "a handler that raises the signal again": (
        "def again(*_):\n"
        "    signal.signal(number, signal.SIG_DFL)\n"
        "    os.kill(os.getpid(), number)\n"
        "signal.signal(number, again)\n"
    ),
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("how", PUTS_THE_DEFAULT_BACK)
def test_a_default_that_the_program_puts_back_reports(how: str, number: signal.Signals) -> None:
    code = (
        f"import os, signal, time\nnumber = {int(number)}\n{PUTS_THE_DEFAULT_BACK[how]}"
        "if how != 'again': print(signal.getsignal(number), flush=True)\n"
        "os.kill(os.getpid(), number)\ntime.sleep(60)\n"
    ).replace("how != 'again'", repr(how != "a handler that raises the signal again"))
    plain = python("-c", code)
    measured = headway("run", "-c", code)
    assert (measured.returncode, measured.stdout) == (plain.returncode, plain.stdout)
    assert measured.returncode == -number
    assert measured.stderr == report_in(measured.stderr) != ""


@pytest.mark.parametrize("name", ["SIGINT", "SIGPIPE", "SIGALRM", "SIGUSR1", "SIGUSR2"])
def test_a_default_that_the_program_chooses_reports(name: str) -> None:
    code = (
        f"import os, signal, time; signal.signal(signal.{name}, signal.SIG_DFL)\n"
        f"os.kill(os.getpid(), signal.{name}); time.sleep(60)"
    )
    measured = headway("run", "-c", code)
    assert (measured.returncode, measured.stdout) == (-signal.Signals[name], "")
    assert measured.stderr == report_in(measured.stderr) != ""


def test_children_find_the_default_that_the_program_put_back() -> None:
    """Forked ones die of the signal and say nothing; executed ones have the kernel's default."""
    code = """
import os, signal, subprocess, sys, time
number = signal.SIGTERM
signal.signal(number, signal.signal(number, lambda *_: 0))
ready, written = os.pipe()
pid = os.fork()
if pid == 0:
    signal.signal(number, signal.SIG_DFL)
    os.write(written, b"x")
    time.sleep(60)
os.read(ready, 1)
os.kill(pid, number)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
look = "print([line for line in open('/proc/self/status') if line.startswith('SigCgt')])"
for restore in (True, False):
    subprocess.run([sys.executable, "-S", "-c", look], restore_signals=restore)
"""
    plain = python("-c", code)
    measured = headway("run", "-c", code)
    assert measured.stdout == plain.stdout
    assert measured.stdout.startswith(f"{-signal.SIGTERM}\n")
    assert measured.stderr == report_in(measured.stderr) != ""


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 0)]
)
def test_uvicorn_reports_when_it_is_stopped(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    pytest.importorskip("uvicorn")
    (tmp_path / "app.py").write_text("async def app(scope, receive, send): pass\n")
    arguments = ("-m", "uvicorn", "--port", "0", "app:app")
    process = start("run", *arguments, cwd=tmp_path)
    assert process.stderr is not None
    for line in process.stderr:
        if "Uvicorn running" in line:
            break
    process.send_signal(number)
    _, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == status
    assert "Finished server process" in stderr
    assert stderr.count("headway  Python") == 1


def test_a_forked_child_that_is_terminated_says_nothing(tmp_path: Path) -> None:
    code = """
import os, signal, time
ready, written = os.pipe()
pid = os.fork()
if pid == 0:
    os.write(written, b"x")
    time.sleep(600)
os.read(ready, 1)
os.kill(pid, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    result = headway("run", "--json", tmp_path / "out.json", "-c", code)
    assert result.stdout == f"{-signal.SIGTERM}\n"
    assert result.stderr.count("headway  Python") == 1
    assert (tmp_path / "out.json").exists()


def test_the_report_makes_no_child_that_the_program_sees(tmp_path: Path) -> None:
    """No SIGCHLD, and nothing for a waitpid() in another thread to reap."""
    code = """
import os, signal, sys, threading, time
seen = open(sys.argv[1], "w", buffering=1)
signal.signal(signal.SIGCHLD, lambda *_: seen.write("SIGCHLD"))
keeper = os.fork()
if keeper == 0:
    time.sleep(600)
def reap():
    while True:
        pid, _ = os.waitpid(-1, 0)
        seen.write(f"reaped {pid}")
threading.Thread(target=reap, daemon=True).start()
print(keeper, flush=True)
while True:
    time.sleep(0.01)
"""
    with (tmp_path / "stderr").open("w") as stderr:
        process = start("run", "-c", code, tmp_path / "seen", stderr=stderr)
    assert process.stdout is not None
    with process.stdout:
        keeper = int(process.stdout.readline())
        process.terminate()
        process.wait(TIMEOUT_S)
    os.kill(keeper, signal.SIGKILL)
    assert process.returncode == -signal.SIGTERM
    assert report_in((tmp_path / "stderr").read_text())
    assert (tmp_path / "seen").read_text() == ""


KILLED = {
    "SIGKILL": ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
    "SIGSEGV": ("import os; os.kill(os.getpid(), 11)", -signal.SIGSEGV),
    "os._exit": ("import os; os._exit(6)", 6),
}


THREADS_THAT_SUM = (
    "import threading\n"
    "threads = [threading.Thread(target=sum, args=(range(1_000_000),), name=f'sum-{n}')"
    " for n in range(2)]\n"
    "[thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
)


@pytest.mark.parametrize("how", KILLED)
def test_what_a_crash_leaves_can_be_read(tmp_path: Path, how: str) -> None:
    code, status = KILLED[how]
    out = tmp_path / "out.json"
    out.write_text("{of an earlier run}")
    os.utime(out, (1, 1))
    result = headway("run", "--json", out, "-c", THREADS_THAT_SUM + code)
    assert result.returncode == status
    assert report_in(result.stderr) == ""
    ledger = Path(f"{out}.ledger")
    assert ledger.exists()

    shown = run_main("report", out)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == run_main("report", ledger).stdout
    assert shown.stdout.startswith("headway  Python ")
    if "GIL disabled" not in shown.stdout:
        assert "sum-0" in shown.stdout
        assert "sum-1" in shown.stdout

    # The next run that ends well has the last word.
    assert headway("run", "--json", out, "-c", "pass").returncode == 0
    assert not ledger.exists()
    assert read_json(out)["schema"] == 2


@pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL")
@pytest.mark.parametrize("policy", ["interval", "priority"])
def test_a_kill_leaves_the_hold_and_the_wait_that_had_not_ended(
    tmp_path: Path, policy: str
) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, str(PROGRAMS / "frozen" / "by_a_search.py")]
    variables = environment(HEADWAY=f"report={out},{policy}")
    with subprocess.Popen(command, env=variables) as program:
        deadline = time.monotonic() + 60
        while "had not ended" not in run_main("report", out).stdout:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        program.kill()
    shown = run_main("report", "--json", tmp_path / "copy.json", out)
    said = " ".join(shown.stdout.split())
    assert "A long hold that had not ended: worker had kept the GIL for " in said
    assert "; MainThread had waited " in said
    threads = {row["name"]: row for row in read_json(tmp_path / "copy.json")["threads"]}
    assert threads["worker"]["holding_now_s"] >= threads["MainThread"]["waiting_now_s"] >= 1.0
    assert threads["worker"]["waiting_now_s"] is threads["MainThread"]["holding_now_s"] is None


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report that a crash left."""
    out = tmp_path_factory.mktemp("crash") / "out.json"
    code, status = KILLED["SIGKILL"]
    assert headway("run", "--json", out, "-c", THREADS_THAT_SUM + code).returncode == status
    return Path(f"{out}.ledger")


def report_from_stdin(stdin: Any, copy: Path) -> Result:
    return headway("report", "--json", copy, "-", stdin=stdin)


def test_a_ledger_is_read_from_stdin_and_goes_on_to_json(tmp_path: Path, ledger: Path) -> None:
    shown = run_main("report", ledger)
    copy = tmp_path / "copy.json"
    with ledger.open("rb") as stream:
        assert report_from_stdin(stream, copy).stdout == shown.stdout
    assert run_main("report", copy).stdout == shown.stdout


@pytest.mark.slow("sends a gigabyte through a pipe")
def test_a_ledger_is_read_from_a_pipe_where_it_cannot_be_mapped(
    tmp_path: Path, ledger: Path
) -> None:
    shown = run_main("report", ledger)
    copy = tmp_path / "copy.json"
    with subprocess.Popen(["cat", ledger], stdout=subprocess.PIPE) as cat:
        assert report_from_stdin(cat.stdout, copy).stdout == shown.stdout
    assert run_main("report", copy).stdout == shown.stdout


def test_a_run_that_goes_on_can_be_read(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    process = start("run", "--json", out, "-c", WAITS_FOR_EVER["in sleep"])
    assert process.stdout is not None
    process.stdout.readline()
    assert f"pid {process.pid}" in run_main("report", out).stdout
    process.terminate()
    process.communicate(timeout=TIMEOUT_S)
    assert f"pid {process.pid}" in run_main("report", out).stdout


def test_two_runs_into_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    code = "import sys, threading; print('up', flush=True); sys.stdin.read(); print('well')"
    first = start("run", "--json", out, "-c", code, stdin=-1)
    assert first.stdout is not None
    first.stdout.readline()
    assert headway("run", "--json", out, "-c", "pass").returncode == 0
    stdout, _ = first.communicate("", timeout=TIMEOUT_S)
    assert (first.returncode, stdout) == (0, "well\n")
    assert read_json(out)["pid"] == first.pid


def test_json_equals_what_the_terminal_shows(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = headway("run", "--json", out, PROGRAMS / "hog_and_waiter.py")
    assert run_main("report", out).stdout == report_in(result.stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_json_to_where_the_program_has_left_for(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    result = headway(
        "run", "--json", "out.json", "-c", "import os; os.chdir('elsewhere')", cwd=tmp_path
    )
    assert result.returncode == 0
    assert read_json(tmp_path / "out.json")["schema"] == 2


def test_json_through_a_link_goes_to_its_target(tmp_path: Path) -> None:
    (tmp_path / "target.json").write_text("old")
    (tmp_path / "link.json").symlink_to("target.json")
    headway("run", "--json", tmp_path / "link.json", "-c", "pass")
    assert (tmp_path / "link.json").is_symlink()
    assert read_json(tmp_path / "target.json")["schema"] == 2


@pytest.mark.parametrize("path", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_json_to_a_pipe(tmp_path: Path, path: str) -> None:
    result = headway("run", "--json", path, "-c", "print('program')", cwd=tmp_path)
    first, second = result.stdout.splitlines()
    assert first == "program"
    assert second.startswith('{"schema":2,')
    assert list(tmp_path.iterdir()) == []


def test_json_that_cannot_be_written_at_the_end_changes_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    code = f"import shutil, sys; shutil.rmtree({str(folder)!r}); sys.exit(3)"
    result = headway("run", "--json", folder / "out.json", "-c", code)
    assert result.returncode == 3
    assert "headway run: --json" in result.stderr
    assert "No such file or directory" in result.stderr
    assert report_in(result.stderr)


def test_json_to_stdout_at_a_signal() -> None:
    process = start("run", "--json", "-", "-c", WAITS_FOR_EVER["in sleep"])
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert json.loads(stdout)["pid"] == process.pid
    assert stderr == report_in(stderr) != ""


def test_without_room_for_a_ledger_the_books_are_in_memory(tmp_path: Path) -> None:
    # Far less than a ledger, far more than a report.
    most = 1 << 20
    result = headway(
        "run",
        "--json",
        tmp_path / "out.json",
        "-c",
        "import sys; print(sys.argv); sys.exit(3)",
        "x",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )
    assert (result.returncode, result.stdout) == (3, "['-c', 'x']\n")
    first, rest = result.stderr.split("\n", 1)
    assert first.startswith(f"headway run: the ledger {tmp_path}/out.json.ledger cannot be kept (")
    assert first.endswith("): after a crash there will be no report")
    assert rest == report_in(result.stderr)
    assert read_json(tmp_path / "out.json")["schema"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


@pytest.mark.parametrize("options", [[], ["--json", "out.json"]])
def test_a_limit_on_address_space_leaves_room_for_the_ledger(
    tmp_path: Path, options: list[str]
) -> None:
    """A ledger has room for 64 processes; a program maps its own part of that."""
    most = 600_000 * 1024
    code = "import os, sys; os.fork() or os._exit(0); os.wait(); sys.exit(3)"
    result = headway(
        "run",
        *options,
        "-c",
        code,
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)),
    )
    assert result.returncode == 3
    assert result.stderr == report_in(result.stderr)
    assert "\nchild " in result.stderr


SHOWS_SETTINGS = (
    "import sys; from headway import gil;"
    "print(gil.snapshot().to_dict()['policy'], sys.getswitchinterval())"
)


def test_without_room_for_a_ledger_children_are_not_in_the_report(tmp_path: Path) -> None:
    child = [sys.executable, "-c", SHOWS_SETTINGS]
    result = headway(
        "run",
        "--follow",
        "--policy=interval",
        "--switch-interval=500us",
        "-c",
        f"import subprocess; subprocess.run({child!r})",
        env=environment(TMPDIR=str(tmp_path)),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )
    assert (result.returncode, result.stdout) == (0, "interval 0.0005\n")
    assert "): children started by exec or spawn are not in the report\n" in result.stderr
    report = report_in(result.stderr)
    assert report
    assert "\nchild " not in report
    assert list(tmp_path.iterdir()) == []


def test_a_meter_that_cannot_start_leaves_no_ledger(tmp_path: Path) -> None:
    ledger = str(tmp_path / "out.json.ledger")
    code = (
        "import os, sys; sys.modules['headway._native'] = None;"
        "os.environ['HEADWAY'] = "
        f"f'run:pid={{os.getpid()}},ledger=\\'{ledger.encode().hex()}';"
        "from headway import environment; environment.start(); print('ran')"
    )
    result = python("-c", code)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("headway run: the GIL meter cannot be installed")
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_report_needs_no_more_descriptors() -> None:
    code = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3)); print('ran')"
    result = headway("run", "-c", code)
    assert (result.returncode, result.stdout) == (0, "ran\n")
    assert result.stderr == report_in(result.stderr) != ""


GIVES_UP_RIGHTS = {
    "chroot": "os.chroot({jail!r}); os.chdir('/')",
    "setuid": "os.setgid(65534); os.setuid(65534); os.chdir('/')",
    "setreuid": "os.setreuid(65534, 65534)",
    "setresuid": "os.setresuid(65534, 65534, 65534)",
    "seteuid": "os.seteuid(65534)",
    "chroot and setuid": "os.chroot({jail!r}); os.chdir('/'); os.setuid(65534)",
}


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot and setuid need root")
@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("how", GIVES_UP_RIGHTS)
def test_the_json_is_written_by_a_program_that_gave_up_its_rights(
    tmp_path: Path, how: str, earlier: bool
) -> None:
    (tmp_path / "out").mkdir(mode=0o700)
    out = tmp_path / "out" / "out.json"
    if earlier:
        out.write_text("x" * 100_000)
    # A jail with the same names: what is written there is not the report's file.
    (tmp_path / "jail").joinpath(*out.parent.parts[1:]).mkdir(parents=True)
    code = GIVES_UP_RIGHTS[how].format(jail=str(tmp_path / "jail"))
    result = headway("run", "--json", out, "-c", f"import os; {code}")
    assert result.returncode == 0
    assert read_json(out)["schema"] == 2
    ledger = Path(f"{out}.ledger")
    stays = f"headway run: the ledger {ledger} stays, and is not needed: Permission denied\n"
    if how == "chroot":
        stays = ""
    assert result.stderr.startswith("headway  Python")
    assert result.stderr.count("headway run: ") == bool(stays)
    assert result.stderr.endswith(stays)
    assert ledger.exists() == bool(stays)
    assert run_main("report", out).stdout.startswith("headway  Python")
    # The next run of the same name removes it.
    assert headway("run", "--json", out, "-c", "pass").returncode == 0
    assert sorted(os.listdir(out.parent)) == ["out.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="setuid needs root")
def test_without_the_descriptor_the_ledger_has_the_books(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir(mode=0o700)
    out = tmp_path / "out" / "out.json"
    code = "import os; os.setuid(65534); os.closerange(3, 1000)"
    result = headway("run", "--json", out, "-c", code)
    assert result.returncode == 0
    first, rest = result.stderr.split("\n", 1)
    assert first == (
        f"headway run: --json '{out}': Permission denied; `headway report {out}` has the report, "
        f"from {out}.ledger"
    )
    assert rest == report_in(result.stderr)
    assert run_main("report", out).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="setuid needs root")
def test_a_signal_writes_the_json_by_the_descriptor(tmp_path: Path) -> None:
    """The file's name is gone here: another user may not be able to start this Python at all."""
    (tmp_path / "out").mkdir()
    code = (
        "import os, signal; os.seteuid(65534); os.seteuid(0); os.rename('out', 'moved');"
        "os.kill(os.getpid(), signal.SIGTERM)"
    )
    result = headway("run", "--json", "out/out.json", "-c", code, cwd=tmp_path)
    assert result.returncode == -signal.SIGTERM
    assert result.stderr == report_in(result.stderr) != ""
    assert read_json(tmp_path / "moved" / "out.json")["schema"] == 2


def test_a_signal_reports_without_the_json_where_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    code = "import os, signal; os.rename('out', 'moved'); os.kill(os.getpid(), signal.SIGTERM)"
    result = headway("run", "--json", "out/out.json", "-c", code, cwd=tmp_path)
    assert result.returncode == -signal.SIGTERM
    line, rest = result.stderr.split("\n", 1)
    assert line.startswith(
        f"headway run: --json '{tmp_path}/out/out.json' cannot be written: No such"
    )
    assert rest == report_in(result.stderr) != ""
    assert run_main("report", tmp_path / "moved" / "out.json").returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot and setuid need root")
def test_a_signal_after_chroot_says_where_the_books_are(tmp_path: Path) -> None:
    (tmp_path / "jail").mkdir()
    out = tmp_path / "out.json"
    code = (
        f"import os, signal; os.chroot({str(tmp_path / 'jail')!r});"
        "os.kill(os.getpid(), signal.SIGTERM)"
    )
    result = headway("run", "--json", out, "-c", code)
    assert result.returncode == -signal.SIGTERM
    assert result.stderr == (
        "headway run: no report, since Python cannot be started from here: the counters are in "
        f"{out}.ledger\n"
    )
    assert run_main("report", out).stdout.startswith("headway  Python")


def test_a_program_that_keeps_its_rights_has_no_more_descriptors(tmp_path: Path) -> None:
    code = "import os; print(sorted(os.listdir('/proc/self/fd')))"
    result = headway("run", "--json", tmp_path / "out.json", "-c", code)
    assert result.stdout == python("-c", code).stdout


@pytest.mark.parametrize("pages", [1, 2])
def test_a_full_disk_is_no_place_for_a_ledger(tmp_path: Path, pages: int) -> None:
    """One page is filled already; a second has room for the ledger's head, and not for counters."""
    size = pages * resource.getpagesize()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or execute(mount).returncode != 0:
        pytest.skip("a small file system needs root and mount(8)")
    try:
        if pages == 1:
            (tmp_path / "other").write_bytes(b"x")
        result = headway("run", "--json", tmp_path / "out.json", "-c", "print('ran')")
        assert (result.returncode, result.stdout) == (0, "ran\n")
        lines = result.stderr.splitlines()
        assert lines[0].startswith(
            f"headway run: the ledger {tmp_path}/out.json.ledger cannot be kept (No "
        )
        assert report_in(result.stderr)
        assert not (tmp_path / "out.json.ledger").exists()
    finally:
        assert execute(["umount", str(tmp_path)]).returncode == 0
