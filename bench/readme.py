"""Measures the figures of README.md, and writes them into its marked parts.

  echo     an echo server beside 4 computing threads
  mixed    light pages beside 2 visitors of a heavy page
  django   hello in Django, one thread
  report   the report of `headway run examples/convoy.py`

Each part replaces its row of the results, or the report; without a name all parts are measured, in
6 minutes. Rows have their dates. The CPython and the machine stand above them, so a part can be
measured alone only where all were. A figure whose server is not installed (bench/install_peers.py)
is left as it is, with a message. --quick shows that all parts run: its figures are worth nothing,
so it writes to a copy only (--readme).
"""

from __future__ import annotations

import itertools
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import sitting
from figures import number
from marks import Marks
from peers import ROOT

from headway.errors import CommandError
from headway.output.metadata import CPU_INFO, cpu_model
from headway.programs import signals
from headway.programs.processes import ProgramError
from headway_lab import results_file
from headway_lab.results_file import KeptExperiment

README = ROOT / "README.md"
REPORT = "report"
REPORT_COLUMNS = 100

MARKS = Marks("bench-readme")


class Entry(NamedTuple):
    """The figures of one server in a cell of the table, from the row of the results that has these
    parameters."""

    label: str
    parameters: Mapping[str, Any]


class Part(NamedTuple):
    """One row of the table: the benchmark that measures it, and what stands in its two cells."""

    script: str
    arguments: Sequence[str]
    figures: Sequence[str]
    without: Sequence[Entry]
    headway: Entry


PARTS = {
    "echo": Part(
        "echo",
        ("--cpu-threads", "4", "--policy", "priority"),
        ("requests_per_s", "p99_s"),
        (Entry("CPython", {"mode": "threads", "policy": None, "switch_interval": 0.005}),),
        Entry("", {"mode": "threads", "policy": "priority"}),
    ),
    "mixed": Part(
        "server_mixed",
        (
            *("--light", "200", "--heavy", "2", "--policy", "priority"),
            *("--rounds", "3", "--seconds", "10", "--peer", "granian", "gunicorn"),
        ),
        ("p99_s",),
        (
            Entry("Granian", {"server": "granian", "switch_interval": 0.005}),
            Entry("gunicorn", {"server": "gunicorn", "switch_interval": 0.005}),
        ),
        Entry("", {"server": "headway"}),
    ),
    "django": Part(
        "server_frameworks",
        ("--framework", "django", "--shape", "1x1", "--peer", "bjoern", "granian"),
        ("requests_per_s",),
        (Entry("bjoern", {"server": "bjoern"}), Entry("Granian", {"server": "granian"})),
        Entry("", {"server": "headway"}),
    ),
}


def text_of(figure: str, value: float) -> str:
    """With the unit that the table's first column does not give."""
    if figure.endswith("_per_s"):
        return number(value if value < 1000 else round(value, -2))
    return f"{number(value * 1e3)} ms"


def measured(part: Part, entry: Entry, experiments: Sequence[KeptExperiment]) -> str:
    """The medians of the entry's figures; "" if the results lack one."""
    texts = []
    for figure in part.figures:
        for each in experiments:
            if each.results.name != f"{part.script} {figure}":
                continue
            rows = [
                row
                for row in each.results.rows
                if row.values and entry.parameters.items() <= row.parameters.items()
            ]
            texts += [text_of(figure, row.median()) for row in rows]
    return ", ".join(texts) if len(texts) == len(part.figures) else ""


def cell(part: Part, entries: Sequence[Entry], before: str, found: Sequence[str]) -> str:
    """A cell of the table. An entry that was not measured stays as it was."""
    former = re.split(r", (?=[A-Za-z])", before)
    texts = []
    for entry, text in zip(entries, found, strict=True):
        if text:
            texts.append(f"{entry.label} {text}".strip())
            continue
        kept = [each for each in former if each.startswith(entry.label)]
        say(f"without {entry.label or 'Headway'}: its figure stays as it was")
        texts += kept
    return ", ".join(texts)


def row(part: Part, line: str, experiments: Sequence[KeptExperiment], date: str) -> str:
    """The part's row of the table, with what was measured."""
    _, subject, without, ours, _ = (each.strip() for each in line.split("|"))
    others = [measured(part, entry, experiments) for entry in part.without]
    with_headway = measured(part, part.headway, experiments)
    if with_headway and any(others):
        subject = re.sub(r"\(`[^)]*\)", f"(`bench/{part.script}.py`, {date})", subject)
    without = cell(part, part.without, without, others)
    ours = cell(part, (part.headway,), ours, [with_headway])
    return f"| {subject} | {without} | {ours} |"


def measure(name: str, part: Part, quick: bool) -> Sequence[KeptExperiment]:
    """Raises ProgramError if the benchmark fails."""
    arguments = list(part.arguments)
    if quick:
        arguments = [*without_option(part.arguments, "--rounds", "--seconds"), "--quick"]
    with tempfile.TemporaryDirectory(prefix="headway-readme-") as folder:
        file = Path(folder) / "results.json"
        status = import_module(part.script).main([*arguments, "--json", str(file)])
        if status != 0:
            raise ProgramError(f"{name}: bench/{part.script}.py ended with {status}")
        return results_file.read(str(file)).experiments


def without_option(arguments: Sequence[str], *options: str) -> list[str]:
    """The arguments without these options and their values."""
    kept: list[str] = []
    for before, argument in itertools.pairwise(("", *arguments)):
        if argument not in options and before not in options:
            kept.append(argument)
    return kept


def report(before: str) -> str:
    """The block of the report. The histogram is left out, and so is a remark on what else ran."""
    command = "$ .venv/bin/headway run examples/convoy.py"
    ended = subprocess.run(
        [sys.executable, "-m", "headway", "run", "examples/convoy.py"],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": str(REPORT_COLUMNS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if ended.returncode != 0:
        raise ProgramError(f"{REPORT}: `headway run` ended with {ended.returncode}")
    paragraphs = ended.stdout.strip().split("\n\n")
    tables = [each for each in paragraphs[:-1] if not each.startswith("waits for GIL")][:3]
    if not paragraphs[-1].startswith("The convoy effect"):
        say("the report names no convoy: it stays as it was")
        return before
    return "\n".join(["```console", command, "\n\n".join(tables), "...", paragraphs[-1], "```"])


def machine() -> str:
    """The CPython and the machine, as they stand above the table."""
    cpus = len(os.sched_getaffinity(0))
    kind = "virtual cores" if "hypervisor" in CPU_INFO.read_text() else "cores"
    return f"CPython {platform.python_version()} on {cpus} {kind} ({cpu_model()})"


def check(text: str, names: Sequence[str]) -> None:
    """Raises ProgramError if the marks are missing, or if rows of two machines would stand side
    by side."""
    begin, end = MARKS.find(text, "results")
    MARKS.find(text, REPORT)
    rows = set(names) & set(PARTS)
    if rows and rows != set(PARTS) and machine() not in text[begin:end]:
        raise ProgramError(
            f"found {', '.join(sorted(rows))} on {machine()}, which is not where the others were "
            f"measured; all of {', '.join(PARTS)} are allowed here",
            2,
        )


def run(names: Sequence[str], readme: Path, quick: bool) -> None:
    text = readme.read_text()
    check(text, names)
    for name in names:
        say(name)
        begin, end = MARKS.find(text, REPORT if name == REPORT else "results")
        before = text[begin:end].strip()
        if name == REPORT:
            text = MARKS.replace(text, REPORT, report(before))
        else:
            part = PARTS[name]
            experiments = measure(name, part, quick)
            lines = before.splitlines()
            date = time.strftime("%Y-%m-%d")
            lines[0] = re.sub(r"^CPython [^;]*", machine(), lines[0])
            lines = [
                row(part, line, experiments, date) if f"`bench/{part.script}.py`" in line else line
                for line in lines
            ]
            text = MARKS.replace(text, "results", "\n".join(lines))
        # After each part, so that a failure of the next one loses nothing.
        readme.write_text(text)


def say(text: str) -> None:
    print(f"readme: {text}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser("readme", __doc__)
    names = (*PARTS, REPORT)
    parser.add_argument("names", nargs="*", metavar="PART", help=f"one of {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="short rounds, to a copy only")
    parser.add_argument(
        "--readme", type=Path, default=README, metavar="FILE", help="instead of README.md"
    )
    try:
        signals.watch()
        options = parser.parse_args(arguments)
        for name in options.names:
            if name not in names:
                raise ProgramError(f"no part is called {name!r}; there are {', '.join(names)}", 2)
        if options.quick and options.readme.resolve() == README:
            raise ProgramError("--quick: found README.md, where a copy (--readme) is allowed", 2)
        if not options.readme.is_file():
            raise ProgramError(f"--readme {options.readme}: there is no such file", 2)
        run(options.names or names, options.readme, options.quick)
    except CommandError as error:
        print(f"readme: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
