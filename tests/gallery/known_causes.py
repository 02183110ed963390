"""Situations with a known cause, each a program in `programs/` or `real/`, and what has to be said
of them.

`scripts/gallery.py` runs all of them in all views, `test_gallery.py` some of them once.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
CONVOY, LONG, COLLECTION, FULL = (
    "The convoy effect: ",
    "Long holds: ",
    "Garbage collection: ",
    "The GIL limits what gets done: ",
)
NO_WAITING = ("No waiting: ", "Hardly any waiting: ", "A little waiting: ")
POLICY = "The policy priority would prevent "
# The recorder's verdicts that say the same.
VERDICTS = {
    CONVOY: {"convoy"},
    LONG: {"long-hold"},
    COLLECTION: {"garbage-collection"},
    FULL: {"gil-bound"},
}
# Full cores are no fault of the GIL, and no waiting to a report.
NOTHING_WRONG = {"healthy", "idle", "cpu-bound"}


class Situation(NamedTuple):
    """`begins` are the possible beginnings of the sentence, `names` what it has to have; with
    `helps`, it says what the policy `priority` would prevent, and else it does not. `is_for_ci`:
    `test_gallery.py` runs it. `program` is a file in `folder`."""

    program: str
    begins: tuple[str, ...]
    names: tuple[str, ...] = ()
    helps: bool = False
    is_for_ci: bool = False
    folder: str = "programs"

    @property
    def path(self) -> Path:
        return HERE / self.folder / f"{self.program}.py"

    @property
    def verdicts(self) -> set[str]:
        return set().union(*(VERDICTS.get(each, NOTHING_WRONG) for each in self.begins))

    def problem(self, sentence: str) -> str | None:
        """The fault of a sentence; None if it is right."""
        if not any(each in sentence for each in self.begins):
            return f"it does not begin with {' or '.join(map(repr, self.begins))}"
        missing = [each for each in self.names if each not in sentence]
        if missing:
            return f"it does not have {', '.join(map(repr, missing))}"
        if (POLICY in sentence) != self.helps:
            return f"it {'does not advise' if self.helps else 'advises'} the policy"
        return None


SITUATIONS = [
    Situation("convoy", (CONVOY,), ("MainThread waited", "compute held"), True, is_for_ci=True),
    Situation("echo", (CONVOY,), ("compute held",), True),
    Situation("loop_beside_a_thread", (CONVOY,), ("MainThread waited", "asyncio_0"), True, True),
    Situation("consumer_that_computes", (CONVOY,), ("consumer held",), True),
    Situation("pool_of_light_and_heavy", (CONVOY,), ("MainThread waited",), True, is_for_ci=True),
    # About a third of the waiting: either may come first.
    Situation("player_beside_two", (FULL, CONVOY), ("player waited",), True, is_for_ci=True),
    Situation("burst_at_the_start", (CONVOY,), ("start_up held",), True),
    Situation("long_calls_now_and_then", (CONVOY,), ("Besides, compute kept the GIL",), True, True),
    Situation("forked_child", (CONVOY,), ("fork of", "compute held"), True, is_for_ci=True),
    Situation("idle_parent", (FULL,), ("fork of", "4 threads held")),
    Situation("turns", (FULL,), ("3 threads held",)),
    Situation("equal_pages", (FULL,), ("8 threads held",), is_for_ci=True),
    Situation("short_equals", (FULL,), ("40 threads held",)),
    Situation("long_calls", (LONG,), ("worker kept the GIL",)),
    Situation("two_c_threads", (LONG,), ("multiply-",)),
    Situation("blocks_with_the_gil", (LONG,), ("driver kept the GIL",), is_for_ci=True),
    Situation("collections_of_others", (COLLECTION,), ("work collected",), is_for_ci=True),
    Situation("explicit_collections", (COLLECTION,), ("batch collected",)),
    Situation("alone", NO_WAITING),
    Situation("loop_that_blocks_itself", ("Late event loop",), ("it computed",), is_for_ci=True),
    Situation("sleepers", NO_WAITING),
    Situation("hashing", NO_WAITING),
    Situation("lock_of_the_program", NO_WAITING),
]

# Programs of packages in tests/gallery/requirements.txt.
REAL = [
    each._replace(folder="real")
    for each in (
        Situation("uvicorn_light_and_heavy", (CONVOY,), ("MainThread waited",), True),
        Situation("uvicorn_regular_expression", (LONG,), ("AnyIO worker thread kept",)),
        Situation("waitress_pages", (CONVOY,), ("threads held",), True),
        # The clients are Python, too, and do not always fill it.
        Situation("gunicorn_pages", (FULL, "Waiting: "), ("fork of",)),
        Situation("pandas_beside_a_loop", (CONVOY,), ("MainThread waited",), True),
        Situation("lxml_documents", (CONVOY,), ("work held",), True),
        Situation("sqlalchemy_bulk", (CONVOY,), ("MainThread waited",), True),
        Situation("prometheus_scrape", (CONVOY,), ("work held",), True),
        Situation("networkx_ranks", (CONVOY,), ("work held",), True),
        Situation("sympy_integrates", (CONVOY,), ("MainThread waited",), True),
        Situation("yaml_loads", (CONVOY,), ("work held",), True),
        Situation("tornado_executor", (CONVOY,), ("MainThread waited",), True),
        Situation("apscheduler_jobs", (CONVOY,), ("ThreadPoolExecutor",), True),
        Situation("jinja_pages", (FULL,), ("4 threads held",)),
        Situation("soup_parses", (FULL,), ("3 threads held",)),
        Situation("msgspec_decodes", (LONG,), ("work kept the GIL", "work collected garbage")),
        Situation("httpx_downloads", NO_WAITING),
        Situation("numpy_products", NO_WAITING),
        Situation("cryptography_signs", NO_WAITING),
    )
]
