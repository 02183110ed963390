"""The verbs of the `headway` command: its own, and those that other packages add."""

from __future__ import annotations

from headway.errors import CommandError

# Each entry point of this group names a sequence of `Verb`.
ENTRY_POINTS = "headway.verbs"
# The verbs that headway-lab adds.
OF_LAB = ("bench", "bench-compare", "simulate")


class Verb:
    """A word after `headway`, the module that implements it, and its line in the help."""

    def __init__(self, name: str, module: str, summary: str) -> None:
        self.name = name
        self.module = module
        self.summary = summary


VERBS = (
    Verb(
        "run",
        "headway.commands.run",
        "run a Python program and report how its threads shared the GIL",
    ),
    Verb(
        "report",
        "headway.commands.report",
        "show the report of an earlier run, or the counters that a crash left",
    ),
    Verb(
        "attach",
        "headway.commands.attach",
        "measure, and cure, a process that already runs",
    ),
    Verb("detach", "headway.commands.detach", "end what attach --keep has left on in a process"),
    Verb("serve", "headway.commands.serve", "serve WSGI applications"),
    Verb(
        "audit",
        "headway.commands.audit",
        "list the extension modules of an application and what they support",
    ),
    Verb(
        "telemetry",
        "headway.commands.telemetry",
        "record the reports of processes, and show them in a browser",
    ),
    Verb("top", "headway.commands.top", "show the reports of processes in a terminal"),
    Verb("tune", "headway.commands.tune", "find the policy and the switch interval that suit best"),
    Verb("status", "headway.commands.status", "show which processes a server has"),
)


def added_verbs() -> tuple[Verb, ...]:
    """The verbs of other packages. Reads the metadata of every installed package, so it is for
    command lines that begin with no verb of `VERBS`. Raises CommandError if a package is broken."""
    from importlib.metadata import entry_points

    found: list[Verb] = []
    for point in entry_points(group=ENTRY_POINTS):
        try:
            found += point.load()
        except Exception as error:
            raise CommandError(
                f"the verbs of {point.value} cannot be loaded: {type(error).__name__}: {error}"
            ) from error
    return tuple(found)


def lab_is_missing(verbs: tuple[Verb, ...]) -> str:
    """Where the lab's verbs are, and how to install them; empty if `verbs` has them."""
    if {*OF_LAB} <= {verb.name for verb in verbs}:
        return ""
    from headway.extras import HOW_TO_INSTALL_LAB

    *others, last = OF_LAB
    return f"{', '.join(others)} and {last} are verbs of headway-lab: {HOW_TO_INSTALL_LAB}"
