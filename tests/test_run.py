"""`headway run X` is `python X`: what the program sees, and what is seen of it."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import zipapp
from pathlib import Path

import pytest
from launch import execute, headway, python, report_in, run_main

pytestmark = pytest.mark.free_threading

LOOK_AROUND = """\
import atexit, json, os, signal, sys, threading
main = sys.modules["__main__"]
atexit.register(lambda: print("the first to register runs last"))
print(json.dumps({
    "argv": sys.argv,
    "orig_argv": sys.orig_argv,
    "path": sys.path,
    "flags": str(sys.flags),
    "warnings": sys.warnoptions,
    "xoptions": sys._xoptions,
    "name": __name__,
    "file": getattr(main, "__file__", None),
    "package": main.__package__,
    "spec": main.__spec__ and main.__spec__.name,
    "main": sorted(vars(main)),
    "stdin": sys.stdin.read(),
    "cwd": os.getcwd(),
    "environ": dict(os.environ),
    "umask": os.umask(0o22),
    "descriptors": sorted(os.listdir("/proc/self/fd")),
    "interval": sys.getswitchinterval(),
    "signals": {str(n): str(signal.getsignal(n)) for n in sorted(signal.valid_signals())},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "parent": os.getppid(),
    "threads": [thread.name for thread in threading.enumerate()],
    "trace": str((sys.gettrace(), sys.getprofile(), threading._profile_hook)),
    "hooks": str((sys.excepthook, sys.displayhook, threading.excepthook)),
}, indent=1))
atexit.register(lambda: print("the last to register runs first"))
sys.exit(9)
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory with the same program in every form that python takes."""
    (tmp_path / "script.py").write_text(LOOK_AROUND)
    (tmp_path / "-odd name.py").write_text(LOOK_AROUND)
    for folder in ("folder", "package", "package/inner"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__main__.py").write_text(LOOK_AROUND)
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "module.py").write_text(LOOK_AROUND)
    zipapp.create_archive(tmp_path / "folder", tmp_path / "archive.pyz")
    return tmp_path


@pytest.mark.parametrize(
    "program",
    [
        ["script.py"],
        ["script.py", "--json", "x", "-m", "--", "-c", "--help", ""],
        ["./script.py", "--follow"],
        ["--", "-odd name.py", "-x"],
        ["folder"],
        ["archive.pyz", "one"],
        ["-", "one"],
        ["-m", "script", "--json"],
        ["-mscript", "-x"],
        ["-m", "package", "-m", "other"],
        ["-m", "package.module"],
        ["-m", "package.inner"],
        ["-c", LOOK_AROUND, "-c", "--version"],
    ],
)
def test_a_program_sees_what_it_sees_under_python(here: Path, program: list[str]) -> None:
    text = LOOK_AROUND if program[0] == "-" else "typed\nlines"
    plain = python(*program, cwd=here, input=text)
    measured = headway("run", *program, cwd=here, input=text)
    assert plain.returncode == 9, plain.stderr
    # `-mscript` is handed on as two words, which only sys.orig_argv tells.
    assert measured.stdout == plain.stdout.replace('"-mscript"', '"-m",\n  "script"')
    assert measured.returncode == plain.returncode
    assert report_in(measured.stderr)


def test_the_interpreters_own_options_hold_for_the_program(here: Path) -> None:
    options = ["-X", "dev", "-W", "ignore::ResourceWarning", "-B", "-O"]
    plain = python(*options, "script.py", cwd=here, input="")
    measured = execute(
        [sys.executable, *options, "-m", "headway", "run", "script.py"], cwd=here, input=""
    )

    seen = [json.JSONDecoder().raw_decode(result.stdout)[0] for result in (plain, measured)]
    for each in seen:
        del each["orig_argv"]  # the same options, perhaps in another order
    assert seen[0] == seen[1]
    assert measured.returncode == 9


@pytest.mark.parametrize(
    "options",
    [
        ["-X", "dev"],
        ["-Xdev", "-W", "error"],
        ["-Wignore::ResourceWarning", "-O"],
        ["-OO", "-u", "-B"],
        ["-uBs", "-d"],
        ["-bb", "-q", "-v"],
        ["-I"],
        ["-E", "-P"] if sys.version_info >= (3, 11) else ["-E"],
    ],
)
@pytest.mark.parametrize("program", [["script.py", "-X", "its own"], ["-m", "script", "-O"]])
def test_options_of_the_interpreter_are_run_s_too(
    here: Path, options: list[str], program: list[str]
) -> None:
    if program[0] == "-m" and {"-I", "-P"} & set(options):
        program = ["-m", "platform"]
    plain = python(*options, *program, cwd=here, input="")
    for arguments in (["--policy", "interval", *options], [*options, "--policy", "interval"]):
        measured = headway("run", *arguments, *program, cwd=here, input="")
        if program[-1] == "platform":
            assert measured.stdout == plain.stdout
        else:
            seen = [json.JSONDecoder().raw_decode(each.stdout)[0] for each in (plain, measured)]
            for each in seen:
                del each["orig_argv"]  # -OO is handed on as two words
            assert seen[0] == seen[1]
        assert measured.returncode == plain.returncode
        assert report_in(measured.stderr)


def test_options_may_stand_in_one_word_with_code() -> None:
    for arguments in (["-OOc", "print(__debug__)"], ["-uBcprint(__debug__)"]):
        assert headway("run", *arguments).stdout == python(*arguments).stdout


def test_the_prompt_comes_after_the_program(here: Path) -> None:
    (here / "short.py").write_text("#!a line to skip\nanswer = 42")
    plain = python("-ix", "short.py", cwd=here, input="print(answer)\n")
    measured = headway("run", "-ix", "short.py", cwd=here, input="print(answer)\n")
    assert measured.stdout == plain.stdout == "42\n"
    assert measured.stderr.startswith(plain.stderr)
    assert report_in(measured.stderr)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("no_such_module", "-m no_such_module: no module named 'no_such_module'"),
        ("quiet.inner", "'quiet' is not a package"),
        ("bare", "-m bare: is a package without a __main__ module"),
        ("a..b", "-m a..b: not a module name"),
    ],
)
def test_a_module_that_cannot_be_run_ends_as_under_python(
    here: Path, name: str, complaint: str
) -> None:
    (here / "quiet.py").touch()
    (here / "bare").mkdir()
    (here / "bare" / "__init__.py").write_text("print('started')")
    plain = python("-m", name, cwd=here)
    measured = headway("run", "-m", name, cwd=here)
    assert measured.returncode == plain.returncode == 1
    assert measured.stderr.startswith("headway run: ")
    assert complaint in measured.stderr
    assert measured.stderr.count("\n") == 1


def test_the_installed_command_is_the_same(here: Path) -> None:
    command = shutil.which("headway", path=str(Path(sys.executable).parent))
    assert command is not None
    by_command = execute([command, "run", "script.py"], cwd=here, input="")
    by_module = headway("run", "script.py", cwd=here, input="")
    assert by_command.stdout == by_module.stdout
    assert by_command.returncode == 9


@pytest.mark.parametrize(
    "code",
    [
        "pass",
        "import sys; sys.exit()",
        "import sys; sys.exit(3)",
        "import sys; sys.exit(-1)",
        "import sys; sys.exit('last words')",
        "raise SystemExit(None)",
        "print('half a line', end=''); 1 / 0",
        "a syntax error",
        "raise KeyboardInterrupt",
        "import threading; threading.Thread(target=lambda: 1 / 0).start()",
        "import atexit; atexit.register(lambda: 1 / 0)",
        "import os; os._exit(4)",
        "import os; os.abort()",
        "import sys; sys.stdout.close(); sys.stderr.close()",
        "import sys; sys.stderr = sys.stdout = None",
        "import os; os.close(2)",
        "import os; os.close(0); os.close(1)",
        "import os, sys; os.chdir('/'); sys.path.clear(); sys.modules.clear()",
        "import sys; sys.path[:] = ['nowhere']; sys.meta_path.clear()",
        *(
            f"import os, signal; os.kill(os.getpid(), signal.{name})"
            for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGKILL", "SIGSEGV", "SIGUSR1", "SIGQUIT")
        ),
    ],
)
def test_a_program_ends_as_under_python(code: str, tmp_path: Path) -> None:
    plain = python("-c", code, cwd=tmp_path)
    measured = headway("run", "-c", code, cwd=tmp_path)
    assert measured.returncode == plain.returncode
    assert measured.stdout == plain.stdout

    def without_pids(text: str) -> str:
        return "\n".join(line for line in text.splitlines() if "0x" not in line)

    assert without_pids(measured.stderr).startswith(without_pids(plain.stderr))


def test_nothing_large_is_imported_before_the_program() -> None:
    code = "import sys; print(*sorted(sys.modules))"
    plain = python("-c", code).stdout.split()
    measured = headway("run", "-c", code).stdout.split()
    more = set(measured) - set(plain)
    for module in ("argparse", "json", "re", "subprocess", "tempfile", "inspect", "logging"):
        assert module not in more
    assert {name for name in more if name.startswith("headway.")} <= {
        "headway._native",
        "headway.environment",
        "headway.errors",
        "headway.meter",
        "headway.meter.end",
        "headway.meter.engine",
        "headway.meter.forks",
        "headway.meter.garbage_collection",
        "headway.meter.late_lines",
        "headway.meter.machine",
        "headway.meter.report_modules",
        "headway.meter.run_settings",
        "headway.meter.start",
        "headway.meter.thread_names",
    }


def test_modules_of_the_program_do_not_disturb_the_report(tmp_path: Path) -> None:
    for name in ("json", "stat", "headway", "math", "report", "terminal", "units"):
        (tmp_path / f"{name}.py").write_text("raise SystemError('the wrong module')")
    (tmp_path / "program.py").write_text("print('ran')")
    out = tmp_path / "out.json"
    result = headway("run", "--json", out, tmp_path / "program.py")
    assert (result.returncode, result.stdout) == (0, "ran\n")
    assert report_in(result.stderr)
    assert out.exists()


def test_children_do_not_take_themselves_for_the_owner(tmp_path: Path) -> None:
    child = "import sys; print('headway.meter.engine' in sys.modules)"
    code = (
        "import os, subprocess, sys\n"
        "print([name for name in os.environ if name.startswith('HEADWAY')], flush=True)\n"
        f"subprocess.run([sys.executable, '-c', {child!r}])"
    )
    result = headway("run", "-c", code)
    assert result.stdout == "[]\nFalse\n"
    assert result.stderr.count("headway  Python") == 1


def test_the_switch_interval_is_set() -> None:
    code = "import sys; print(sys.getswitchinterval())"
    result = headway("run", "--switch-interval", "0.0005", "-c", code)
    assert result.stdout == "0.0005\n"
    assert "switch interval 500 µs" in " ".join(result.stderr.split())


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    code = (
        "import os, signal; print(signal.getsignal(signal.SIGHUP).name);"
        "os.kill(os.getpid(), signal.SIGHUP); print('alive')"
    )
    result = headway(
        "run", "-c", code, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    assert result.stdout == "SIG_IGN\nalive\n"
    assert result.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "nothing to run"),
        (["--follow"], "nothing to run"),
        (["--"], "nothing to run"),
        (["-m"], "-m needs a module"),
        (["-c"], "-c needs code"),
        (["none.py"], "SCRIPT 'none.py': No such file or directory"),
        (["script.py/none"], "Not a directory"),
        (["empty"], "SCRIPT 'empty' is a directory without a __main__.py"),
        (["-X"], "-X needs an option after it"),
        (["-OW"], "-W needs a warning filter after it"),
        (["-z", "script.py"], "unrecognized arguments: -z"),
        (["-Oz", "script.py"], "unrecognized arguments: -Oz"),
        (["-V", "script.py"], "unrecognized arguments: -V"),
        (["-S", "script.py"], "python -S skips site"),
        (["-OS", "script.py"], "python -S skips site"),
        (
            ["--policy", "fastest", "script.py"],
            "--policy: found 'fastest'; allowed: one of interval, priority, deadline",
        ),
        (["--switch-interval", "0", "script.py"], "--switch-interval: found '0'; allowed"),
        (["--switch-interval", "-1", "script.py"], "--switch-interval: found '-1'; allowed"),
        (
            ["--switch-interval", "nan", "script.py"],
            "found 'nan'; allowed: a number of seconds from 0.000001",
        ),
        (["--switch-interval", "5min", "script.py"], "--switch-interval: found '5min'; allowed"),
        (["--switch-interval"], "--switch-interval: expected one argument"),
        (["--speed", "script.py"], "--speed"),
        (
            ["--json", "none/out.json", "script.py"],
            "--json 'none/out.json' cannot be written: No such",
        ),
        (["--json", "empty", "script.py"], "--json 'empty' cannot be written: is a directory"),
        (["--json", "script.py/x", "script.py"], "Not a directory"),
        (["--json", "", "script.py"], "--json '' cannot be written"),
    ],
)
def test_bad_usage_is_one_line_before_anything_starts(
    tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    (tmp_path / "script.py").write_text("print('started')")
    (tmp_path / "empty").mkdir()
    result = run_main("run", *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("headway run: ")
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "script.py"]


def test_a_refusal_leaves_an_earlier_report_alone(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text("of yesterday")
    (tmp_path / "out.json.ledger").write_text("of a crash")
    result = run_main("run", "--json", "out.json", "none.py", cwd=tmp_path)
    assert result.returncode == 2
    assert (tmp_path / "out.json").read_text() == "of yesterday"
    assert (tmp_path / "out.json.ledger").read_text() == "of a crash"


def test_without_the_pth_file_it_says_how_to_get_it(tmp_path: Path) -> None:
    no_site = execute([sys.executable, "-S", "-c", run_without_site(), "run", "-c", "print(1)"])
    assert no_site.returncode == 2
    assert "python -S skips site" in no_site.stderr
    assert no_site.stdout == ""

    code = (
        "import sys; from headway.commands import run; from headway.errors import CommandError\n"
        f"try: run.check_follow_file([{str(tmp_path)!r}])\n"
        "except CommandError as error: print(error)"
    )
    missing = python("-c", code).stdout
    assert str(tmp_path) in missing
    assert "pip install" in missing
    assert missing.count("\n") == 1


def run_without_site() -> str:
    import headway

    packages = str(Path(headway.__file__).parent.parent)
    return (
        f"import sys; sys.path.append({packages!r}); from headway.cli import main; sys.exit(main())"
    )


def test_the_programs_interpreter_is_this_one() -> None:
    code = "import sys; print(sys.executable, sys.prefix)"
    assert headway("run", "-c", code).stdout == python("-c", code).stdout


def test_help_teaches() -> None:
    result = run_main("run", "--help", COLUMNS="100")
    assert result.returncode == 0
    for word in (
        "--json FILE",
        "--switch-interval S",
        "--policy P",
        "--follow",
        "-m MODULE",
        "policies:",
        "interval  CPython's own rule",
        "priority  threads that wait for I/O before CPU-bound threads",
        "deadline  every thread in turn",
        "examples:",
    ):
        assert word in result.stdout
