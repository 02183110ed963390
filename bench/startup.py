"""Measures what Headway adds to the start of a program: `python -c pass`.

Two virtual environments differ in what `pip install headway` puts into one of them. Starts of both
alternate, so that drift of the machine hits both alike; the difference is the median over pairs,
with its quartiles. With valgrind installed, instructions are counted too, with a fixed hash seed:
they do not depend on what else the machine does. By default the program does not use Headway;
`--value` measures a start with HEADWAY set, and `--run` one by `headway run`, which starts an
interpreter that becomes another one.

`--bytecode` measures `headway run` in four cases: after a compiler of bytecode such as pip's, and
as the first start after an installer that does not compile, such as uv, each with and without
PYTHONDONTWRITEBYTECODE=1; and all of them with the bytecode that the wheel brought and without.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from importlib.metadata import files
from pathlib import Path
from typing import NamedTuple

# The same calls as in the script that pip writes for a command.
HEADWAY_RUN = ("-c", "import sys; from headway.cli import main; sys.exit(main())", "run")
PAIRS = 100
QUICK_PAIRS = 5


class Costs(NamedTuple):
    """The time from each start to the end of the program, and its CPU time."""

    wall_s: list[float]
    cpu_s: list[float]


def make_environment(
    folder: Path, installed: bool, other_pth: bool = False, bytecode: bool = True
) -> Path:
    """Makes a virtual environment without pip, and returns its interpreter. If `installed`, it has
    the files that the wheel put into the environment of this interpreter, without those of its
    bytecode unless `bytecode` is set. With `other_pth` it has another .pth file, which does
    nothing."""
    venv.create(folder, symlinks=True)
    packages = site_packages(folder)
    if other_pth:
        (packages / "other.pth").write_text("# Nothing.\n")
    for file in (files("headway") or ()) if installed else ():
        if ".." not in file.parts and (bytecode or file.suffix != ".pyc"):
            target = packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(str(file.locate()), target)
    return folder / "bin/python"


def site_packages(environment: Path) -> Path:
    (found,) = environment.glob("lib/python*/site-packages")
    return found


def environment(value: str | None) -> dict[str, str]:
    """The variables of a start, without those that make an interpreter start in another way."""
    skipped = ("HEADWAY", "PYTHON")
    kept = {key: text for key, text in os.environ.items() if not key.startswith(skipped)}
    kept["PYTHONHASHSEED"] = "0"
    return kept if value is None else {**kept, "HEADWAY": value}


def start(command: list[str], variables: dict[str, str], costs: Costs) -> None:
    begin = time.perf_counter()
    # The report goes where nobody reads it.
    pid = os.posix_spawn(
        command[0],
        command,
        variables,
        file_actions=[(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, usage = os.wait4(pid, 0)
    costs.wall_s.append(time.perf_counter() - begin)
    costs.cpu_s.append(usage.ru_utime + usage.ru_stime)
    if status:
        raise SystemExit(f"startup: {' '.join(command)} ended with status {status}")


def instructions(command: list[str], variables: dict[str, str]) -> int:
    """The instructions of one start, as valgrind's callgrind counts them."""
    with tempfile.TemporaryDirectory() as folder:
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        result = subprocess.run(
            [*valgrind, *command], env=variables, capture_output=True, text=True, check=True
        )
    (counted,) = re.findall(r"Collected : (\d+)", result.stderr)
    return int(counted)


def show(name: str, without: list[float], with_headway: list[float]) -> None:
    pairs = zip(without, with_headway, strict=True)
    low, middle, high = statistics.quantiles((on - off for off, on in pairs), n=4)
    print(
        f"{name:<14}{statistics.median(without) * 1e3:10.3f} ms"
        f"{statistics.median(with_headway) * 1e3:10.3f} ms"
        f"{middle * 1e3:+10.3f} ms  ({low * 1e3:+.3f} to {high * 1e3:+.3f})"
    )


def bytecode_files(environment: Path) -> set[Path]:
    return set((site_packages(environment) / "headway").rglob("*.pyc"))


def measure_bytecode(folder: Path, pairs: int) -> None:
    plain = [str(make_environment(folder / "plain", False)), "-c", "pass"]
    names = ("with", "without")
    for name in names:
        make_environment(folder / name, True, bytecode=name == "with")
    brought = {name: bytecode_files(folder / name) for name in names}
    commands = {
        name: [str(folder / name / "bin/python"), *HEADWAY_RUN, "-c", "pass"] for name in names
    }
    print(
        f"headway run -c pass on CPython {sys.version.split()[0]}, {pairs} pairs: CPU time beyond "
        "python -c pass, median (quartiles)\n"
        f"{'':<16}{'PYTHONDONTWRITEBYTECODE':<26}"
        f"{'with the bytecode of the wheel':<34}without"
    )
    for is_compiled in (False, True):
        if is_compiled:
            for name in names:
                compiler = [commands[name][0], "-m", "compileall", "-q", "-f"]
                subprocess.run([*compiler, site_packages(folder / name) / "headway"], check=True)
                brought[name] = bytecode_files(folder / name)
        for value in ("", "1"):
            variables = {**environment(None), "PYTHONDONTWRITEBYTECODE": value}
            differences: dict[str, list[float]] = {name: [] for name in names}
            for number in range(-3, pairs):
                costs = {name: Costs([], []) for name in ("plain", *names)}
                start(plain, variables, costs["plain"])
                for name in names:
                    for file in bytecode_files(folder / name) - brought[name]:
                        file.unlink()
                    start(commands[name], variables, costs[name])
                    if number >= 0:
                        more_s = costs[name].cpu_s[0] - costs["plain"].cpu_s[0]
                        differences[name].append(more_s * 1e3)
            case = "compiled" if is_compiled else "not compiled"
            cells = []
            for name in names:
                low, middle, high = statistics.quantiles(differences[name], n=4)
                cells.append(f"{middle:+.1f} ms ({low:+.1f} to {high:+.1f})")
            print(f"{case:<16}{value or 'unset':<26}{cells[0]:<34}{cells[1]}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=PAIRS, help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="few pairs, to see that it runs")
    second = parser.add_mutually_exclusive_group()
    second.add_argument("--value", metavar="VALUE", help="start the second one with HEADWAY=VALUE")
    second.add_argument("--run", action="store_true", help="start the second one by headway run")
    second.add_argument(
        "--bytecode",
        action="store_true",
        help="headway run in four cases, with the bytecode that the wheel brought and without",
    )
    parser.add_argument(
        "--other-pth",
        action="store_true",
        help="both environments have another package's .pth file, as most do: the first one makes "
        "site import a codec",
    )
    options = parser.parse_args()
    pairs = QUICK_PAIRS if options.quick else max(2, options.pairs)
    with tempfile.TemporaryDirectory(prefix="headway-startup-") as folder:
        if options.bytecode:
            measure_bytecode(Path(folder), pairs)
            return 0
        pythons = [
            make_environment(Path(folder, name), name == "headway", options.other_pth)
            for name in ("plain", "headway")
        ]
        commands = [[str(python), "-c", "pass"] for python in pythons]
        if options.run:
            commands[1][1:1] = HEADWAY_RUN
        settings = [environment(None), environment(options.value)]
        costs = [Costs([], []), Costs([], [])]
        for _ in range(3):  # the first ones compile and fill caches
            for command, variables in zip(commands, settings, strict=True):
                start(command, variables, Costs([], []))
        for _ in range(pairs):
            for command, variables, cost in zip(commands, settings, costs, strict=True):
                start(command, variables, cost)
        shown = "HEADWAY unset" if options.value is None else f"HEADWAY={options.value}"
        shown = "headway run -c pass" if options.run else shown
        print(f"python -c pass on CPython {sys.version.split()[0]}, {pairs} pairs, {shown}")
        print(f"{'':<14}{'without':>13}{'with':>13}{'median difference':>13} (quartiles)")
        show("time", costs[0].wall_s, costs[1].wall_s)
        show("CPU time", costs[0].cpu_s, costs[1].cpu_s)
        # Valgrind counts the first of the interpreters of `headway run` alone.
        if shutil.which("valgrind") and not options.run:
            without, with_headway = map(instructions, commands, settings)
            more = with_headway - without
            print(f"{'instructions':<14}{without:13,}{with_headway:13,}{more:+13,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
