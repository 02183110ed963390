"""The commands of README.md and of the pages of docs/ do what the documents show.

A fenced block holds commands if its language is console, bash or sh, or if it has a line that
starts with `$ `. Lines between the commands of a block are their output: the same paragraphs with
the same words, in which numbers, units and drawings differ, and `...` stands for any lines. After
the language a block may have

    no-run="REASON"   why its commands are not run

A page's commands run in order, in a folder of its own with the files of tests/documents, the
example shop, examples/ and .venv. A server goes on in the background until the page ends or starts
another one by the same verb; the ports of the documents are replaced by free ones.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import pytest
from launch import environment
from ports import free_ports

from headway.report import terminal
from headway.report.model import GilReport

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# `make docs` writes this page from the commands themselves.
GENERATED = ROOT / "docs" / "reference" / "cli.md"

LANGUAGES = ("console", "bash", "sh")
PORTS = ("8000", "8888")
# Other programs on the machine may change a report.
ATTEMPTS = 3
# Commands with these words get this option, unless they have it.
DEFAULTS = (
    ("headway serve", "--bind", "127.0.0.1:8000"),
    ("headway telemetry", "--http", "127.0.0.1:8888"),
    ("headway telemetry", "--listen", "unix:/run/headway/headway-telemetry.sock"),
    ("headway telemetry", "--store", "telemetry.sqlite"),
    ("--dashboard", "--dashboard-http", "127.0.0.1:8888"),
    ("--dashboard", "--dashboard-store", "telemetry.sqlite"),
)
NO_SERVER = r"--check\b|--export\b|--help\b|--version\b"
COMMAND_LIMIT_S = 300
LISTENING_LIMIT_S = 60

OMITTED = {"..."}
NUMBERS = {"one", "ns", "µs", "ms", "s", "minutes", "B", "kB", "KB", "MB", "MiB", "GB", "x"}


class DocumentError(Exception):
    """A block of commands that is written in a way that is not allowed."""


class Command(NamedTuple):
    line: int
    text: str
    output: list[str]


class Block(NamedTuple):
    """A fenced block of commands; `reason` is why they are not run, "" if they are."""

    line: int
    commands: list[Command]
    reason: str


def blocks_in(text: str, name: str) -> list[Block]:
    lines = text.splitlines()
    blocks = []
    begin = 0
    while begin < len(lines):
        fence = re.match(r"( *)(```+|~~~+)(.*)", lines[begin])
        if fence is None:
            begin += 1
            continue
        end = begin + 1
        while end < len(lines) and not re.fullmatch(rf" *{fence[2]}\s*", lines[end]):
            end += 1
        body = [line.removeprefix(fence[1]) for line in lines[begin + 1 : end]]
        language, _, attributes = fence[3].strip().partition(" ")
        if language in LANGUAGES or any(line.startswith("$ ") for line in body):
            place = f"{name}:{begin + 1}"
            reason = reason_in(attributes, place)
            blocks.append(Block(begin + 1, commands_in(body, begin + 2, place), reason))
        begin = end + 1
    return blocks


def reason_in(attributes: str, place: str) -> str:
    reason = re.fullmatch(r'no-run="([^"]*\w[^"]*)"', attributes)
    if attributes and reason is None:
        raise DocumentError(f'{place}: found {attributes!r}, where no-run="REASON" is allowed')
    return reason[1] if reason else ""


def commands_in(body: Sequence[str], first: int, place: str) -> list[Command]:
    """The commands with the lines that follow each; a block without `$ ` is one script."""
    if not any(line.startswith("$ ") for line in body):
        return [Command(first, "\n".join(body), [])]
    commands: list[Command] = []
    continued = False
    for number, line in enumerate(body, first):
        if continued:
            last = commands[-1]
            commands[-1] = last._replace(text=f"{last.text}\n{line}")
        elif line.startswith("$ "):
            commands.append(Command(number, line[2:], []))
        elif commands:
            commands[-1].output.append(line)
            continue
        else:
            raise DocumentError(f"{place}: found output before the first command, {line!r}")
        continued = line.endswith("\\")
    return commands


def words_in(line: str) -> set[str]:
    """The words of a line, in the singular, without numbers, their units, and what is drawn."""
    words = (word.strip(".,;:()[]\"'") for word in re.split(r"[\s─-▟①-⑳↑⇡⇣═╭┬]+", line))
    named = (word for word in words if re.match(r"[^\W\d_]|[-/.(]*[a-z]", word))
    return {word.rstrip("s") for word in named if word not in NUMBERS}


def paragraphs_in(lines: Sequence[str]) -> list[set[str]]:
    """The words of each run of lines between empty ones. `...` is a paragraph of its own."""
    paragraphs: list[set[str]] = [set()]
    for line in lines:
        if line.strip() == "...":
            paragraphs += [OMITTED, set()]
        elif not line.strip():
            paragraphs.append(set())
        else:
            paragraphs[-1] |= words_in(line)
    return [each for each in paragraphs if each]


def agrees(shown: Sequence[set[str]], printed: Sequence[set[str]], after: bool = False) -> bool:
    """Whether the printed paragraphs are the shown ones. `after` an omission, and before one, the
    words that are shown may be a part of their paragraph."""
    if not shown:
        return not printed
    words, rest = shown[0], shown[1:]
    if words == OMITTED:
        return not rest or any(agrees(rest, printed[at:], True) for at in range(len(printed)))
    before = bool(rest) and rest[0] == OMITTED
    if not printed or not (words <= printed[0] if after or before else words == printed[0]):
        return False
    return agrees(rest, printed if before else printed[1:])


def difference(shown: Sequence[str], printed: Sequence[str]) -> str:
    """How the output differs in shape from the one that the document shows; "" if it does not."""
    expected, found = paragraphs_in(shown), paragraphs_in(printed)
    if agrees(expected, found):
        return ""
    known, all_words = set().union(*expected), set().union(*found)
    missing = " ".join(sorted(known - all_words - OMITTED)) or "nothing"
    further = " ".join(sorted(all_words - known)) or "nothing"
    return f"the output lacks: {missing}; it has besides: {further}"


def verb_of_server(text: str) -> str:
    """The verb of a command that goes on until a signal ends it; "" for other commands."""
    verb = re.search(r"\bheadway (serve|telemetry)\b", re.sub(r"\s+#\s.*", "", text))
    return verb[1] if verb and not re.search(NO_SERVER, text) else ""


class Page:
    """The commands of one page, in a folder and with ports of their own."""

    def __init__(self, folder: Path, cleanup: ExitStack) -> None:
        self.folder = folder
        self._cleanup = cleanup
        self._servers: dict[str, ExitStack] = {}
        self._ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
        (folder / "home").mkdir()
        shutil.copytree(ROOT / "examples", folder / "examples")
        shutil.copytree(ROOT / "examples" / "shop", folder, dirs_exist_ok=True)
        shutil.copytree(ROOT / "tests" / "documents", folder, dirs_exist_ok=True)
        (folder / ".venv").symlink_to(sys.prefix)
        self._environment = environment(
            COLUMNS="100",
            HOME=str(folder / "home"),
            XDG_RUNTIME_DIR=str(folder / "home"),
            XDG_STATE_HOME=str(folder / "home"),
        )
        self._environment["PATH"] = f"{sys.prefix}/bin:{self._environment['PATH']}"

    def run(self, command: Command) -> str:
        """The fault of the command's end or output; "" if there is none."""
        fault = ""
        for _ in range(ATTEMPTS if command.output else 1):
            fault = self._run_once(command)
            if not fault:
                break
        return fault

    def _run_once(self, command: Command) -> str:
        verb = verb_of_server(command.text)
        text = self._in_its_folder(command.text)
        if verb:
            if verb in self._servers:
                self._servers[verb].close()
            self._servers[verb] = self._cleanup.enter_context(ExitStack())
            self._servers[verb].enter_context(self._serving(text))
            return ""
        ended = subprocess.run(
            ["bash", "-o", "pipefail", "-c", text],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_LIMIT_S,
        )
        if ended.returncode != 0:
            return f"exit status {ended.returncode}\n{ended.stdout}"
        shape = difference(command.output, ended.stdout.splitlines()) if command.output else ""
        return f"{shape}\n{ended.stdout}" if shape else ""

    def _in_its_folder(self, text: str) -> str:
        """The command with the files, sockets and ports of this page in place of the machine's."""
        text = re.sub(r"\s+#\s.*", "", text)
        text = re.sub(r"\bheadway top(?! +(http|unix))", "headway top http://127.0.0.1:8888", text)
        for named, option, value in DEFAULTS:
            if named in text and f"{option} " not in text and "--check" not in text:
                text += f" {option} {value}"
        text = text.replace("/run/headway/", f"{self.folder}/").replace("0.0.0.0", "127.0.0.1")
        return re.sub(r"\b(8000|8888)\b", lambda port: self._ports[port[0]], text)

    @contextmanager
    def _serving(self, text: str) -> Iterator[None]:
        with open(self.folder / "server.log", "w+") as log:
            server = subprocess.Popen(
                ["bash", "-c", f"exec {text}"],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            try:
                wait_until_listening(server, log)
                yield
            finally:
                server.terminate()
                try:
                    status = server.wait(COMMAND_LIMIT_S)
                except subprocess.TimeoutExpired:
                    server.kill()
                    server.wait()
                    raise
            assert status == 0, (text, status, Path(log.name).read_text())


def wait_until_listening(server: subprocess.Popen[bytes], log: IO[str]) -> None:
    deadline = time.monotonic() + LISTENING_LIMIT_S
    while not re.search(r"(listening on|showing at) http", Path(log.name).read_text()):
        if server.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"no server: {server.args!r}\n{Path(log.name).read_text()}")
        time.sleep(0.05)


def read(page: Path) -> list[Block]:
    return blocks_in(page.read_text(), str(page.relative_to(ROOT)))


def has_commands(page: Path) -> bool:
    return bool(re.search(r"^ *(```+|~~~+) *(console|bash|sh)\b|^ *\$ ", page.read_text(), re.M))


PAGES_WITH_COMMANDS = [each for each in PAGES if each != GENERATED and has_commands(each)]


@pytest.mark.slow("runs every command of the documents")
@pytest.mark.serial
@pytest.mark.timeout(1200)
@pytest.mark.skipif(sys.version_info[:2] != (3, 13), reason="the pages show the output of 3.13")
@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_do_what_the_page_shows(page: Path) -> None:
    wrong = []
    # A path in /tmp is short enough for the names of sockets.
    with tempfile.TemporaryDirectory(prefix="headway-page-") as folder, ExitStack() as cleanup:
        session = Page(Path(folder), cleanup)
        for block in read(page):
            for command in block.commands if not block.reason else ():
                if fault := session.run(command):
                    wrong.append(f"{page.relative_to(ROOT)}:{command.line}: {fault}")
    assert wrong == [], "\n".join(wrong)


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_run_or_gives_its_reason(page: Path) -> None:
    assert read(page) != []


@pytest.mark.parametrize(
    "attributes", ["no-run", 'no-run=""', 'no-run=" "', 'norun="it\'s long"', 'no-run="a" b']
)
def test_a_block_without_a_reason_is_refused(attributes: str) -> None:
    with pytest.raises(DocumentError, match=r"^page\.md:2: found .*, where no-run="):
        blocks_in(f"Text.\n```console {attributes}\n$ make build\n```\n", "page.md")


def test_output_before_the_first_command_is_refused() -> None:
    with pytest.raises(DocumentError, match=r"^page\.md:1: found output before the first command"):
        blocks_in("```\n3.13\n$ python -V\n```\n", "page.md")


def test_a_block_has_its_commands_with_their_output() -> None:
    page = (
        "```\n$ one \\\n    two\n1 ms\n\n2 ms\n$ three\n```\n```sh\nfour\nfive\n```\n```\n6\n```\n"
    )
    first, second = blocks_in(page, "page.md")
    assert first == Block(
        1, [Command(2, "one \\\n    two", ["1 ms", "", "2 ms"]), Command(7, "three", [])], ""
    )
    assert second == Block(9, [Command(10, "four\nfive", [])], "")


REPORT = ["held  2.98 s  ███▏", "idle  27 ms", "", "echo  5 ms", "compute  1 s", "", "The convoy."]


@pytest.mark.parametrize(
    ("shown", "agrees"),
    [
        (REPORT, True),
        (["idle 3 s", "held 1 µs ▋", "", "compute 7", "echo 1", "", "The convoy."], True),
        (["held 2.98 s", "...", "The convoy."], True),
        (["...", "echo 5 ms", "..."], True),
        (REPORT[:-1], False),
        ([*REPORT, "More."], False),
        (["held 2 s", "waited 27 ms", *REPORT[2:]], False),
        (["The convoy.", "...", "held 2.98 s"], False),
        (["held 2.98 s", "...", "The queue."], False),
        (["held 2.98 s", "..."], True),
        (["held 2.98 s"], False),
    ],
)
def test_shapes(shown: list[str], agrees: bool) -> None:
    assert (difference(shown, REPORT) == "") is agrees


@pytest.mark.parametrize(
    ("command", "verb"),
    [
        ("headway serve shop:app  # until Ctrl-C", "serve"),
        (".venv/bin/headway telemetry", "telemetry"),
        ("headway serve shop:app --check", ""),
        ("headway telemetry --export monday.sqlite", ""),
        ("headway top --once", ""),
    ],
)
def test_servers_are_recognised(command: str, verb: str) -> None:
    assert verb_of_server(command) == verb


def test_the_readme_has_the_figures_of_the_recipes() -> None:
    """A published figure has one home, which `bench/recipes.py --write` fills in."""
    row = re.compile(r"^\| \[([^]]+)\]\(([^)]+\.md)\) \|(.*)", re.MULTILINE)
    folder = ROOT / "docs" / "how-to" / "recipes"
    home = {
        (folder / path).resolve(): [cell.strip() for cell in cells.split("|")]
        for _, path, cells in row.findall((folder / "index.md").read_text())
    }
    shown = row.findall((ROOT / "README.md").read_text())
    assert len(shown) == 5
    for _, path, cells in shown:
        _, before, after, *_ = home[(ROOT / path).resolve()]
        assert [cell.strip() for cell in cells.split("|")][:2] == [before, after], path


def lines_of_reports() -> set[str]:
    """The lines of the convoy's runs in docs/reports, as wide as the pages show them."""
    reports = (ROOT / "docs" / "reports").glob("convoy*.json")
    return {
        line
        for report in map(read_report, reports)
        for width in (90, 100)
        for line in terminal.draw(report, terminal.Style(width)).splitlines()
    }


def read_report(file: Path) -> GilReport:
    return GilReport.decode(json.loads(file.read_text()))


def test_every_page_shows_the_same_run_of_the_convoy() -> None:
    known, shown, rates = lines_of_reports(), [], set()
    for page in PAGES_WITH_COMMANDS:
        for block in read(page):
            for command in block.commands:
                convoy = re.search(
                    r"headway run (--policy priority )?examples/convoy\.py", command.text
                )
                if convoy and command.output:
                    rates.add((convoy[1], command.output[0]))
                    shown += [(page.name, line) for line in command.output[1:] if line != "..."]
    assert len({page for page, _ in shown}) == 3
    assert [each for each in shown if each[1] not in known] == []
    assert len(rates) == 2, rates


# A published figure and its home. Other pages that show it link there.
FIGURES = {
    "40 to 77 ns": "docs/benchmarks.md",
    "0.85 to 0.97": "docs/benchmarks.md",
    "0.08 of the work": "docs/explanation/convoy.md",
    "590,000 instructions": "docs/how-to/environment.md",
    "916,637": "docs/safety.md",
    "986 ms": "docs/policies.md",
    "361 ms": "docs/how-to/gunicorn.md",
    "1,171": "docs/explanation/convoy.md",
}


@pytest.mark.parametrize(("figure", "home"), FIGURES.items())
def test_a_figure_has_one_home_to_which_other_pages_link(figure: str, home: str) -> None:
    assert figure in (ROOT / home).read_text()
    for page in PAGES:
        text = page.read_text()
        if figure in text and page != ROOT / home:
            links = re.findall(r"\]\(([^)#\s]+)", text)
            assert (ROOT / home) in {(page.parent / link).resolve() for link in links}, page
