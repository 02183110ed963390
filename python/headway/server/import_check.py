"""`headway serve --check` of process groups without a GIL: which extension modules of theirs do not
declare that they can do without one.

Each group's applications are imported in a process of its own, which is to the system what a worker
of the group is. The parent's side is `look`; `main` is that process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

from headway.errors import CommandError
from headway.server import free_threading, identity
from headway.server.application import ImportFailed
from headway.server.process import End
from headway.server.resolution import ResolvedGroup
from headway.server.settings import ProcessGroup
from headway.server.start import load
from headway.server.undeclared import Watch

TIMEOUT_S = 60
# As in `process.PROGRAM`, the current directory is not searched for Headway.
PROGRAM = (
    "import sys; sys.path[:1] == [''] and sys.path.pop(0); "
    "from headway.server.import_check import main; main()"
)


class Found(NamedTuple):
    """`problem` is why nothing more could be found; or ""."""

    undeclared: list[str]
    problem: str


def look(group: ResolvedGroup) -> Found:
    """What a group that will have no GIL imports at the start; nothing of any other."""
    settings = group.settings
    home, wanted = settings.python_home, settings.free_threading
    if free_threading.will_have_gil(home, wanted):
        return Found([], "")
    flags = [*free_threading.other_flags(), *free_threading.mode_flags(home, wanted)]
    try:
        done = subprocess.run(
            [free_threading.interpreter(home), *flags, "-c", PROGRAM],
            input=settings.to_json(),
            env=identity.environment(settings, dict(os.environ)),
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return Found([], f"importing the applications took longer than {TIMEOUT_S} s")
    except OSError as error:
        return Found([], f"{free_threading.interpreter(home)} does not run ({error})")
    if done.returncode != 0:
        status = done.returncode
        end = End(status, None, False) if status > 0 else End(None, -status, False)
        return Found([], f"the process that imported the applications {end} (see above)")
    answer: dict[str, Any] = json.loads(done.stdout)
    return Found(answer["undeclared"], answer["problem"])


def main() -> None:
    """Imports what the group on stdin serves and says on stdout what it found. Ends the process,
    whatever threads the applications have started."""
    group = ProcessGroup.from_json(sys.stdin.read())
    # The answer is all that stdout gets, and applications do not wait on a terminal.
    answers = os.dup(1)
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    names: list[str] = []
    problem = ""
    Watch(names.append)
    try:
        identity.take_on(group)
        load(group)
    except CommandError as error:
        problem = str(error)
        if isinstance(error, ImportFailed):
            sys.stderr.write(error.details)
    os.write(answers, json.dumps({"undeclared": names, "problem": problem}).encode())
    sys.stderr.flush()
    os._exit(0)
