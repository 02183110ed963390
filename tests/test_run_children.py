"""Forked children, children that `--follow` carries the meter into, and those it leaves alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from launch import PROGRAMS, environment, execute, headway, python, read_json, start

from headway.meter.run_settings import Settings

pytestmark = pytest.mark.free_threading

WORK = (
    "import threading; t = threading.Thread(target=sum, args=(range(10000),)); t.start(); t.join()"
)


def run_to_json(tmp_path: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    out = tmp_path / "out.json"
    result = headway("run", "--json", out, *arguments)
    assert result.returncode == 0, result.stderr
    return read_json(out), result.stderr


def test_forked_children_are_listed_by_pid(tmp_path: Path) -> None:
    code = f"""
import os, sys
pids = []
for n in range(3):
    pid = os.fork()
    if pid == 0:
        {WORK}
        sys.exit(0)
    pids.append(pid)
for pid in pids:
    os.waitpid(pid, 0)
open({str(tmp_path / "pids")!r}, "w").write(repr(pids))
"""
    report, stderr = run_to_json(tmp_path, "-c", code)
    pids = eval((tmp_path / "pids").read_text())
    assert sorted(child["pid"] for child in report["children"]) == sorted(pids)
    assert stderr.count("headway  Python") == 1
    for pid in pids:
        assert stderr.count(f"\npid {pid} ") == 1


@pytest.mark.parametrize("options", [[], ["-I"], ["-E"], ["-X", "dev"]])
def test_followed_children_keep_their_books_with_the_owner(
    tmp_path: Path, options: list[str]
) -> None:
    command = [sys.executable, *options, "-c", WORK]
    code = f"import subprocess; print(subprocess.Popen({command!r}).wait())"
    report, stderr = run_to_json(tmp_path, "--follow", "-c", code)
    assert len(report["children"]) == 1
    child = report["children"][0]
    if report["gil"] == "enabled":
        assert child["gils"][0]["takes"] > 0
    assert child["pid"] != report["pid"]
    assert stderr.count("headway  Python") == 1

    alone, _ = run_to_json(tmp_path, "-c", code)
    assert alone["children"] == []


def test_children_of_followed_children_are_followed(tmp_path: Path) -> None:
    inner = [sys.executable, "-c", WORK]
    outer = [sys.executable, "-c", f"import os, subprocess; subprocess.run({inner!r}); os.fork()"]
    report, _ = run_to_json(
        tmp_path, "--follow", "-c", f"import subprocess; subprocess.run({outer!r})"
    )
    # The two that were executed, and the one forked by the first of them.
    assert len(report["children"]) == 3


def test_children_have_a_command_and_how_they_came_to_be(tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    inner = [sys.executable, "-X", "dev", "-c", f"{WORK}  # \x1b[31m"]
    script.write_text(f"""
import os, subprocess
subprocess.run({inner!r})
pid = os.fork()
if pid == 0:
    os._exit(0)
os.waitpid(pid, 0)
""")
    report, stderr = run_to_json(tmp_path, "--follow", str(script), "an argument")
    assert report["command"][-2:] == [str(script), "an argument"]
    assert (report["forked_from"], len(report["children"])) == (None, 2)
    executed, forked = sorted(report["children"], key=lambda child: child["forked_from"] or 0)
    assert executed["command"][1:] == inner[1:]
    assert executed["parent_pid"] == forked["forked_from"] == report["pid"]
    assert forked["command"] == report["command"]
    assert f"pid {executed['pid']} python -c import th" in stderr
    assert f"pid {forked['pid']} fork of app.py an argument" in stderr
    assert "\x1b" not in stderr


def test_the_summary_is_of_the_child_that_waited(tmp_path: Path) -> None:
    inner = """if True:
        import threading, time
        end = time.monotonic() + 0.4
        def spin():
            while time.monotonic() < end: pass
        threads = [threading.Thread(target=spin) for _ in range(3)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    """
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    report, stderr = run_to_json(tmp_path, "--follow", "-c", code)
    if report["gil"] == "enabled":
        pid = report["children"][0]["pid"]
        said = " ".join(stderr.split())
        assert f"Of 2 processes, pid {pid} (python -c if True:" in said


def test_a_long_command_is_kept_as_far_as_there_is_room(tmp_path: Path) -> None:
    arguments = ["é" * 3000, "never seen"]
    report, _ = run_to_json(tmp_path, "-c", "pass", *arguments)
    assert report["command"][0] == sys.executable
    assert report["command"][-1].strip("é") == ""
    assert 300 < len(report["command"][-1]) < 512


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_multiprocessing_is_followed(tmp_path: Path, start_method: str) -> None:
    report, _ = run_to_json(tmp_path, "--follow", str(PROGRAMS / f"processes_{start_method}.py"))
    # Two of the pool and one more; with spawn, the resource tracker as well.
    assert len(report["children"]) >= 3


READS_LEDGER = (
    "from headway.meter.run_settings import Settings;"
    "path = Settings.from_text(os.environ['HEADWAY'].split(':', 2)[2]).ledger"
)
SHOWS_LEDGER = (
    "import os, subprocess, sys;"
    f"{READS_LEDGER};"
    "print(path, os.path.exists(path), flush=True);"
    f"subprocess.run([sys.executable, '-c', {WORK!r}])"
)


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    return folder


def test_without_json_the_ledger_is_in_the_runtime_directory(runtime: Path) -> None:
    variables = environment(XDG_RUNTIME_DIR=str(runtime))
    result = headway("run", "--follow", "-c", SHOWS_LEDGER, env=variables)
    path, exists = result.stdout.split()
    assert Path(path).parent == runtime / "headway"
    assert exists == "True"
    assert os.listdir(runtime / "headway") == []
    assert (runtime / "headway").stat().st_mode & 0o022 == 0
    assert "\nchild " in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="the folder of another user needs root")
@pytest.mark.parametrize("what", ["of another user", "open to others", "a link"])
def test_a_runtime_directory_that_others_have_a_say_in_is_not_used(
    runtime: Path, tmp_path: Path, what: str
) -> None:
    folder = runtime / "headway"
    if what == "a link":
        folder.symlink_to(tmp_path)
    else:
        folder.mkdir(mode=0o700)
    if what == "of another user":
        os.chown(folder, 65534, 65534)
    elif what == "open to others":
        folder.chmod(0o770)
    variables = environment(XDG_RUNTIME_DIR=str(runtime))
    result = headway("run", "--follow", "-c", SHOWS_LEDGER, env=variables)
    path, exists = result.stdout.split()
    assert (Path(path).parent, exists) == (Path("/run/headway"), "True")
    assert "\nchild " in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runtime"]


def test_without_a_runtime_directory_the_ledger_has_no_name(tmp_path: Path) -> None:
    """Where root cannot have one, an ordinary user without a session may have none either."""
    code = (
        "import os, sys; from headway.commands import run; run.runtime_folder = lambda: '';"
        "from headway.cli import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", code, "run", "--follow", "-c", SHOWS_LEDGER]
    result = execute(command, env=environment(TMPDIR=str(tmp_path)))
    path, exists = result.stdout.split()
    assert path.startswith("/proc/")
    assert exists == "True"
    assert "\nchild " in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_without_a_name_is_not_looked_for_in_another_file(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys;"
        f"{READS_LEDGER};"
        "fd = int(os.path.basename(path)); os.close(fd);"
        "read, write = os.pipe(); os.dup2(read, fd);"
        f"subprocess.run([sys.executable, '-c', {WORK!r}], check=True); print('ran')"
    )
    no_folder = (
        "import sys; from headway.commands import run; run.runtime_folder = lambda: '';"
        "from headway.cli import main; sys.exit(main())"
    )
    result = execute([sys.executable, "-c", no_folder, "run", "--follow", "-c", code])
    assert result.stdout == "ran\n"
    assert "\nchild " not in result.stderr


def test_the_next_run_removes_ledgers_of_the_dead_alone(runtime: Path) -> None:
    variables = environment(XDG_RUNTIME_DIR=str(runtime))
    folder = runtime / "headway"
    killed = headway("run", "--follow", "-c", "import os; os.kill(os.getpid(), 9)", env=variables)
    assert killed.returncode == -9
    (left,) = folder.iterdir()
    (folder / "of somebody").write_text("else")

    waits = "import sys; print('up', flush=True); sys.stdin.read()"
    with start("run", "--follow", "-c", waits, stdin=-1, env=variables) as running:
        assert running.stdout is not None
        assert running.stdin is not None
        running.stdout.readline()
        assert not left.exists()
        (alive,) = [path for path in folder.iterdir() if path.name != "of somebody"]
        # Its process is in another PID namespace, perhaps: the pid tells nothing there.
        elsewhere = folder / f"4194305-{alive.name.partition('-')[2]}"
        alive.rename(elsewhere)
        assert headway("run", "--follow", "-c", "pass", env=variables).returncode == 0
        assert elsewhere.exists()
        elsewhere.rename(alive)
        running.stdin.close()
        running.wait(60)
    assert [path.name for path in folder.iterdir()] == ["of somebody"]


def test_a_program_needs_little_more_address_space() -> None:
    code = (
        "print(*[line.split()[1] for line in open('/proc/self/status')"
        " if line.startswith(('VmPeak:', 'VmSize:'))])"
    )
    plain, measured = (each("-c", code).stdout.split() for each in (python, run_headway))
    for without, with_headway in zip(plain, measured, strict=True):
        # glibc reserves 64 MiB for the first thread that allocates, ours among them.
        assert int(with_headway) - int(without) < 200_000


def run_headway(*arguments: str) -> Any:
    return headway("run", *arguments)


def following(ledger: str, policy: str) -> str:
    settings = Settings()
    settings.pid, settings.policy, settings.follow, settings.ledger = 1, policy, True, ledger
    return f"7:{settings.to_text()}"


@pytest.mark.parametrize(
    "value",
    [
        "",
        ":",
        "nonsense",
        ":::",
        "1",
        f"x:{Settings().to_text()}",
        "1:pid",
        "1:pid=1,",
        "1:pid=x",
        "1:pid='31",
        "1:quiet=True",
        "1:to_text=1",
        "1:policy='6e6f6e73656e7365",
        "1:ledger='x",
        following("/nowhere/at/all", "interval"),
        following("/dev/null", "priority"),
        following("/dev/zero", "deadline"),
        following("/", "interval"),
    ],
)
def test_a_child_whose_owner_is_gone_runs_as_ever(value: str) -> None:
    code = "import sys; print('ran', sys.argv); sys.exit(4)"
    plain = python("-c", code)
    followed = execute([sys.executable, "-c", code], env=environment(HEADWAY=f"follow:{value}"))
    assert (followed.returncode, followed.stdout, followed.stderr) == (4, plain.stdout, "")


def test_a_fifo_in_the_place_of_the_ledger_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    following_fifo = following(str(tmp_path / "fifo"), "interval")
    variables = environment(HEADWAY=f"follow:{following_fifo}")
    followed = execute([sys.executable, "-c", "print('ran')"], env=variables)
    assert (followed.stdout, followed.stderr) == ("ran\n", "")


def test_settings_for_another_process_are_not_taken(tmp_path: Path) -> None:
    variables = environment(HEADWAY="run:pid=1")
    code = "import os, sys; print('HEADWAY' in os.environ, 'headway.meter.engine' in sys.modules)"
    result = execute([sys.executable, "-c", code], env=variables)
    assert (result.stdout, result.stderr) == ("False False\n", "")


def test_headway_run_inside_headway_run(tmp_path: Path) -> None:
    inner = [
        sys.executable,
        "-m",
        "headway",
        "run",
        "--json",
        str(tmp_path / "in.json"),
        "-c",
        WORK,
    ]
    code = f"import subprocess; subprocess.run({inner!r}, check=True)"
    report, stderr = run_to_json(tmp_path, "--follow", "-c", code)
    assert stderr.count("headway  Python") == 2
    own = read_json(tmp_path / "in.json")
    assert own["pid"] != report["pid"]
    assert own["children"] == []


def test_many_children_leave_no_files(tmp_path: Path, runtime: Path) -> None:
    child = [sys.executable, "-c", WORK]
    code = f"import subprocess; [subprocess.run({child!r}) for _ in range(5)]"
    variables = environment(TMPDIR=str(tmp_path), XDG_RUNTIME_DIR=str(runtime))
    result = headway("run", "--follow", "-c", code, env=variables)
    assert result.returncode == 0, result.stderr
    assert os.listdir(tmp_path) == ["runtime"]
    assert os.listdir(runtime / "headway") == []
