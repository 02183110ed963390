"""The variable HEADWAY: what it turns on, for which processes, and what it leaves alone."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from pathlib import Path

import pytest
from launch import GIL_ENABLED, PROGRAMS, Result, environment, execute, read_json, report_in

from headway import _native, gil

POLICIES = ", ".join(gil.policies())
ALLOWED = (
    f"allowed: {POLICIES}, follow, no-kernel-hints, report, report=FILE, loop-limit=S, "
    "switch-interval=S, telemetry=unix:PATH, telemetry-group=NAME, telemetry-interval=S"
)
# Prints the policy, or None without a meter.
SHOWS_POLICY = (
    "import os, sys; from headway import gil;"
    "print(gil.snapshot().report().policy if gil.is_installed() else None, flush=True)"
)
CHILD = f"; import subprocess; subprocess.run([sys.executable, '-c', {SHOWS_POLICY!r}], check=True)"


def run(
    value: str | None, *arguments: str | Path, cwd: Path | None = None, **changes: str
) -> Result:
    variables = environment(**changes, **({} if value is None else {"HEADWAY": value}))
    command = [sys.executable, *map(str, arguments)]
    return execute(command, env=variables, cwd=cwd)


def assert_ran(result: Result, stdout: str, stderr: str = "") -> None:
    assert (result.returncode, result.stdout, result.stderr) == (0, stdout, stderr)


def test_a_policy_is_turned_on_and_nothing_is_printed() -> None:
    assert_ran(run("priority", "-c", SHOWS_POLICY), "priority\n")
    assert_ran(run("deadline,no-kernel-hints", "-c", SHOWS_POLICY), "deadline\n")


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_value_nothing_of_headway_is_imported(value: str | None) -> None:
    code = "import sys; print(*[name for name in sys.modules if name.startswith('headway')])"
    result = run(value, "-c", code)
    assert "headway.meter.engine" not in result.stdout
    assert_ran(result, "\n" if value is None else result.stdout)


def test_the_line_of_site_looks_once() -> None:
    """It is read by every interpreter of the environment, so it must do next to nothing."""
    import site

    folders = [*site.getsitepackages(), site.getusersitepackages()]
    files = [Path(folder, "headway_follow.pth") for folder in folders]
    (text,) = [path.read_text() for path in files if path.is_file()]
    assert text.count("os.environ") == 1
    assert text.startswith('import os; "HEADWAY" in os.environ and ')
    assert text.count("\n") == 1


def test_a_report_goes_to_stderr() -> None:
    result = run("report", PROGRAMS / "convoy.py")
    assert result.returncode == 0
    assert result.stderr == report_in(result.stderr) != ""


def test_a_report_goes_to_a_file_of_the_process_and_nowhere_else(tmp_path: Path) -> None:
    result = run(
        "priority,report=reports/%p-100%%.json", "-c", "import os; print(os.getpid())", cwd=tmp_path
    )
    (file,) = (tmp_path / "reports").iterdir()
    assert_ran(result, file.name.replace("-100%.json", "\n"))
    assert read_json(file)["policy"] == "priority"


@pytest.mark.parametrize("ending", ["raise SystemExit(3)", "os.kill(os.getpid(), 15)"])
def test_the_end_of_the_program_is_its_own(tmp_path: Path, ending: str) -> None:
    plain = run(None, "-c", f"import os; {ending}")
    result = run("report=out.json", "-c", f"import os; {ending}", cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (plain.returncode, "", "")
    assert read_json(tmp_path / "out.json")["wall_s"] > 0
    assert os.listdir(tmp_path) == ["out.json"]


def test_after_a_crash_the_counters_are_in_the_ledger(tmp_path: Path) -> None:
    result = run("report=out.json", "-c", "import os; os.kill(os.getpid(), 9)", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (-9, "")
    assert os.listdir(tmp_path) == ["out.json.ledger"]
    shown = execute([sys.executable, "-m", "headway", "report", str(tmp_path / "out.json")])
    assert report_in("\n" + shown.stdout)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("prioriy", f"found 'prioriy'; {ALLOWED}"),
        ("priority,", f"found ''; {ALLOWED}"),
        ("priority=1", f"found 'priority=1'; {ALLOWED}"),
        ("telemetry", f"found 'telemetry'; {ALLOWED}"),
        ("priority,deadline", "found a policy twice"),
        ("report,report=x.json", "found report twice"),
        ("report=", "found 'report='; allowed: report=FILE, or report for stderr"),
        ("report=-", "found 'report=-'; allowed: report=FILE, or report for stderr"),
        ("report=%d.json", "report='%d.json': after % there may be p (the process's id) or %"),
        ("priority,report=/proc/none/x", "[Errno 2] No such file or directory: '/proc/none'"),
        ("report=.", "report '.' cannot be written: is a directory"),
        (
            "telemetry=/tmp/x",
            "telemetry: found '/tmp/x'; allowed: unix:PATH, with a path of up to 107 bytes",
        ),
        (
            "switch-interval=0",
            "switch-interval: found '0'; allowed: a number of seconds from 0.000001 to 1000, or "
            "with a unit, as 500ms",
        ),
        ("report\nx", f"found 'report\\nx'; {ALLOWED}"),
        ("é", f"found 'é'; {ALLOWED}"),
        ("7", f"found '7'; {ALLOWED}"),
    ],
)
def test_a_mistake_is_one_line_and_the_program_runs_as_without(
    tmp_path: Path, value: str, said: str
) -> None:
    result = run(value, "-c", f"{SHOWS_POLICY}; sys.exit(4)", cwd=tmp_path)
    line = f"headway: HEADWAY: {said}; the program runs without Headway\n"
    assert (result.returncode, result.stdout, result.stderr) == (4, "None\n", line)
    assert list(tmp_path.iterdir()) == []


def test_a_platform_that_is_not_supported_is_one_line() -> None:
    code = (
        "import os, sys; sys.modules['headway._native'] = None;"
        "os.environ['HEADWAY'] = 'priority';"
        "from headway import environment; environment.start(); print('ran')"
    )
    result = run(None, "-c", code)
    assert result.returncode == 0
    assert result.stdout == "ran\n"
    assert result.stderr.startswith("headway: HEADWAY: the GIL meter cannot be installed: it needs")
    assert result.stderr.endswith("; the program runs without Headway\n")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["-E", "-I"])
def test_an_interpreter_that_ignores_the_environment_ignores_it(option: str) -> None:
    for value in ("priority", "nonsense"):
        assert_ran(run(value, option, "-c", SHOWS_POLICY), "None\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="to give a file rights needs root")
@pytest.mark.parametrize("value", ["priority", "report=out.json", "nonsense", "run:{pid}:interval"])
def test_a_process_with_rights_that_its_user_has_not_ignores_it(tmp_path: Path, value: str) -> None:
    trusted = tmp_path / "python"
    shutil.copy(sys._base_executable, trusted)  # type: ignore[attr-defined]
    os.chown(trusted, 0, 65534)
    code = (
        f"import os, site, sys; site.addsitedir({str(Path(gil.__file__).parents[1])!r});"
        "from headway import _native;"
        "print(os.getegid(), _native.process_is_secure(), 'headway.meter.engine' in sys.modules)"
    )
    variables = environment(HEADWAY=value, PYTHONHOME=sys.base_prefix)
    trusted.chmod(0o755)
    plain = execute([str(trusted), "-c", code], env=environment(PYTHONHOME=sys.base_prefix))
    if plain.returncode != 0:
        pytest.skip(f"a copy of this interpreter does not start: {plain.stderr}")
    assert plain.stdout == f"{os.getegid()} False False\n"
    trusted.chmod(0o2755)
    secure = execute([str(trusted), "-c", code], env=variables, cwd=tmp_path)
    if not secure.stdout.startswith("65534 "):
        pytest.skip("this file system ignores set-group-ID")
    assert_ran(secure, "65534 True False\n")
    assert os.listdir(tmp_path) == ["python"]


@pytest.mark.parametrize("value", ["priority", "report=out.json", "report"])
def test_children_do_not_follow_unless_asked(tmp_path: Path, value: str) -> None:
    result = run(value, "-c", SHOWS_POLICY + CHILD, cwd=tmp_path)
    assert result.stdout.splitlines()[1:] == ["None"]
    assert result.stderr.count("headway  Python") == (value == "report")


def test_a_mistake_is_named_once_and_not_by_children() -> None:
    result = run("nonsense,follow", "-c", SHOWS_POLICY + CHILD)
    assert result.stdout == "None\nNone\n"
    assert result.stderr.count("\n") == 1


def test_children_follow_with_the_policy() -> None:
    grandchild = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SHOWS_POLICY!r}])"
    code = f"{SHOWS_POLICY}{CHILD}; subprocess.run([sys.executable, '-c', {grandchild!r}])"
    assert_ran(run("deadline,follow", "-c", code), "deadline\ndeadline\ndeadline\n")


def test_children_that_follow_are_in_the_report(tmp_path: Path) -> None:
    result = run("priority,report=out.json,follow", "-c", SHOWS_POLICY + CHILD, cwd=tmp_path)
    assert_ran(result, "priority\npriority\n")
    report = read_json(tmp_path / "out.json")
    assert [each["policy"] for each in (report, *report["children"])] == ["priority"] * 2
    result = run("report,follow", "-c", SHOWS_POLICY + CHILD)
    assert result.stderr.count("headway  Python") == 1
    assert "\nchild " in result.stderr


def test_each_child_that_follows_has_a_file_of_its_own(tmp_path: Path) -> None:
    result = run("report=%p.json,follow", "-c", SHOWS_POLICY + CHILD, cwd=tmp_path)
    assert_ran(result, "interval\ninterval\n")
    reports = [read_json(file) for file in tmp_path.iterdir()]
    assert len(reports) == 2
    assert all(report["children"] == [] for report in reports)


def test_forked_children_are_in_the_report_of_their_parent(tmp_path: Path) -> None:
    code = "import os; pid = os.fork(); pid and os.waitpid(pid, 0)"
    assert_ran(run("report=%p.json", "-c", code, cwd=tmp_path), "")
    (file,) = tmp_path.iterdir()
    assert len(read_json(file)["children"]) == 1


@pytest.mark.parametrize("value", ["priority", "priority,report=out.json", "priority,follow"])
def test_a_program_that_replaces_itself_keeps_it(tmp_path: Path, value: str) -> None:
    """As opentelemetry-instrument, ddtrace-run and autoreloaders do."""
    code = f"import os, sys; os.execv(sys.executable, [sys.executable, '-c', {SHOWS_POLICY!r}])"
    assert_ran(run(value, "-c", code, cwd=tmp_path), "priority\n")
    assert len(os.listdir(tmp_path)) == ("report" in value)


def test_a_program_that_another_one_replaces_leaves_its_report(tmp_path: Path) -> None:
    code = "import os; os.execv('/bin/echo', ['echo', 'replaced'])"
    assert_ran(run("report=out.json", "-c", code, cwd=tmp_path), "replaced\n")
    assert read_json(tmp_path / "out.json")["wall_s"] > 0


# `isolated` has a GIL of its own from 3.12 on; before, there is one kind.
SUB_INTERPRETER = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
own = interpreters.create()
interpreters.run_string(own, "import os; print(os.environ['HEADWAY'][-3:], flush=True)")
interpreters.destroy(own)
from headway import _native, gil
print(len(gil.snapshot().report().gils) > 0)
"""


@pytest.mark.skipif(not GIL_ENABLED, reason="there are no GILs to count")
@pytest.mark.parametrize(
    "value", ["report=%p.json,follow,priority", "report=%p.json,telemetry=unix:t,follow,deadline"]
)
def test_sub_interpreters_do_not_act_again(tmp_path: Path, value: str) -> None:
    result = run(value, "-c", SUB_INTERPRETER, cwd=tmp_path)
    assert_ran(result, f"{value[-3:]}\nTrue\n")
    assert len(os.listdir(tmp_path)) == 1


@pytest.mark.parametrize("value", ["priority", "report", "report=out.json", "telemetry=unix:sock"])
def test_modules_that_gevent_must_patch_first_are_not_imported(tmp_path: Path, value: str) -> None:
    names = ("threading", "socket", "ssl", "select", "subprocess", "signal", "queue", "selectors")
    code = f"import sys; print([name for name in {names} if name in sys.modules])"
    plain = run(None, "-c", code).stdout
    assert run(value, "-c", code, cwd=tmp_path).stdout == plain
    assert "threading" not in plain


@pytest.mark.parametrize("more", ["", ",report=out.json"])
def test_telemetry_reaches_a_recorder(tmp_path: Path, more: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as recorder:
        recorder.bind(str(tmp_path / "sock"))
        recorder.settimeout(30)
        value = "priority,telemetry=unix:sock,telemetry-interval=500ms,telemetry-group=the shop"
        assert_ran(run(value + more, "-c", SHOWS_POLICY, cwd=tmp_path), "priority\n")
        *_, fields = _native.telemetry_parse(recorder.recv(1 << 16))
        assert fields["process_group"] == "the shop"


def test_the_switch_interval_is_set() -> None:
    code = "import sys; print(sys.getswitchinterval())"
    assert_ran(run("interval,switch-interval=500us", "-c", code), "0.0005\n")


def test_the_headway_command_takes_no_notice(tmp_path: Path) -> None:
    code = "import os; print(os.environ.get('HEADWAY'))"
    command = ("-X", "utf8", "-m", "headway", "run", "--json", "run.json", "-c", code)
    result = run("report=%p.json,nonsense", *command, cwd=tmp_path)
    assert result.stdout == "None\n"
    assert result.stderr == report_in("\n" + result.stderr)
    assert os.listdir(tmp_path) == ["run.json"]


def test_multiprocessing_follows(tmp_path: Path) -> None:
    result = run("report,follow", PROGRAMS / "processes_spawn.py")
    assert result.returncode == 0
    assert result.stderr.count("headway  Python") == 1
    assert "\nchild " in result.stderr


@pytest.mark.skipif(not GIL_ENABLED, reason="there is no GIL to schedule")
def test_a_policy_from_the_variable_preempts(tmp_path: Path) -> None:
    run("priority,report=out.json", PROGRAMS / "convoy.py", cwd=tmp_path)
    assert read_json(tmp_path / "out.json")["gils"][0]["preemptions"] > 0


def test_a_program_may_change_what_the_variable_chose() -> None:
    code = f"from headway import gil; gil.install('deadline'); {SHOWS_POLICY}; gil.uninstall()"
    assert_ran(run("priority", "-c", code), "deadline\n")


def test_the_variable_of_a_child_is_json_safe_text() -> None:
    """Programs hand their environment on in many forms."""
    code = "import json, os; print(json.dumps(os.environ['HEADWAY']))"
    result = run("priority", "-c", code)
    pid, _, value = json.loads(result.stdout).partition(":")
    assert pid.isdigit()
    assert value == "priority"
