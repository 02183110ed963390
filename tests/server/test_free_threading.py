"""Free threading: processes without a GIL, and reports on modules that do not declare support."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any

import pytest
from extensions import build, needs_compiler
from launch import Result, run_main
from served import APPS, FREE_THREADING, TIMEOUT_S
from supervised import Supervised

from headway import _native
from headway.arguments import Parser
from headway.commands.serve import prepare_parser, read_configuration
from headway.server import free_threading
from headway.server.config.apache.file import read_apache
from headway.server.config.resolution import Resolution, resolve
from headway.server.settings import Mount, ProcessGroup
from headway.server.supervisor import import_check
from headway.server.worker.undeclared import imported

pytestmark = pytest.mark.free_threading

BUILD = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
free_threaded = pytest.mark.skipif(not BUILD, reason="this Python cannot run without a GIL")
with_a_gil = pytest.mark.skipif(BUILD, reason="this Python can run without a GIL")

# Tells whether it has a GIL, whether a child of its has one, and PYTHON_GIL.
TELLS = """
import json, os, subprocess, sys
PROGRAM = "import sys; print(sys._is_gil_enabled(), sys.flags.gil)"
def application(environ, start_response):
    if name := environ["QUERY_STRING"]:
        __import__(name)
    start_response("200 OK", [])
    child = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True).stdout
    told = [sys._is_gil_enabled(), child.split(), os.environ.get("PYTHON_GIL")]
    return [json.dumps(told).encode()]
"""
EMBEDDED = "Listen 127.0.0.1:0\nWSGIScriptAlias / /srv/shop.wsgi\n"
SHOP = (
    "Listen 127.0.0.1:0\nWSGIScriptAlias / /srv/shop.wsgi process-group=shop\n"
    "WSGIDaemonProcess shop"
)


@pytest.fixture
def tells(tmp_path: Path) -> dict[str, Any]:
    """A group that serves `TELLS`, from a folder that is searched for more."""
    (tmp_path / "tells.py").write_text(TELLS)
    return {
        "mounts": [{"path": "", "application": "tells:application"}],
        "python_path": [str(tmp_path)],
    }


def serve(*arguments: str | Path) -> Result:
    return run_main("serve", *arguments, cwd=APPS)


def read(folder: Path, text: str) -> Resolution:
    file = folder / "httpd.conf"
    file.write_text(text)
    return resolve(read_apache(str(file)))


def warnings(folder: Path, resolution: Resolution) -> list[str]:
    return [each.replace(f"{folder}/httpd.conf", "FILE") for each in resolution.warnings]


def container(selectors: str, *lines: str) -> str:
    inside = "".join(f"{line}\n" for line in lines)
    return f"<WSGIInterpreterOptions {selectors}>\n{inside}</WSGIInterpreterOptions>\n"


# A build that has a GIL always


@with_a_gil
def test_where_there_is_always_a_gil_it_is_refused(tmp_path: Path) -> None:
    allowed = (
        "allowed: a free-threaded build of CPython, 3.13t or later, to run headway or as "
        "python-home\n"
    )
    done = serve("pages:hello", "--free-threading")
    said = f"headway serve: --free-threading: {sys.executable} cannot run without a GIL; {allowed}"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
    file = tmp_path / "serve.toml"
    file.write_text('[server]\nfree-threading = true\n[process-group.a]\napp = "pages:hello"\n')
    done = serve("--config", file)
    where = f"{file}:2, inherited from [server]: free-threading"
    said = f"headway serve: {where}: {sys.executable} cannot run without a GIL; {allowed}"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
    file.write_text('[process-group.a]\napp = "pages:hello"\nfree-threading = false\n')
    assert serve("--config", file, "--check").returncode == 0


@with_a_gil
@pytest.mark.parametrize("place", ["server", "container"])
def test_where_there_is_always_a_gil_the_directive_has_no_effect(
    tmp_path: Path, place: str
) -> None:
    """None at all: in mod_wsgi it takes the switch interval away, for a reason that is not so."""
    text = "WSGIFreeThreading On\n"
    if place == "container":
        text = container("process-group=shop", "WSGIFreeThreading On")
    line = 1 if place == "server" else 2
    resolution = read(tmp_path, f"{text}{SHOP} switch-interval=0.002\n")
    (group,) = resolution.settings.groups
    assert (group.free_threading, group.switch_interval_s) == (False, 0.002)
    assert warnings(tmp_path, resolution) == [
        f"FILE:{line}: WSGIFreeThreading is left out: {sys.executable} cannot run without a GIL"
    ]


@pytest.mark.parametrize("value", ["On", "Off"])
def test_it_is_not_for_one_application_group(tmp_path: Path, value: str) -> None:
    text = container("process-group=shop application-group=a", f"WSGIFreeThreading {value}")
    resolution = read(tmp_path, f"{text}{SHOP}\n")
    assert not resolution.settings.groups[0].free_threading
    assert warnings(tmp_path, resolution) == [
        "FILE:2: WSGIFreeThreading is left out: free-threading is for whole processes: drop "
        "application-group="
    ]


def test_another_python_is_asked_once(tmp_path: Path) -> None:
    """And again when it is replaced."""
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    home = str(tmp_path)
    assert free_threading.is_free_threaded(home) is None
    for answer, expected in (("1", True), ("None", False), ("0", False)):
        program = f"#!/bin/sh\necho asked >> {tmp_path}/asked\necho {answer}\n"
        (tmp_path / "new").write_text(program)
        (tmp_path / "new").chmod(0o755)
        (tmp_path / "new").rename(python)
        assert [free_threading.is_free_threaded(home) for _ in range(3)] == [expected] * 3
        flags = free_threading.mode_flags(home, True), free_threading.mode_flags(home, False)
        assert flags == ((["-X", "gil=0"], ["-X", "gil=1"]) if expected else ([], []))
    assert (tmp_path / "asked").read_text() == "asked\n" * 3


def test_this_python_says_what_it_is_of_another_path(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(os.path.realpath(sys.executable))
    assert free_threading.is_free_threaded(str(tmp_path)) is BUILD


@pytest.mark.parametrize(
    ("written", "problem"), [("\\xff", "no JSON"), ("{}", "undeclared is missing")]
)
def test_an_application_that_writes_to_the_answers_of_the_check_is_told(
    tmp_path: Path, written: str, problem: str
) -> None:
    (tmp_path / "writes.py").write_text(
        f"import os\nfor fd in range(3, 20):\n    try:\n        os.write(fd, b'{written}')\n"
        "        os._exit(0)\n    except OSError:\n        pass\n"
    )
    mounts = (Mount("", "writes:application"),)
    group = ProcessGroup(mounts=mounts, python_path=(str(tmp_path),))
    found = import_check._look_in(group, ["-c", import_check.PROGRAM, ""])
    assert found.problem == (
        f"what the process that imported the applications wrote is no answer: {problem}"
    )


# A free-threaded build


@free_threaded
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (EMBEDDED, False),
        (f"WSGIFreeThreading On\n{EMBEDDED}", True),
        (f"WSGIFreeThreading On\n{SHOP}\n", True),
        (container("", "WSGIFreeThreading On") + f"WSGIFreeThreading Off\n{EMBEDDED}", True),
        (container("process-group=shop", "WSGIFreeThreading On") + f"{SHOP}\n", True),
        (container("process-group=%{GLOBAL}", "WSGIFreeThreading On") + f"{SHOP}\n", False),
        (
            container("process-group=shop", "WSGIFreeThreading On")
            + container("", "WSGIFreeThreading Off")
            + f"{SHOP}\n",
            True,
        ),
        (
            container("", "WSGIFreeThreading On")
            + container("", "WSGIFreeThreading Off")
            + f"{SHOP}\n",
            False,
        ),
    ],
)
def test_the_more_specific_section_wins_then_the_later(
    tmp_path: Path, text: str, expected: bool
) -> None:
    resolution = read(tmp_path, text)
    assert resolution.settings.groups[0].free_threading is expected
    assert warnings(tmp_path, resolution) == []


@free_threaded
@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"WSGISwitchInterval 0.002\n{EMBEDDED}", "WSGISwitchInterval"),
        (
            f"{SHOP} switch-interval=0.001\n",
            "switch-interval of process group shop",
        ),
        (
            container("process-group=%{GLOBAL}", "WSGISwitchInterval 0.3") + EMBEDDED,
            "WSGISwitchInterval",
        ),
    ],
)
def test_a_switch_interval_is_left_out_where_there_is_no_gil(
    tmp_path: Path, text: str, what: str
) -> None:
    assert read(tmp_path, text).settings.groups[0].switch_interval_s is not None
    resolution = read(tmp_path, f"{text}WSGIFreeThreading On\n")
    assert resolution.settings.groups[0].switch_interval_s is None
    (said,) = warnings(tmp_path, resolution)
    assert said.endswith(
        f": {what} is left out: free-threading is active, and there is no GIL to yield"
    )


@free_threaded
def test_a_flag_for_the_switch_interval_says_that_it_does_nothing() -> None:
    parser = Parser(prog="headway serve")
    prepare_parser(parser)
    arguments = ["shop:app", "--switch-interval", "0.002"]
    assert read_configuration(parser.parse_args(arguments), "/").warnings == []
    resolution = read_configuration(parser.parse_args([*arguments, "--free-threading"]), "/")
    assert resolution.warnings == [
        "--switch-interval: switch-interval of process group main has no effect: free-threading is "
        "active, and there is no GIL to yield"
    ]


@free_threaded
@pytest.mark.parametrize("variable", [None, "0", "1"])
@pytest.mark.parametrize("preload", [False, True])
@pytest.mark.parametrize("wanted", [False, True])
def test_the_group_decides_and_what_it_starts_does_not_inherit_it(
    tmp_path: Path, tells: dict[str, Any], wanted: bool, preload: bool, variable: str | None
) -> None:
    group = tells | {"free_threading": wanted, "preload": preload}
    environment = {"PYTHON_GIL": variable} if variable else {}
    path = tmp_path / "status"
    with Supervised(tmp_path, group, environment=environment, status_socket=str(path)) as server:
        enabled, (child_enabled, child_flag), inherited = json.loads(server.get("/").body)
        processes = status(path)
    assert enabled is not wanted
    assert inherited == (variable or os.environ.get("PYTHON_GIL"))
    assert child_flag == str(inherited and int(inherited))
    assert child_enabled == str(inherited == "1")
    assert {each["gil"] for each in processes} == {"off" if wanted else "on"}
    assert len(processes) == 1 + preload


@free_threaded
@pytest.mark.parametrize("mode", ["0", "1"])
def test_the_mode_of_the_supervisor_is_its_own(tmp_path: Path, mode: str) -> None:
    """Of two -X gil on a command line CPython heeds the first."""
    (tmp_path / "tells.py").write_text(TELLS)
    for flags, wanted in (((), False), (("--free-threading",), True)):
        command = [sys.executable, "-X", f"gil={mode}", "-m", "headway", "serve"]
        command += ["tells:application", "--bind", f"unix:{tmp_path}/s", *flags]
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                assert "listening on" in process.stderr.readline()
                (worker,) = workers(process.pid)
                words = Path(f"/proc/{worker}/cmdline").read_text().split("\0")
            finally:
                process.terminate()
                process.communicate(timeout=TIMEOUT_S)
        assert [word for word in words if word.startswith("gil=")] == [f"gil={1 - wanted}"]


def workers(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def status(path: Path) -> list[dict[str, Any]]:
    done = run_main("status", f"unix:{path}", "--json")
    (group,) = json.loads(done.stdout)["groups"]
    found: list[dict[str, Any]] = group["processes"]
    return found


def test_the_status_shows_the_gil(tmp_path: Path) -> None:
    path = tmp_path / "status"
    with Supervised(tmp_path, status_socket=str(path)):
        (process,) = status(path)
        done = run_main("status", f"unix:{path}")
    expected = "off" if FREE_THREADING else "on"
    assert (process["gil"], process["undeclared"]) == (expected, [])
    assert f", generation 1, GIL {expected}, 0 requests\n" in done.stdout


# Modules that do not declare that they can


@needs_compiler
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            "multi-phase",
            marks=pytest.mark.skipif(sys.version_info < (3, 13), reason="PEP 703 is new in 3.13"),
        ),
        pytest.param("single-phase", marks=free_threaded),
        pytest.param(
            "exported",
            marks=[
                free_threaded,
                pytest.mark.skipif(sys.version_info < (3, 15), reason="PEP 793 is new in 3.15"),
            ],
        ),
    ],
)
def test_what_a_module_declares_is_found(tmp_path: Path, kind: str) -> None:
    build(tmp_path, "declared", kind=kind, declared=True)
    build(tmp_path, "undeclared", kind=kind)
    program = (
        "import declared, undeclared\nfrom headway import _native\n"
        "from headway.server.worker.undeclared import imported\n"
        "print(_native.declares_no_gil(declared), _native.declares_no_gil(undeclared), imported())"
    )
    for mode in ("0", "1") if BUILD else ("1",):
        done = subprocess.run(
            [sys.executable, "-X", f"gil={mode}", "-c", program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.stdout == "True False ['undeclared']\n", done.stderr


@free_threaded
def test_the_standard_library_and_headway_declare_it() -> None:
    assert _native.declares_no_gil(_native) is True  # type: ignore[arg-type]
    program = (
        "import ctypes, json, sqlite3, ssl, zlib, headway.server.supervisor.loop\n"
        "from headway.server.worker.undeclared import imported\nprint(imported())"
    )
    done = subprocess.run(
        [sys.executable, "-X", "gil=0", "-c", program], capture_output=True, text=True
    )
    assert done.stdout == "[]\n", done.stderr


def test_only_extension_modules_are_asked() -> None:
    with pytest.raises(TypeError, match="takes a module"):
        _native.declares_no_gil(7)  # type: ignore[arg-type]
    assert "headway.server.worker.undeclared" not in imported()


@free_threaded
@needs_compiler
@pytest.mark.parametrize("preload", [False, True])
def test_modules_that_do_not_declare_it_are_told_at_once_and_once(
    tmp_path: Path, tells: dict[str, Any], preload: bool
) -> None:
    build(tmp_path, "at_start")
    build(tmp_path, "later", kind="single-phase")
    build(tmp_path, "declared", declared=True)
    with (tmp_path / "tells.py").open("a") as file:
        file.write("import declared, at_start\n")
    group = tells | {"processes": 2, "free_threading": True, "preload": preload}
    path = tmp_path / "status"
    said = "the module {} does not declare that it can run without a GIL, and runs without one"
    with Supervised(tmp_path, group, status_socket=str(path)) as server:
        # Before it serves.
        assert said.format("at_start") in server.stderr.partition("listening on")[0]

        def all_have_it() -> bool:
            assert json.loads(server.get("/?later").body)[0] is False
            return all("later" in each["undeclared"] for each in status(path) if each["number"])

        server.wait_until(all_have_it)
        server.wait_for(said.format("later"))
        processes = status(path)
        table = run_main("status", f"unix:{path}").stdout
    for each in processes:
        expected = ["at_start", "later"] if each["number"] else ["at_start"]
        assert (each["gil"], each["undeclared"]) == ("off", expected)
    assert server.stderr.count("at_start") == server.stderr.count(" later ") == 1
    assert table.count("without a GIL, and not declared to be able to: at_start, later\n") == 2


@free_threaded
@needs_compiler
def test_sub_interpreters_tell_as_well(tmp_path: Path, tells: dict[str, Any]) -> None:
    build(tmp_path, "undeclared")
    group = tells | {
        "mounts": [{"path": "", "application": "tells:application", "application_group": "a"}],
        "application_groups": [{"name": "a", "python_path": [], "interpreters": 2}],
        "free_threading": True,
    }
    path = tmp_path / "status"
    with Supervised(tmp_path, group, status_socket=str(path)) as server:
        server.get("/?undeclared")
        server.wait_for("the module undeclared does not declare")
        (process,) = status(path)
    assert (process["gil"], process["undeclared"]) == ("off", ["undeclared"])


@free_threaded
def test_with_a_gil_interpreters_have_gils_of_their_own(
    tmp_path: Path, tells: dict[str, Any]
) -> None:
    """As in any other build: the meter has a book for each."""
    group = tells | {
        "mounts": [{"path": "", "application": "tells:application", "application_group": "a"}],
        "application_groups": [
            {"name": "a", "python_path": [], "interpreters": 2, "own_gil": True}
        ],
        "free_threading": False,
    }
    with Supervised(tmp_path, group) as server:
        assert json.loads(server.get("/").body)[0] is True
        server.stop()
    for name in ("main", "a#1", "a#2"):
        assert f" ({name}): held " in server.stderr


@free_threaded
@needs_compiler
def test_with_a_gil_nobody_is_told(tmp_path: Path, tells: dict[str, Any]) -> None:
    build(tmp_path, "undeclared")
    path = tmp_path / "status"
    with Supervised(tmp_path, tells | {"free_threading": False}, status_socket=str(path)) as server:
        assert json.loads(server.get("/?undeclared").body)[0] is True
        (process,) = status(path)
    assert (process["gil"], process["undeclared"]) == ("on", [])
    assert "undeclared" not in server.stderr


@free_threaded
@needs_compiler
def test_the_check_names_them(tmp_path: Path) -> None:
    build(tmp_path, "undeclared")
    (tmp_path / "shop.py").write_text(
        "import sys, threading, undeclared\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "print('not for stdout', sys.stdin.read())\n"
        "def app(environ, start_response): ...\n"
    )
    arguments = ("shop:app", "--app-dir", tmp_path, "--check")
    done = serve(*arguments, "--free-threading")
    assert (done.returncode, done.stderr.splitlines()) == (
        0,
        [
            "not for stdout ",
            "headway serve: warning: --free-threading: process group main imports the module "
            "undeclared, which does not declare that it can run without a GIL",
        ],
    )
    assert "not for" not in done.stdout
    # Without it nothing is imported.
    assert serve(*arguments).stderr == ""
    # In whichever interpreter.
    done = serve(*arguments, "--free-threading", "--interpreters", "2")
    assert done.stderr.count("imports the module undeclared,") == 1


@free_threaded
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("1/0", "APP is 'shop:app': importing shop failed (see above)"),
        (
            "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
            "the process that imported the applications was ended by SIGKILL (see above)",
        ),
    ],
)
def test_the_check_says_what_cannot_be_imported(tmp_path: Path, source: str, said: str) -> None:
    (tmp_path / "shop.py").write_text(source)
    done = serve("shop:app", "--app-dir", tmp_path, "--check", "--free-threading")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last == f"headway serve: --free-threading: process group main: {said}"


# In a program of one's own

SERVES = """
import sys, threading, headway
from headway.errors import CommandError
stop, refused = threading.Event(), threading.Event()
def app(environ, start_response): ...
def serves():
    return any(thread.name == "headway-worker-1" for thread in threading.enumerate())
def late():
    while not serves() and not refused.wait(0.01):
        pass
    if sys.argv[2]:
        __import__(sys.argv[2])
    stop.set()
threading.Thread(target=late).start()
try:
    headway.serve(app, bind="127.0.0.1:0", stop=stop, free_threading=eval(sys.argv[1]))
    print("served", sys._is_gil_enabled() if hasattr(sys, "_is_gil_enabled") else True)
except CommandError as error:
    refused.set()
    print(error)
"""


def program(folder: Path, mode: str | None, wanted: bool | None, module: str = "") -> Any:
    flags = ["-X", f"gil={mode}"] if mode else []
    environment = {key: value for key, value in os.environ.items() if key != "PYTHON_GIL"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", *flags, "-c", SERVES, str(wanted), module],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


@free_threaded
def test_serve_takes_the_mode_that_runs_and_no_other(tmp_path: Path) -> None:
    said = "free_threading is {}, and Python runs {} a GIL; allowed: started as python -X gil={}\n"
    for mode, wanted, expected in (
        ("0", None, "served False\n"),
        ("1", None, "served True\n"),
        ("0", True, "served False\n"),
        ("1", False, "served True\n"),
        (None, True, "served False\n"),
        ("0", False, said.format(False, "without", 1)),
        ("1", True, said.format(True, "with", 0)),
    ):
        done = program(tmp_path, mode, wanted)
        assert (done.returncode, done.stdout) == (0, expected), (mode, wanted, done.stderr)


@with_a_gil
def test_serve_says_where_a_gil_can_be_done_without(tmp_path: Path) -> None:
    assert program(tmp_path, None, True).stdout == (
        "free_threading is True, and Python runs with a GIL; allowed: a free-threaded build of "
        "CPython, 3.13t or later\n"
    )
    assert program(tmp_path, None, False).stdout == "served True\n"


@free_threaded
@needs_compiler
def test_serve_tells_of_a_module_that_turns_the_gil_on(tmp_path: Path) -> None:
    build(tmp_path, "undeclared")
    module = "the module undeclared does not declare that it can run without a GIL"
    done = program(tmp_path, None, True, "undeclared")
    assert done.stdout == "served True\n"
    on = f"headway: the GIL is on: {module} (python -X gil=0 keeps it off all the same)\n"
    assert on in done.stderr
    done = program(tmp_path, "0", True, "undeclared")
    assert done.stdout == "served False\n"
    assert f"headway: {module}, and runs without one\n" in done.stderr
    assert "undeclared" not in program(tmp_path, "1", None, "undeclared").stderr


@free_threaded
def test_a_lock_is_not_the_gil(tmp_path: Path) -> None:
    """Waits of threads without a GIL are reported, but not as waits for the GIL."""
    log = tmp_path / "log"
    group = {
        "mounts": [{"path": "", "application": "tenant:app"}],
        "free_threading": True,
        "threads": 2,
        "access_log": "json",
        "access_log_path": str(log),
    }
    with Supervised(tmp_path, group) as server:
        asking = [threading.Thread(target=server.get, args=("/do/lock",)) for _ in range(2)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["status"] for line in lines] == [200, 200]
    assert max(line["gil_wait_time"] or 0 for line in lines) < 0.1
    assert re.search(r"; parked [\d.]+ ms \(", server.stderr), server.stderr
