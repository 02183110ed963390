"""The verbs of the `headway` command."""

from __future__ import annotations


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
    Verb("bench", "headway.commands.bench", "measure what the GIL does to threads"),
    Verb(
        "bench-compare",
        "headway.commands.bench_compare",
        "compare two files of results of `bench`",
    ),
    Verb("tune", "headway.commands.tune", "find the policy and the switch interval that suit best"),
    Verb(
        "simulate",
        "headway.commands.simulate",
        "predict what the GIL does to threads, in virtual time",
    ),
    Verb("status", "headway.commands.status", "show which processes a server has"),
)
