"""Programs that replace themselves by exec: the report goes on in the next image, or is first."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from launch import (
    PROGRAMS,
    environment,
    execute,
    headway,
    python,
    read_json,
    report_in,
    run_main,
)

pytestmark = pytest.mark.free_threading

REPLACED_ONCE = "headway run: the program replaced itself once, by exec; what it did before is "
REPORTED_BEFORE = "headway run: the program replaces itself by "

NAMED_WORK = """
import threading
def work(name):
    thread = threading.Thread(target=sum, args=(range(100_000),), name=name)
    thread.start()
    thread.join()
"""


@pytest.mark.parametrize("options", [[], ["--follow"], ["--json", "out.json"]])
def test_the_report_of_the_same_interpreter_has_both_images(
    tmp_path: Path, options: list[str]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        f"import os, sys\n{NAMED_WORK}"
        "work('second' if len(sys.argv) > 1 else 'first')\n"
        "print('up', flush=True)\n"
        "if len(sys.argv) == 1: os.execv(sys.executable, [sys.executable, __file__, 'again'])\n"
        "sys.exit(5)\n"
    )
    out = tmp_path / "all.json"
    arguments = [out if option == "out.json" else option for option in options]
    result = headway("run", *arguments, program, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (5, "up\nup\n")
    line, rest = result.stderr.split("\n", 1)
    assert line.startswith(REPLACED_ONCE)
    assert rest == report_in(result.stderr)
    if "--json" in options:
        report = read_json(out)
        (before,) = report["children"]
        assert before["pid"] == report["pid"]
        assert not any(gil["alive"] for gil in before["gils"])
        if report["gil"] == "enabled":
            assert "second" in {thread["name"] for thread in report["threads"]}
            assert "first" in {thread["name"] for thread in before["threads"]}
        assert sorted(os.listdir(tmp_path)) == ["all.json", "program.py"]


def test_children_of_the_image_before_are_followed_to_their_end(tmp_path: Path) -> None:
    code = f"""
import os, subprocess, sys
if len(sys.argv) == 1:
    subprocess.run([sys.executable, "-c", "pass"])
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=-1)
    os.set_inheritable(child.stdin.fileno(), True)
    os.execv(sys.executable, [sys.executable, {str(tmp_path / "program.py")!r}, str(child.pid),
                              str(child.stdin.fileno())])
os.close(int(sys.argv[2]))
os.waitpid(int(sys.argv[1]), 0)
subprocess.run([sys.executable, "-c", "pass"])
print(sys.argv[1])
"""
    (tmp_path / "program.py").write_text(code)
    out = tmp_path / "out.json"
    result = headway("run", "--follow", "--json", out, tmp_path / "program.py")
    assert result.returncode == 0, result.stderr
    report = read_json(out)
    assert len(report["children"]) == 4
    assert int(result.stdout) in {child["pid"] for child in report["children"]}


def test_a_followed_child_may_replace_itself_too(tmp_path: Path) -> None:
    child = (
        "import os, sys; os.environ.get('AGAIN') and (print('up', flush=True), sys.stdin.read());"
        "os.environ.update(AGAIN='1') if 'AGAIN' not in os.environ else os._exit(0);"
        "os.execv(sys.executable, [sys.executable, '-c', sys.argv[1], sys.argv[1]])"
    )
    code = f"""
import subprocess, sys
command = [sys.executable, "-c", {child!r}, {child!r}]
child = subprocess.Popen(command, stdin=-1, stdout=-1, text=True)
print(child.stdout.readline(), child.pid)
"""
    out = tmp_path / "out.json"
    result = headway("run", "--follow", "--json", out, "-c", code)
    words = result.stdout.split()
    assert words[0] == "up"
    before, now = read_json(out)["children"]
    assert before["pid"] == now["pid"] == int(words[1])
    assert not any(gil["alive"] for gil in before["gils"])
    assert all(gil["alive"] for gil in now["gils"])


def test_the_environment_may_be_emptied() -> None:
    look = "import os; print(sorted(os.environ), sorted(os.listdir('/proc/self/fd')))"
    code = f"import os, sys; os.execve(sys.executable, [sys.executable, '-c', {look!r}], {{}})"
    result = headway("run", "-c", code)
    assert result.stdout == python("-c", code).stdout
    assert result.stderr.startswith(REPLACED_ONCE)


def test_more_images_than_the_ledger_has_room_for_are_reported() -> None:
    """Room for 64 processes: the first image, 62 children, and the second image."""
    code = (
        "import os, sys; n = int(sys.argv[1])\n"
        "if n == 3:\n"
        "    for _ in range(62): os.fork() or os._exit(0); os.wait()\n"
        "again = [sys.executable, '-c', sys.argv[2], str(n - 1), sys.argv[2]]\n"
        "if n: os.execv(sys.executable, again)"
    )
    result = headway("run", "-c", code, "3", code)
    assert result.returncode == 0
    assert "headway run: the program replaced itself 3 times" in result.stderr
    assert report_in(result.stderr)


OTHERS = {
    "another program": "os.execv('/bin/echo', ['echo', 'became'])",
    "a shell": "os.execvp('sh', ['sh', '-c', 'echo became'])",
    "an interpreter without site": (
        "os.execv(sys.executable, [sys.executable, '-IS', '-c', 'print(\"became\")'])"
    ),
    "by descriptor": (
        "os.execve(os.open('/bin/echo', os.O_RDONLY), ['echo', 'became'], os.environ)"
    ),
}


@pytest.mark.parametrize("target", OTHERS)
@pytest.mark.parametrize("options", [[], ["--follow"]])
def test_before_any_other_program_there_is_a_report(
    tmp_path: Path, target: str, options: list[str]
) -> None:
    out = tmp_path / "out.json"
    code = f"import os, sys\n{OTHERS[target]}"
    result = headway("run", *options, "--json", out, "-c", code)
    assert (result.returncode, result.stdout) == (0, "became\n")
    line, rest = result.stderr.split("\n", 1)
    assert line.startswith(REPORTED_BEFORE)
    assert rest == report_in(result.stderr)
    assert read_json(out)["children"] == []
    assert os.listdir(tmp_path) == ["out.json"]


def test_a_script_for_the_same_interpreter_goes_on(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"#!{sys.executable}\nprint('became')\n")
    script.chmod(0o755)
    result = headway("run", "-c", f"import os; os.execv({str(script)!r}, ['script'])")
    assert result.stdout == "became\n"
    assert result.stderr.startswith(REPLACED_ONCE)


def test_headway_run_as_the_next_program_is_a_run_of_its_own(tmp_path: Path) -> None:
    inner = [sys.executable, "-m", "headway", "run", "-c", "print('inner')"]
    result = headway("run", "-c", f"import os, sys; os.execv(sys.executable, {inner!r})")
    assert result.stdout == "inner\n"
    assert result.stderr.count("headway  Python") == 2
    assert REPORTED_BEFORE in result.stderr


def test_an_exec_that_fails_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("neither a program nor a script")
    (tmp_path / "text").chmod(0o755)
    (tmp_path / "folder").mkdir()
    # One word of a command line has 128 KiB at most.
    code = f"""
import os, sys
for path, word in [
    ("/none", "x"), ("/etc/passwd", "x"), ({str(tmp_path / "text")!r}, "x"),
    ({str(tmp_path / "folder")!r}, "x"), (sys.executable, "x" * (1 << 20)),
    ("/bin/echo", "x" * (1 << 20)),
]:
    try:
        os.execv(path, [path, word])
    except OSError as error:
        print(error.errno, sorted(os.listdir("/proc/self/fd")), "HEADWAY" in os.environ)
"""
    plain = python("-c", code)
    result = headway("run", "-c", code)
    assert result.stdout == plain.stdout
    assert result.stdout.count("\n") == 6
    assert result.stderr == report_in(result.stderr) != ""


def test_children_that_exec_are_left_alone() -> None:
    code = """
import os, subprocess, sys
pid = os.fork()
if pid == 0:
    os.execv(sys.executable, [sys.executable, "-c", "print('forked')"])
os.waitpid(pid, 0)
subprocess.run(["/bin/echo", "spawned"])
os.waitpid(os.posix_spawn("/bin/echo", ["echo", "posix_spawn"], os.environ), 0)
"""
    result = headway("run", "-c", code)
    assert result.stdout == "forked\nspawned\nposix_spawn\n"
    assert result.stderr == report_in(result.stderr) != ""


def test_a_signal_in_the_next_image_reports() -> None:
    code = (
        "import os, signal, sys\n"
        "again = [sys.executable, '-c', sys.argv[1], 'x', 'y']\n"
        "if len(sys.argv) == 2: os.execv(sys.executable, again)\n"
        "os.kill(os.getpid(), signal.SIGTERM)"
    )
    result = headway("run", "-c", code, code)
    assert result.returncode == -signal.SIGTERM
    assert "\nchild " in report_in(result.stderr)


def test_a_crash_of_the_next_image_leaves_both(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    code = (
        "import os, sys\n"
        "again = [sys.executable, '-c', sys.argv[1], 'x', 'y']\n"
        "if len(sys.argv) == 2: os.execv(sys.executable, again)\n"
        "os._exit(3)"
    )
    assert headway("run", "--json", out, "-c", code, code).returncode == 3
    shown = run_main("report", out)
    assert shown.returncode == 0
    assert "\nchild " in shown.stdout


def test_a_trace_ends_with_its_image(tmp_path: Path) -> None:
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        pytest.skip("there is nothing to trace without a GIL")
    trace = tmp_path / "trace.json"
    result = headway("run", "--trace", trace, PROGRAMS / "replaces_itself.py", env=environment())
    assert result.returncode == 5
    assert result.stderr.startswith(REPORTED_BEFORE)
    assert result.stderr.count("headway  Python") == 1
    assert trace.exists()


def test_threads_end_with_the_image() -> None:
    result = execute([sys.executable, "-m", "headway", "run", str(PROGRAMS / "replaces_itself.py")])
    assert (result.returncode, result.stdout) == (5, "a new image with the same pid: True\n")
    assert result.stderr.startswith(REPLACED_ONCE)
