"""The load that Headway makes: which targets, how often, and the process that asks for them."""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from headway.errors import CommandError, reason_of
from headway.output.statistics import percentile
from headway.programs.processes import ChildProgram, started
from headway.tune.goals import P50, P99, THROUGHPUT, Figures

PROGRAM = Path(__file__).with_name("load_program.py")
# A request line in an access log, in the common, combined or JSON format.
LOGGED = re.compile(r'"GET (/\S*) HTTP/|"target": ?"(/[^"]*)"')
LISTED = re.compile(r"(/\S*)(?:\s+([0-9]*\.?[0-9]+))?")
FAILURES = "failures"
# Of many targets, the heaviest are asked for once before the load begins.
CHECKED_TARGETS = 20
CHECK_TIMEOUT_S = 60.0


def read_targets(words: Sequence[str]) -> dict[str, float]:
    """The targets with their weights. Each word is `/PATH` with an optional weight after a space,
    or a file: an access log, or such lines. Raises CommandError (exit code 2)."""
    targets: dict[str, float] = {}
    for word in words:
        if word.startswith("/") and not os.path.isfile(word):
            lines, place = [word], ""
        else:
            lines, place = _lines(word), f"{word}:"
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            logged = LOGGED.search(line)
            listed = LISTED.fullmatch(line.strip())
            if logged or listed:
                target = logged[1] or logged[2] if logged else listed[1] if listed else ""
                weight = float(listed[2] or 1) if listed else 1.0
                targets[target] = targets.get(target, 0.0) + weight
            elif not (line.startswith("{") or '"' in line):
                where = f"{place}{number}: " if place else ""
                raise CommandError(
                    f"--load: {where}found {line.strip()[:80]!r}; allowed: a path with an optional "
                    "weight, as '/product/1 10', or a line of an access log",
                    exit_code=2,
                )
    if not any(targets.values()):
        raise CommandError("--load: there is no GET request in it", exit_code=2)
    return targets


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text(errors="replace").splitlines()
    except OSError as error:
        raise CommandError(f"--load {file!r}: {reason_of(error)}", exit_code=2) from None


def errors_of(host: str, port: int, targets: Mapping[str, float]) -> list[str]:
    """The targets that the server answers with an error, as `/a: 404 Not Found`. Raises
    CommandError (exit code 2) if it answers all of them so."""
    checked = sorted(targets, key=lambda each: -targets[each])[:CHECKED_TARGETS]
    found = []
    for target in checked:
        connection = http.client.HTTPConnection(host, port, timeout=CHECK_TIMEOUT_S)
        try:
            connection.request("GET", target)
            response = connection.getresponse()
            if response.status >= http.HTTPStatus.BAD_REQUEST:
                found.append(f"{target}: {response.status} {response.reason}")
        except (OSError, http.client.HTTPException) as error:
            found.append(f"{target}: {error or type(error).__name__}")
        finally:
            connection.close()
    if len(found) == len(checked):
        raise CommandError(f"--load: every target is an error: {', '.join(found[:3])}", exit_code=2)
    return found


class RunningLoad:
    def __init__(self, program: ChildProgram) -> None:
        self._program = program

    def figures(self, begin_ns: int, end_ns: int, target: str | None) -> Figures:
        """Raises ProgramError if the load has ended."""
        self._program.ask(f"{begin_ns} {end_ns} {target or ''}".strip())
        answer = self._program.answer()
        latencies_s = answer["latencies_s"]
        if len(latencies_s) < 2:
            return {}
        return {
            P50.key: percentile(latencies_s, 0.5),
            P99.key: percentile(latencies_s, 0.99),
            THROUGHPUT.key: answer["answered"] / ((end_ns - begin_ns) / 1e9),
            FAILURES: answer[FAILURES] / len(latencies_s),
        }

    def drain(self) -> None:
        """Ends the load and waits until its requests are answered, or for some seconds."""
        self._program.ask("drain")
        self._program.answer()


@contextmanager
def running(
    host: str, port: int, rate: float, connections: int, targets: Mapping[str, float]
) -> Iterator[RunningLoad]:
    """A load that has begun. Raises ProgramError if it cannot."""
    command = [sys.executable, str(PROGRAM), host, str(port), str(rate), str(connections)]
    with started(command, "the load", lifetime_s=0) as program:
        program.ask(json.dumps(targets))
        program.answer()
        yield RunningLoad(program)
