"""Measures what an installed Headway costs a program that does not use it: `python -c pass`.

Two virtual environments differ in what `pip install headway` puts into one of them. Starts of both
alternate, so that drift of the machine hits both alike; the difference is the median over pairs,
with its quartiles. With valgrind installed, instructions are counted too, with a fixed hash seed:
they do not depend on what else the machine does. `--value` measures a start with HEADWAY set.
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

PAIRS = 100
QUICK_PAIRS = 5


class Costs(NamedTuple):
    """The time from each start to the end of the program, and its CPU time."""

    wall_s: list[float]
    cpu_s: list[float]


def make_environment(folder: Path, installed: bool, other_pth: bool) -> Path:
    """Makes a virtual environment without pip, and returns its interpreter. If `installed`, it has
    the files that the wheel put into the environment of this interpreter. With `other_pth` it has
    another .pth file, which does nothing."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    if other_pth:
        (packages / "other.pth").write_text("# Nothing.\n")
    for file in (files("headway") or ()) if installed else ():
        if ".." not in file.parts:
            target = packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file.locate()), target)
    return folder / "bin/python"


def environment(value: str | None) -> dict[str, str]:
    """The variables of a start, without those that make an interpreter start in another way."""
    skipped = ("HEADWAY", "PYTHON")
    kept = {key: text for key, text in os.environ.items() if not key.startswith(skipped)}
    kept["PYTHONHASHSEED"] = "0"
    return kept if value is None else {**kept, "HEADWAY": value}


def start(python: Path, variables: dict[str, str], costs: Costs) -> None:
    begin = time.perf_counter()
    pid = os.posix_spawn(python, [str(python), "-c", "pass"], variables)
    _, status, usage = os.wait4(pid, 0)
    costs.wall_s.append(time.perf_counter() - begin)
    costs.cpu_s.append(usage.ru_utime + usage.ru_stime)
    if status:
        raise SystemExit(f"startup: {python} -c pass ended with status {status}")


def instructions(python: Path, variables: dict[str, str]) -> int:
    """The instructions of one start, as valgrind's callgrind counts them."""
    with tempfile.TemporaryDirectory() as folder:
        output = f"--callgrind-out-file={folder}/out"
        command = ["valgrind", "--tool=callgrind", output, str(python), "-c", "pass"]
        result = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=PAIRS, help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="few pairs, to see that it runs")
    parser.add_argument("--value", metavar="VALUE", help="start the second one with HEADWAY=VALUE")
    parser.add_argument(
        "--other-pth",
        action="store_true",
        help="both environments have another package's .pth file, as most do: the first one makes "
        "site import a codec",
    )
    options = parser.parse_args()
    pairs = QUICK_PAIRS if options.quick else max(2, options.pairs)
    with tempfile.TemporaryDirectory(prefix="headway-startup-") as folder:
        pythons = [
            make_environment(Path(folder, name), name == "headway", options.other_pth)
            for name in ("plain", "headway")
        ]
        settings = [environment(None), environment(options.value)]
        costs = [Costs([], []), Costs([], [])]
        for _ in range(3):  # the first ones compile and fill caches
            for python, variables in zip(pythons, settings, strict=True):
                start(python, variables, Costs([], []))
        for _ in range(pairs):
            for python, variables, cost in zip(pythons, settings, costs, strict=True):
                start(python, variables, cost)
        shown = "unset" if options.value is None else f"HEADWAY={options.value}"
        print(f"python -c pass on CPython {sys.version.split()[0]}, {pairs} pairs, {shown}")
        print(f"{'':<14}{'without':>13}{'with':>13}{'median difference':>13} (quartiles)")
        show("time", costs[0].wall_s, costs[1].wall_s)
        show("CPU time", costs[0].cpu_s, costs[1].cpu_s)
        if shutil.which("valgrind"):
            without, with_headway = map(instructions, pythons, settings)
            more = with_headway - without
            print(f"{'instructions':<14}{without:13,}{with_headway:13,}{more:+13,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
