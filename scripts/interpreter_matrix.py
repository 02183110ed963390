"""Tries Headway on CPythons that are built in the ways in which people have them.

Usage: scripts/interpreter_matrix.py [NAME...] [--suite]

Each NAME is a row of the table; without one all rows run, in about a minute each.
scripts/get-pythons brings the interpreters that are missing, in 3 to 10 minutes each. The wheel of
dist/ for CPython 3.13 and its C library (make wheels) is installed into an environment of each, and
there run

- 20 waits for the GIL of 20 ms, whose lengths the program knows (matrix/known_waits.py), under the
  meter. The cell has how many of them the meter saw, and by how much the sum of its times differs;
- examples/convoy.py, without Headway and under `priority`, three times each: the ratio of the
  medians of the requests per second;
- `headway serve` with one request;
- with --suite, the tests of SUITE.

A program that refuses gets the line with its reason into its cell. Prints a table in Markdown. The
exit status is 1 if a cell is neither right nor a refusal.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MATRIX = ROOT / "scripts/matrix"
PYTHONS = Path(
    os.environ.get("HEADWAY_PYTHONS")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headway/pythons"
)
UV = ROOT / ".venvs/tools/bin/uv"

# Of the wait itself. The thread that waits wakes up later than the lock is released.
TOLERANCE = 0.02
LONG_WAIT_S = 0.015
ROUNDS = 3
LIMIT_S = 120
SUITE = ("tests/test_gil.py", "tests/test_policies.py", "tests/test_hooks.py")


class RefusedError(Exception):
    """Headway said in one line why it does not work here."""


@dataclass(frozen=True)
class Row:
    """One way to build an interpreter; `embedding` is how libpython gets into a program."""

    name: str
    version: str
    text: str
    embedding: str = ""
    wheels: str = "manylinux"


ROWS = {
    row.name: row
    for row in (
        Row("debian", "3.13", "Debian 13's and Ubuntu's: static executable, LTO, PGO"),
        Row("docker", "3.13-docker", "Docker's: shared library, LTO, PGO"),
        Row("fedora", "3.13-fedora", "Fedora's and RHEL's: shared library without interposition"),
        Row("conda", "3.13-conda", "conda-forge's: static, LTO, `-fno-plt`, `-z now`"),
        Row("standalone", "3.13-standalone", "python-build-standalone's: clang, lld, glibc 2.17"),
        Row("now", "3.13-now", "static, `-Wl,-z,now`"),
        Row("no-plt", "3.13-no-plt", "static, `-fno-plt`"),
        Row("embedded-shared", "3.13-fedora", "C program with libpython3.13.so", "shared"),
        Row("embedded-static", "3.13-conda", "C program with libpython3.13.a", "static"),
        Row("musl", "3.13-musl", "Alpine's C library, musl", wheels="musllinux"),
    )
}


@dataclass(frozen=True)
class Subject:
    """An interpreter with Headway in its environment."""

    program: Path
    folder: Path

    def run(self, *arguments: str | Path) -> str:
        """Returns stdout. Raises `RefusedError` for exit status 1 or 2 with one line on stderr."""
        done = subprocess.run(
            [self.program, *arguments],
            cwd=self.folder,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            if done.returncode in (1, 2) and len(lines) == 1:
                raise RefusedError(lines[0])
            raise AssertionError(f"status {done.returncode}: {' / '.join(lines[-3:])}")
        return done.stdout


def clean_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HEADWAY", "PYTHON", "VIRTUAL_ENV"))
    }


def find_wheel(row: Row) -> Path:
    machine = os.uname().machine
    wheels = sorted((ROOT / "dist").glob(f"headway-*-cp313-cp313-{row.wheels}*_{machine}.whl"))
    if not wheels:
        ending = "-musl" if row.wheels == "musllinux" else ""
        sys.exit(
            f"interpreter_matrix: dist/ has no wheel for CPython 3.13 and {row.wheels}: "
            f"make wheels WHEELS=cp313-{machine}{ending}"
        )
    return wheels[-1]


def find_interpreter(row: Row) -> Path:
    interpreter = PYTHONS / row.version / "bin" / f"python{row.version}"
    if not interpreter.exists():
        subprocess.run([ROOT / "scripts/get-pythons", row.version], check=True)
    return interpreter


def make_subject(row: Row, folder: Path, wheel: Path, requirements: Sequence[str]) -> Subject:
    """Raises `RefusedError` if the wheel cannot be installed."""
    interpreter = find_interpreter(row)
    uv = {**clean_environment(), "UV_PYTHON_DOWNLOADS": "never"}
    environment = folder / "environment"
    subprocess.run(
        [UV, "venv", "--quiet", "--no-project", "--python", interpreter, environment],
        env=uv,
        check=True,
    )
    program = environment / "bin/python"
    done = subprocess.run(
        [UV, "pip", "install", "--quiet", "--python", program, wheel, *requirements],
        env=uv,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RefusedError("uv pip install: " + " ".join(done.stderr.split()))
    if row.embedding:
        program = embed(row, interpreter, environment / "bin/program")
    return Subject(program, folder)


def embed(row: Row, interpreter: Path, program: Path) -> Path:
    """Compiles matrix/embedding.c into the environment, which it then uses like its python."""

    def variables(*names: str) -> list[str]:
        asked = f"import sysconfig as s; print(*s.get_config_vars(*{names!r}))"
        return subprocess.check_output([interpreter, "-c", asked], text=True).split()

    prefix = interpreter.parent.parent
    (library,) = variables("LIBDIR")
    if row.embedding == "shared":
        linked = [f"-L{library}", "-lpython3.13", f"-Wl,-rpath,{library}"]
    else:
        (archive,) = prefix.glob("lib/python3.13/config-*/libpython3.13.a")
        # All of it, since extension modules use what the program itself does not.
        whole = ["-Wl,--whole-archive", str(archive), "-Wl,--no-whole-archive"]
        linked = ["-flto=auto", "-rdynamic", *whole, *variables("LIBS", "SYSLIBS")]
    include = f"-I{prefix}/include/python3.13"
    subprocess.run(
        ["cc", "-O2", include, MATRIX / "embedding.c", "-o", program, *linked], check=True
    )
    return program


def known_waits(subject: Subject) -> str:
    report = subject.folder / "waits.json"
    program = MATRIX / "known_waits.py"
    printed = subject.run("-m", "headway", "run", "--json", report, program)
    waits, known_ns = map(int, printed.split())
    threads = json.loads(report.read_text())["threads"]
    (main,) = (thread for thread in threads if thread["name"] == "MainThread")
    seen = sum(count for edge_s, count in main["wait"]["buckets"] if edge_s > LONG_WAIT_S)
    difference = main["waited_s"] / (known_ns / 1e9) - 1
    assert seen == waits, f"saw {seen} of {waits} waits"
    assert abs(difference) < TOLERANCE, f"the waits' sum differs by {difference:+.2%}"
    return f"{seen} of {waits}, {difference * 100:+.2f} %"


def convoy(subject: Subject) -> str:
    program = ROOT / "examples/convoy.py"
    under_priority = ("-m", "headway", "run", "--policy", "priority", program)

    def rate(*arguments: str | Path) -> float:
        found = re.search(r"([\d,]+) requests a second", subject.run(*arguments))
        assert found, "the program printed no rate"
        return float(found[1].replace(",", ""))

    pairs = [(rate(program), rate(*under_priority)) for _ in range(ROUNDS)]
    stock, priority = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    assert priority > 10 * stock, f"{stock:,.0f} and {priority:,.0f} requests/s"
    return f"{priority / stock:,.0f} ({stock:,.0f} and {priority:,.0f}/s)"


def server(subject: Subject) -> str:
    log = subject.folder / "serve.log"
    options = ["--app-dir", str(MATRIX), "--bind", "127.0.0.1:0"]
    command = [str(subject.program), "-m", "headway", "serve", "hello:app", *options]
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command, stderr=stderr, env=clean_environment(), cwd=subject.folder
        )
    try:
        deadline = time.monotonic() + LIMIT_S
        while not (found := re.search(r"listening on (http://\S+)", log.read_text())):
            if process.poll() is not None:
                lines = log.read_text().strip().splitlines()
                assert len(lines) == 1, f"ended: {' / '.join(lines[-3:])}"
                raise RefusedError(lines[0])
            assert time.monotonic() < deadline, "does not listen"
            time.sleep(0.05)
        with urllib.request.urlopen(found[1], timeout=LIMIT_S) as response:
            body = response.read()
        assert body == b"hello", f"answered {body!r}"
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        status = process.wait(LIMIT_S)
    assert status == 0, f"ended with status {status}"
    return "hello"


def suite(subject: Subject) -> str:
    arguments = ["-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *SUITE]
    done = subprocess.run(
        [subject.program, *arguments],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = done.stdout.strip().splitlines()
    last = lines[-1] if lines else done.stderr[-300:]
    failed = [line.split()[1] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    assert done.returncode == 0, "; ".join([last, *failed])
    return re.sub(r" in .*", "", last)


CELLS: dict[str, Callable[[Subject], str]] = {
    "known waits": known_waits,
    "`priority`, times stock": convoy,
    "server": server,
}


def measure(
    row: Row, wheel: Path, cells: dict[str, Callable[[Subject], str]]
) -> tuple[list[str], bool]:
    """The texts of the row's cells, and whether each of them is right or a refusal."""
    folder = Path(tempfile.mkdtemp(prefix=f"headway-{row.name}-"))
    requirements = ("pytest==9.2.0", "pytest-timeout==2.4.0") if "suite" in cells else ()
    texts: list[str] = []
    is_right = True
    try:
        subject = make_subject(row, folder, wheel, requirements)
        for cell in cells.values():
            try:
                texts.append(cell(subject))
            except RefusedError as error:
                texts.append(f"refuses: {error}")
            except (AssertionError, subprocess.TimeoutExpired) as error:
                texts.append(f"WRONG: {error}")
                is_right = False
    except RefusedError as error:
        texts = [f"refuses: {error}", *["" for _ in cells][1:]]
    finally:
        shutil.rmtree(folder)
    return texts, is_right


def main() -> int:
    parser = argparse.ArgumentParser(usage=(__doc__ or "").split("Usage: ")[1].split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ROWS))
    parser.add_argument("--suite", action="store_true", help="also run " + ", ".join(SUITE))
    options = parser.parse_args()
    for name in options.names:
        if name not in ROWS:
            parser.error(f"found '{name}'; allowed: {', '.join(ROWS)}")
    names = options.names or list(ROWS)
    wheels = {name: find_wheel(ROWS[name]) for name in names}
    cells = {**CELLS, **({"suite": suite} if options.suite else {})}
    subprocess.run([ROOT / "scripts/tools", "wheels"], check=True)
    print("| name | built as | " + " | ".join(cells) + " |")
    print("|---" * (2 + len(cells)) + "|", flush=True)
    all_right = True
    for name in names:
        row = ROWS[name]
        texts, is_right = measure(row, wheels[name], cells)
        all_right &= is_right
        print(f"| `{name}` | {row.text} | " + " | ".join(texts) + " |", flush=True)
    return 0 if all_right else 1


if __name__ == "__main__":
    sys.exit(main())
