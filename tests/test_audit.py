"""`headway audit`, on extension modules that are compiled here and on an application with Flask."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from extension_modules import MISSING, MODULES, build
from launch import HEADWAY, Result, environment, execute, headway, run_main, start

from headway.audit.findings import SCHEMA

pytestmark = pytest.mark.free_threading

APPS = Path(__file__).resolve().parent / "apps"
FREE_THREADED = bool(getattr(sys, "abiflags", "").startswith("t"))
OWN_GIL = sys.version_info >= (3, 12)
GIL_SLOT = sys.version_info >= (3, 13)

needs_compiler = pytest.mark.skipif(bool(MISSING), reason=MISSING or "there is a compiler")

APPLICATION = """
def application(environ, start_response):
    start_response("200 OK", [])
    return [b""]
"""


@pytest.fixture(scope="module")
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all of the compiled modules."""
    folder = tmp_path_factory.mktemp("extensions")
    build(folder, MODULES)
    return folder


def audit(
    folder: Path, *options: str | Path, app: str = "site_of_tests:application"
) -> tuple[Result, dict[str, Any]]:
    """The command's own output, and its JSON; `folder` is where the application lies."""
    file = folder / "audit.json"
    result = run_main("audit", "--app-dir", folder, "--json", file, *options, app)
    return result, json.loads(file.read_text()) if file.exists() else {}


def write(folder: Path, source: str) -> Path:
    (folder / "site_of_tests.py").write_text(source + APPLICATION)
    return folder


def answers(found: dict[str, Any], support: str) -> dict[str, str]:
    return {row["name"]: row[support]["answer"] for row in found["modules"]}


def module(found: dict[str, Any], name: str) -> dict[str, Any]:
    row: dict[str, Any] = next(row for row in found["modules"] if row["name"] == name)
    return row


@needs_compiler
def test_what_modules_declare_and_what_they_do(tmp_path: Path, extensions: Path) -> None:
    names = ["single_static", "single_sized", "without_slots", "undeclared"]
    names += ["modern", "shared_only", "main_only"]
    write(tmp_path, f"import {', '.join(names)}\n")
    result, found = audit(tmp_path, "--python-path", extensions)
    assert (result.returncode, result.stderr) == (0, "")
    assert (found["schema"], found["free_threaded_build"]) == (SCHEMA, FREE_THREADED)
    assert [row["name"] for row in found["modules"] if not row["stdlib"]] == names

    first = module(found, "single_static")
    assert first["declares"] == {
        "initialization": "single-phase",
        "multiple_interpreters": None,
        "gil": None,
    }
    assert module(found, "single_sized")["declares"] == first["declares"]
    for name in ("without_slots", "undeclared"):
        assert module(found, name)["declares"] == {
            **first["declares"],
            "initialization": "multi-phase",
        }
    assert (first["imported_by"], first["distribution"]) == ("site_of_tests", None)
    assert os.path.dirname(first["file"]) == os.fspath(extensions)
    if OWN_GIL:
        declared = [module(found, name)["declares"]["multiple_interpreters"] for name in names[4:]]
        assert declared == ["per-interpreter-gil", "supported", "not-supported"]
    if GIL_SLOT:
        declared = [module(found, name)["declares"]["gil"] for name in names[4:]]
        assert declared == ["not-used", "not-used", "used"]

    own = answers(found, "own_gil")
    if not OWN_GIL:
        assert set(own.values()) == {"unknown"}
        assert "3.12" in first["own_gil"]["reason"]
        assert "3.12" in result.stdout
    else:
        assert {name for name in names if own[name] == "yes"} == {"modern"}
        assert {name for name in names if own[name] == "no"} == {*names} - {"modern"}
        assert "single-phase" in first["own_gil"]["reason"]
        reason = module(found, "undeclared")["own_gil"]["reason"]
        assert reason == "has no Py_mod_multiple_interpreters slot"
        assert "only a shared GIL" in module(found, "shared_only")["own_gil"]["reason"]
        assert "no sub-interpreters" in module(found, "main_only")["own_gil"]["reason"]
        application = found["application"]["own_gil"]
        assert (application["answer"], application["culprit"]) == ("no", "single_static")
        assert f"6 of {len(found['modules'])} extension modules refuse" in " ".join(
            result.stdout.split()
        )
        assert "--application-group '%{GLOBAL}'" in result.stdout

    free = answers(found, "free_threading")
    if FREE_THREADED:
        assert {name for name in names if free[name] == "yes"} == {"modern", "shared_only"}
        assert {name for name in names if free[name] == "no"} == {*names} - {
            "modern",
            "shared_only",
        }
        assert found["application"]["free_threading"]["answer"] == "no"
    elif GIL_SLOT:
        assert [free[name] for name in names] == ["unknown"] * 4 + ["yes", "yes", "no"]
        assert found["application"]["free_threading"]["answer"] == "no"
    else:
        assert set(free.values()) == {"unknown"}
        assert "built for CPython 3." in first["free_threading"]["reason"]


@needs_compiler
@pytest.mark.skipif(not FREE_THREADED, reason="for free-threaded builds")
@pytest.mark.parametrize("gil", ["0", "1"])
def test_a_gil_that_somebody_fixed_is_watched_all_the_same(
    tmp_path: Path, extensions: Path, gil: str
) -> None:
    """The answers do not depend on PYTHON_GIL or -X gil."""
    write(tmp_path, "import modern, undeclared\n")
    file = tmp_path / "audit.json"
    command = ["audit", "--app-dir", tmp_path, "--python-path", extensions, "--json", file]
    result = execute(
        [sys.executable, "-X", f"gil={gil}", *HEADWAY[1:], *command, "site_of_tests:application"],
        env=environment(PYTHON_GIL=gil),
    )
    assert (result.returncode, result.stderr) == (0, "")
    found = json.loads(file.read_text())
    free = answers(found, "free_threading")
    assert (free["modern"], free["undeclared"]) == ("yes", "no")
    assert found["application"]["free_threading"]["answer"] == "no"


@needs_compiler
@pytest.mark.skipif(sys.version_info < (3, 15), reason="PEP 793 is new in CPython 3.15")
def test_a_module_that_exports_slots(tmp_path: Path, extensions: Path) -> None:
    write(tmp_path, "import exported\n")
    _, found = audit(tmp_path, "--python-path", extensions)
    row = module(found, "exported")
    assert row["declares"] == {
        "initialization": "multi-phase",
        "multiple_interpreters": "per-interpreter-gil",
        "gil": "not-used",
    }
    for support in ("own_gil", "free_threading"):
        assert row[support]["answer"] == "yes"


@needs_compiler
def test_a_second_interpreter_crashes_or_is_refused(tmp_path: Path, extensions: Path) -> None:
    """Neither brings the audit down, nor blames the module that loads."""
    write(tmp_path, "import modern, crashes, once_only\n")
    result, found = audit(tmp_path, "--python-path", extensions)
    assert (result.returncode, result.stderr) == (0, "")
    for support in ("own_gil", "shared_gil") if OWN_GIL else ("shared_gil",):
        found_answers = answers(found, support)
        assert found_answers["modern"] == "yes"
        crash = module(found, "crashes")[support]
        assert crash["answer"] == "no"
        assert crash["reason"].startswith("it crashes with SIGABRT")
        assert "in the second interpreter of a process" in crash["reason"]
        refusal = module(found, "once_only")[support]
        assert refusal["reason"] == (
            "only one interpreter of a process can have it: ImportError: once only"
        )
        assert found["application"][support]["answer"] == "no"
    assert "SIGABRT" in result.stdout


@needs_compiler
def test_an_application_is_refused_for_what_it_raised(tmp_path: Path, extensions: Path) -> None:
    write(tmp_path, "import once_only\n")
    _, found = audit(tmp_path, "--python-path", extensions)
    assert found["application"]["shared_gil"]["reason"] == (
        "only one interpreter of a process can have it: ImportError: once only"
    )


@needs_compiler
@pytest.mark.slow("waits until modules have used up their time")
def test_a_module_that_hangs(tmp_path: Path, extensions: Path) -> None:
    write(tmp_path, "import hangs\n")
    _, found = audit(tmp_path, "--python-path", extensions, "--timeout", "4")
    shared = module(found, "hangs")["shared_gil"]
    assert shared["answer"] == "no"
    assert shared["reason"].startswith("it hangs: no answer for 4 s, in the second")


@needs_compiler
@pytest.mark.skipif(not OWN_GIL, reason="own-GIL interpreters need CPython 3.12")
@pytest.mark.slow("starts a dozen interpreters")
def test_a_module_that_fails_because_of_another(tmp_path: Path, extensions: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("import undeclared\n")
    build(package, ["modern"])
    write(tmp_path, "import package.modern\n")
    result, found = audit(tmp_path, "--python-path", extensions)
    row = module(found, "package.modern")
    assert row["declares"]["multiple_interpreters"] == "per-interpreter-gil"
    assert row["own_gil"] == {
        "answer": "no",
        "reason": "needs undeclared, which refuses",
        "culprit": "undeclared",
    }
    assert module(found, "undeclared")["own_gil"]["culprit"] is None
    # The cause comes first.
    assert result.stdout.index("\nundeclared") < result.stdout.index("\npackage.modern")


@needs_compiler
@pytest.mark.skipif(not OWN_GIL, reason="own-GIL interpreters need CPython 3.12")
def test_an_application_that_does_without(tmp_path: Path, extensions: Path) -> None:
    write(tmp_path, "try:\n    import undeclared\nexcept ImportError:\n    pass\n")
    result, found = audit(tmp_path, "--python-path", extensions)
    assert found["application"]["own_gil"]["answer"] == "yes"
    assert found["application"]["missing"] == {"own_gil": ["undeclared"], "shared_gil": []}
    words = " ".join(result.stdout.split())
    assert "the application loads all the same, without undeclared" in words


@needs_compiler
@pytest.mark.slow("starts a dozen interpreters")
def test_a_module_that_only_its_application_can_import(tmp_path: Path, extensions: Path) -> None:
    """A failure in a main interpreter too says nothing about sub-interpreters."""
    write(tmp_path, "import builtins\nbuiltins.the_application = True\nimport dependent\n")
    _, found = audit(tmp_path, "--python-path", extensions)
    shared = module(found, "dependent")["shared_gil"]
    assert shared["answer"] == "unknown"
    assert "main interpreter" in shared["reason"]
    assert found["application"]["shared_gil"]["answer"] == "yes"


@needs_compiler
@pytest.mark.slow("starts a dozen interpreters")
def test_require(tmp_path: Path, extensions: Path) -> None:
    write(tmp_path, "import once_only\n")
    result, _ = audit(tmp_path, "--python-path", extensions, "--require", "shared-gil")
    assert result.returncode == 1
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("headway audit: --require shared-gil: not so: ")
    assert "once_only (no)" in lines[0]

    write(tmp_path, "import modern\n")
    wanted = "own-gil,shared-gil" if OWN_GIL else "shared-gil"
    result, _ = audit(tmp_path, "--python-path", extensions, "--require", wanted)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    "flask",
    [False, pytest.param(True, marks=pytest.mark.slow("imports Flask into nine interpreters"))],
)
def test_an_application_with_an_extension_module_from_pypi(tmp_path: Path, flask: bool) -> None:
    """markupsafe has one, and Flask imports it."""
    write(tmp_path, "import markupsafe\n")
    application = (APPS, "flask_site:app") if flask else (tmp_path, "site_of_tests:application")
    result = run_main("audit", "--json", "-", "--app-dir", *application)
    assert (result.returncode, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    row = module(found, "markupsafe._speedups")
    assert row["distribution"].lower() == "markupsafe"
    assert row["version"].startswith("3.")
    assert row["imported_by"] == "markupsafe"
    assert not row["stdlib"]
    assert row["shared_gil"]["answer"] == "yes"
    if OWN_GIL:
        assert row["own_gil"]["answer"] == "yes"
    if GIL_SLOT:
        assert row["free_threading"]["answer"] == "yes"
    of_the_library = [row for row in found["modules"] if row["stdlib"]]
    assert of_the_library or not flask
    assert {row["distribution"] for row in of_the_library} <= {None}


@pytest.mark.slow("starts a dozen interpreters")
def test_what_the_application_prints_does_not_break_the_table(tmp_path: Path) -> None:
    write(tmp_path, "import os, sys, math\nprint('printed')\nos.write(1, b'written\\n')\n")
    result, found = audit(tmp_path)
    assert "printed" not in result.stdout
    assert "written" not in result.stdout
    assert sorted(result.stderr.split()) == ["printed", "written"]
    assert found["application"]["shared_gil"]["answer"] == "yes"
    result = run_main("audit", "--app-dir", tmp_path, "--json", "-", "site_of_tests:application")
    assert json.loads(result.stdout)["application"]["name"] == "site_of_tests:application"


def test_a_script_file_and_the_current_directory(tmp_path: Path) -> None:
    write(tmp_path, "import beside_it\n")
    (tmp_path / "beside_it.py").write_text("")
    result = headway("audit", "./site_of_tests.py", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("audit  ./site_of_tests.py, CPython ")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nothing"], "APP is 'nothing'; it must be module:callable"),
        (["no_such_module:app"], "there is no module 'no_such_module'"),
        (["--require", "speed", "json:dumps"], "--require: found 'speed'; allowed: own-gil, "),
        (["--timeout", "soon", "json:dumps"], "--timeout: found soon; allowed: "),
        (["--app-dir", "/nowhere", "json:dumps"], "--app-dir: found /nowhere; it must be"),
        (["--python-path", "/nowhere", "json:dumps"], "--python-path: found /nowhere; it must"),
        (["--json", "/nowhere/a.json", "json:dumps"], "--json '/nowhere/a.json' cannot be written"),
        ([], "the following arguments are required: APP"),
    ],
)
def test_bad_usage_is_one_line(arguments: list[str], complaint: str) -> None:
    result = run_main("audit", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_application_that_raises(tmp_path: Path) -> None:
    write(tmp_path, "1 / 0\n")
    result, _ = audit(tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert "ZeroDivisionError" in result.stderr
    assert result.stderr.splitlines()[-1] == (
        "headway audit: APP is 'site_of_tests:application': "
        "importing site_of_tests failed (see above)"
    )
    assert "headway serve" not in result.stderr


def test_an_application_that_kills_its_process(tmp_path: Path) -> None:
    write(tmp_path, "import os\nos.abort()\n")
    result, _ = audit(tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "headway audit: APP is 'site_of_tests:application': "
        "importing it in a child process failed: it crashes with SIGABRT\n"
    )


@pytest.mark.parametrize("line", [b"no event", b"[]", b'{"event": 7}', b"\xff"])
def test_an_application_that_writes_to_the_pipe_of_events(tmp_path: Path, line: bytes) -> None:
    writes = f"    with contextlib.suppress(OSError): os.write(int(fd), {line!r} + b'\\n')\n"
    each = "set(os.listdir('/proc/self/fd')) - {'0', '1', '2'}"
    write(tmp_path, f"import contextlib, os\nfor fd in {each}:\n{writes}")
    result, _ = audit(tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        f"headway audit: the pipe of events: found {line!r}; the application wrote to a "
        "descriptor of its process that is the audit's\n"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_children(tmp_path: Path, number: signal.Signals) -> None:
    write(
        tmp_path,
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "with open('pids.new', 'w') as file: file.write(f'{os.getpid()} {child.pid}')\n"
        "os.rename('pids.new', 'pids')\n"
        "time.sleep(600)\n",
    )
    running = start("audit", "site_of_tests:application", cwd=tmp_path)
    pids: list[int] = []
    try:
        until = time.monotonic() + 30
        while not (tmp_path / "pids").exists():
            assert running.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        pids += map(int, (tmp_path / "pids").read_text().split())
        running.send_signal(number)
        output, errors = running.communicate(timeout=30)
        assert (running.returncode, output, errors) == (128 + number, "", "")
        assert all(map(_is_gone, pids))
    except BaseException:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise
    finally:
        running.kill()
        running.communicate()


def _is_gone(pid: int) -> bool:
    """Ended; who waits for an orphan may not have come to it."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.slow("starts a dozen interpreters")
def test_progress_on_a_terminal(tmp_path: Path) -> None:
    at_once = (
        "import sys; from headway.commands import audit; audit.PROGRESS_AFTER_S = 0.0;"
        "from headway.cli import main; sys.exit(main())"
    )
    write(tmp_path, "")
    leader, follower = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", at_once, "audit", "site_of_tests:application"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=follower,
            env=environment(TERM="xterm"),
        )
        os.close(follower)
        output, _ = process.communicate(timeout=60)
        shown = os.read(leader, 65_536).decode()
    finally:
        os.close(leader)
    assert b"\x1b" not in output
    assert "headway audit: " in shown
    assert shown.endswith("\r\x1b[K")
