"""The `headway` command itself, and what importing the package does."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from launch import HEADWAY, environment, execute, headway, python, run_main

import headway as headway_package
from headway.commands import module_search
from headway.verbs import OF_LAB, VERBS


def test_version() -> None:
    result = headway("--version")
    assert result.returncode == 0
    assert result.stdout.startswith(f"headway {version('headway')} on CPython 3.")
    assert (
        python("-c", "import headway; print(headway.__version__)").stdout
        == f"{version('headway')}\n"
    )


def test_help_lists_every_verb() -> None:
    result = headway("--help")
    assert result.returncode == 0
    for verb in VERBS:
        assert verb.name in result.stdout
        assert verb.summary.split()[0] in result.stdout


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_every_verb_has_help(verb: str) -> None:
    result = headway(verb, "--help")
    assert result.returncode == 0
    assert result.stdout.startswith(f"usage: headway {verb}")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "headway: the following arguments are required: VERB"),
        (["fly"], "headway: argument VERB: invalid choice: 'fly'"),
        (["--fast"], "headway: "),
        (["report"], "headway report: the following arguments are required: FILE"),
        (
            ["top", "a", "b"],
            "headway top: unrecognized arguments: b (see headway top --help)\n",
        ),
        (
            ["serve", "app:app", "--thraeds", "4"],
            "headway serve: unrecognized arguments: --thraeds 4 (see headway serve --help)\n",
        ),
        (["--fast", "report"], "headway: unrecognized arguments: --fast (see headway --help)\n"),
    ],
)
def test_bad_usage_is_one_line(arguments: list[str], complaint: str) -> None:
    result = run_main(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(complaint) or complaint in result.stderr
    assert result.stderr.count("\n") == 1


def without_site_packages(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`headway WORDS` where `folder` has all packages: Headway, and what else is in it."""
    (folder / "headway").symlink_to(Path(headway_package.__file__).parent)
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); sys.argv[0] = 'headway';"
        "from headway.cli import main; sys.exit(main())"
    )
    return execute([sys.executable, "-I", "-S", "-c", code, *words])


@pytest.mark.parametrize("verb", OF_LAB)
def test_a_verb_of_the_lab_without_it_is_one_line(tmp_path: Path, verb: str) -> None:
    result = without_site_packages(tmp_path, verb, "echo", "--quick")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        "headway: bench, bench-compare and simulate are verbs of headway-lab: in Headway's source "
        "tree run `make lab`, or `pip install ./lab` in an environment of your own that has "
        "Headway\n"
    )


def test_help_without_the_lab_says_how_to_install_it(tmp_path: Path) -> None:
    result = without_site_packages(tmp_path, "--help")
    assert result.returncode == 0
    assert not re.search(r"^ +(bench|bench-compare|simulate) ", result.stdout, re.M)
    assert "verbs of headway-lab: in" in " ".join(result.stdout.split())


def add_package(folder: Path, source: str) -> None:
    """A package `sky` of another distribution, whose entry point is `sky:VERBS`."""
    (folder / "sky.py").write_text(source)
    metadata = folder / "sky-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: sky\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[headway.verbs]\nsky = sky:VERBS\n")


SKY = """
from headway.verbs import Verb
VERBS = [Verb("fly", "sky", "fly over a program")]
def prepare_parser(parser):
    parser.add_argument("--height", type=int, required=True)
def run(arguments):
    print("flew at", arguments.height)
    return 3
"""


def test_another_package_adds_a_verb(tmp_path: Path) -> None:
    add_package(tmp_path, SKY)
    result = without_site_packages(tmp_path, "fly", "--height", "20")
    assert (result.returncode, result.stdout, result.stderr) == (3, "flew at 20\n", "")


def test_the_verb_of_another_package_has_help_and_errors(tmp_path: Path) -> None:
    add_package(tmp_path, SKY)
    assert "fly over a program" in without_site_packages(tmp_path, "--help").stdout
    (tmp_path / "headway").unlink()
    result = without_site_packages(tmp_path, "fly")
    assert result.returncode == 2
    assert result.stderr.startswith("headway fly: the following arguments are required: --height")


def test_a_package_whose_verbs_cannot_be_loaded_is_one_line(tmp_path: Path) -> None:
    add_package(tmp_path, "import clouds")
    result = without_site_packages(tmp_path, "fly")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "headway: the verbs of sky:VERBS cannot be loaded: ModuleNotFoundError: No module named "
        "'clouds'\n"
    )


def test_other_packages_are_not_asked_for_a_verb_of_headway(tmp_path: Path) -> None:
    add_package(tmp_path, "import clouds")
    assert without_site_packages(tmp_path, "status", "--help").returncode == 0


def test_importing_headway_imports_nothing_else() -> None:
    code = (
        "import sys; before = set(sys.modules); import headway;"
        "print(sorted(set(sys.modules) - before - {'__future__'}))"
    )
    assert python("-c", code).stdout == "['headway']\n"


def test_headway_run_starts_without_argparse_typing_and_re(tmp_path: Path) -> None:
    """All that a program waits for, in both interpreters that `headway run` starts."""
    code = "import sys; sys.argv[0] = 'headway'; from headway.cli import main; sys.exit(main())"
    run = ["run", "--policy", "priority", "--json", "report.json", "-c", "pass"]
    result = python("-X", "importtime", "-c", code, *run, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    imported = [line.rpartition("|")[2].strip() for line in result.stderr.splitlines()]
    assert imported.count("headway.meter.engine") == 2
    slow = {"argparse", "typing", "re", "subprocess", "dataclasses", "contextlib", "threading"}
    slow |= {"importlib.metadata", "headway.extras"}
    assert not slow & {*imported}


def test_importing_headway_works_without_the_extension_module() -> None:
    code = """
import sys
sys.modules["headway._native"] = None  # what a failed import leaves to find
import headway.cli, headway.commands.run, headway.commands.report, headway.gil
try:
    headway.gil.install()
except headway.errors.Unsupported as error:
    print("unsupported:", error)
"""
    result = python("-c", code)
    assert result.stdout.startswith("unsupported: "), result.stderr
    assert result.stdout.count("\n") == 1


def test_headway_run_without_the_extension_module_is_one_line() -> None:
    code = (
        "import sys; sys.modules['headway._native'] = None; import os;"
        "os.environ['HEADWAY'] = f'run:pid={os.getpid()}';"
        "from headway import environment; environment.start(); print('ran')"
    )
    result = python("-c", code)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("headway run: the GIL meter cannot be installed")
    assert result.stderr.count("\n") == 1


def test_an_unknown_attribute_of_the_package() -> None:
    result = python("-c", "import headway; headway.nothing")
    assert "AttributeError: module 'headway' has no attribute 'nothing'" in result.stderr


def test_module_search_imports_nothing_on_the_way() -> None:
    names = ("email.mime.text", "xml.dom.minidom", "unittest", "wsgiref.simple_server")
    code = (
        "import sys; from headway.commands.module_search import find_module;"
        f"print([find_module(name) for name in {names}]);"
        f"print([name for name in {names} if name.partition('.')[0] in sys.modules])"
    )
    assert python("-c", code).stdout == "['', '', '', '']\n[]\n"


@pytest.mark.parametrize(
    "name",
    ["http.server", "unittest", "timeit", "os.path", "sys", "__hello__", "pytest", "asyncio"],
)
def test_modules_that_python_finds_are_found(name: str) -> None:
    assert module_search.find_module(name) == ""


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no_such_module", "no module named 'no_such_module'"),
        ("no.such.module", "no module named 'no'"),
        ("this.that", "no module named 'this.that': 'this' is not a package"),
        ("", "not a module name"),
        (".relative", "not a module name"),
        ("path/to/script.py", "not a module name"),
    ],
)
def test_modules_that_python_does_not_find_are_not(name: str, problem: str) -> None:
    assert module_search.find_module(name) == problem
    found = execute([sys.executable, "-m", name]) if name else None
    assert found is None or found.returncode == 1


def test_ctrl_c_ends_a_verb_without_a_traceback() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", "report", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdin is not None
    # More than a pipe holds, see pipe(7): once it is written the verb reads, so Python has started.
    process.stdin.write(b" " * 1_000_000)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr == b""


def test_a_result_that_cannot_be_written_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*HEADWAY, "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            text=True,
        )
    assert done.returncode == 1
    assert done.stderr == "headway: stdout cannot be written: No space left on device\n"


@pytest.mark.parametrize("words", [["nonsense"], ["report", "/nonexistent"]])
def test_a_message_that_cannot_be_written_leaves_the_exit_status(words: list[str]) -> None:
    """The interpreter would end with 120."""
    with open("/dev/full", "w") as full:
        done = subprocess.run([*HEADWAY, *words], stderr=full, env=environment())
    assert done.returncode == run_main(*words).returncode != 0
