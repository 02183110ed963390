"""`headway serve --check` of process groups without a GIL: finds the extension modules that do not
declare that they can run without one.

The applications of each application group are imported in a separate process, which has the user,
directory and limits of a worker of the process group. It imports them in its main interpreter,
since a module declares the same about the GIL in every interpreter. `look` is the parent's side;
`main` runs in that process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import NamedTuple, TypedDict

from headway import json_shape
from headway.errors import CommandError
from headway.server import free_threading, identity
from headway.server.config.resolution import ResolvedGroup
from headway.server.settings import ProcessGroup
from headway.server.supervisor.process import End
from headway.server.worker import restrictions, search_path
from headway.server.worker.application import ImportFailed, load_application
from headway.server.worker.ending import end_without_finalization
from headway.server.worker.interpreter_slots import mounts_of
from headway.server.worker.undeclared import Watch

TIMEOUT_S = 60
# As in `process.PROGRAM`, the current directory is not searched for Headway.
PROGRAM = (
    "import sys; sys.path[:1] == [''] and sys.path.pop(0); "
    "from headway.server.supervisor.import_check import main; main()"
)


class Found(NamedTuple):
    """`problem` is why the search could not be completed, or ""."""

    undeclared: list[str]
    problem: str


class Answer(TypedDict):
    """The output of the process that imports the applications."""

    undeclared: list[str]
    problem: str


def look(group: ResolvedGroup) -> Found:
    """The undeclared modules that a group without a GIL imports at the start. For a group with a
    GIL, the result is empty."""
    settings = group.settings
    home, wanted = settings.python_home, settings.free_threading
    if free_threading.will_have_gil(home, wanted):
        return Found([], "")
    flags = [*free_threading.other_flags(), *free_threading.mode_flags(home, wanted)]
    names: dict[str, None] = {}
    for each in settings.application_groups:
        found = _look_in(settings, [*flags, "-c", PROGRAM, each.name])
        names |= dict.fromkeys(found.undeclared)
        if found.problem:
            return Found(list(names), found.problem)
    return Found(list(names), "")


def _look_in(settings: ProcessGroup, arguments: list[str]) -> Found:
    python = free_threading.interpreter(settings.python_home)
    try:
        done = subprocess.run(
            [python, *arguments],
            input=settings.to_json(),
            env=identity.environment(settings, dict(os.environ)),
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return Found([], f"importing the applications took longer than {TIMEOUT_S} s")
    except OSError as error:
        return Found([], f"{python} does not run ({error})")
    if done.returncode != 0:
        status = done.returncode
        end = End(status, None, False) if status > 0 else End(None, -status, False)
        return Found([], f"the process that imported the applications {end} (see above)")
    try:
        answer = json.loads(done.stdout)
        unexpected = json_shape.find_problem(answer, Answer)
    except (ValueError, RecursionError):
        unexpected = "no JSON"
    if unexpected:
        # An application can write to any descriptor of its process.
        what = "what the process that imported the applications wrote is no answer"
        return Found([], f"{what}: {unexpected}")
    return Found(answer["undeclared"], answer["problem"])


def main() -> None:
    """Imports the applications that the process group on stdin serves in the application group that
    is named by the argument, and writes the findings to stdout as JSON. Ends the process, even if
    the applications have started threads."""
    group = ProcessGroup.from_json(sys.stdin.read())
    of_group = next(each for each in group.application_groups if each.name == sys.argv[1])
    sys.argv[:] = ["headway"]
    # stdout receives only the answer. stdin is /dev/null so that no application waits for input.
    answers = os.dup(1)
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    names: list[str] = []
    problem = ""
    Watch(names.append)
    try:
        identity.take_on(group)
        search_path.extend(group, of_group)
        restrictions.impose(
            of_group.restrict_stdin, of_group.restrict_stdout, of_group.restrict_signal
        )
        for each in mounts_of(group, of_group.name):
            load_application(each.application)
    except CommandError as error:
        problem = str(error)
        if isinstance(error, ImportFailed):
            print(f"headway serve: {error.details}", file=sys.stderr)
    answer: Answer = {"undeclared": names, "problem": problem}
    os.write(answers, json.dumps(answer).encode())
    sys.stderr.flush()
    end_without_finalization(0)
