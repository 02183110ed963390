"""The verbs that the laboratory adds to the `headway` command."""

from __future__ import annotations

from headway.verbs import Verb

VERBS = (
    Verb("bench", "headway_lab.commands.bench", "measure what the GIL does to threads"),
    Verb(
        "bench-compare",
        "headway_lab.commands.bench_compare",
        "compare two files of results of `bench`",
    ),
    Verb(
        "simulate",
        "headway_lab.commands.simulate",
        "predict what the GIL does to threads, in virtual time",
    ),
)
