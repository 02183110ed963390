"""The clients of scripts/soak_server.py: threads that visit, at a bounded rate, until they are
stopped, and the outcome of every request.

A failure is written down when it happens and judged later, by the main thread, when it is known
which connections ended with a killed process.
"""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from soak_client import Client, Visit
from soak_conversation import Address, Conversation, Exhausted, Missing, Wrong
from soak_misuse import (
    aborted_download,
    aborted_upload,
    failing,
    forking,
    garbage,
    malformed,
    overlong,
    silent,
    slowloris,
    stalled_reader,
    too_short,
)
from soak_subject import PATIENCE_S, Casualties
from soak_visits import (
    awaited_upload,
    chunked_upload,
    download,
    half_closed,
    head,
    heavy,
    keep_alive,
    old_client,
    one_request,
    pipelined,
    sized_upload,
    slow_reader,
    slow_writer,
    unread_upload,
)

# Longer than any visit whose every step is answered in time.
STUCK_S = 3 * PATIENCE_S
COLUMNS = ("sent", "answered right", "allowed to fail", "failed")


# How often each is chosen, beside the others.
VISITS: dict[Visit, float] = {
    keep_alive: 10,
    one_request: 20,
    old_client: 4,
    head: 4,
    pipelined: 6,
    slow_writer: 4,
    slowloris: 1,
    silent: 4,
    half_closed: 6,
    slow_reader: 3,
    stalled_reader: 0.4,
    aborted_download: 4,
    aborted_upload: 4,
    sized_upload: 6,
    chunked_upload: 6,
    awaited_upload: 4,
    unread_upload: 3,
    download: 6,
    malformed: 6,
    failing: 6,
    garbage: 2,
    too_short: 2,
    heavy: 6,
    forking: 0.5,
    overlong: 0.1,
}


class Failure(NamedTuple):
    visit: str
    problem: Exception
    conversation: Conversation | None


class Visitor(threading.Thread):
    """One client after another."""

    def __init__(self, crowd: Crowd, client: Client, number: int) -> None:
        # A soak that fails does not wait for those who wait for an answer.
        super().__init__(name=f"client-{number}", daemon=True)
        self.crowd = crowd
        self.client = client
        # By kind of visit; written by this thread, read by the main one.
        self.counts: dict[str, Counter[str]] = {each.__name__: Counter() for each in VISITS}
        self.visit: Visit | None = None
        self.since_s = time.monotonic()

    def run(self) -> None:
        client = self.client
        while not self.crowd.is_over.is_set():
            visit = client.chance.choices([*VISITS], [*VISITS.values()])[0]
            client.counts, client.conversation = self.counts[visit.__name__], None
            self.since_s, self.visit = time.monotonic(), visit
            try:
                visit(client)
            except Exception as problem:
                self.crowd.note(Failure(visit.__name__, problem, client.conversation))
            self.visit = None
            self.crowd.is_over.wait(client.chance.expovariate(1 / self.crowd.pause_s))


class Crowd:
    def __init__(
        self,
        addresses: Sequence[Address],
        casualties: Casualties,
        seed: int,
        threads: int,
        rate: float,
    ) -> None:
        """`rate` is of visits, a second."""
        chance = random.Random(seed)
        self.casualties = casualties
        self.pause_s = threads / rate
        self.is_over = threading.Event()
        self.visitors = [
            Visitor(self, Client(addresses, chance.random()), number) for number in range(threads)
        ]
        self._lock = threading.Lock()
        self._failures: list[Failure] = []
        self._judged: dict[str, Counter[str]] = {each.__name__: Counter() for each in VISITS}

    def note(self, failure: Failure) -> None:
        with self._lock:
            self._failures.append(failure)

    def judge(self) -> list[str]:
        """The failures since the last call that are not allowed."""
        with self._lock:
            failures, self._failures = self._failures, []
        wrong = []
        for visit, problem, conversation in failures:
            allowed = conversation is not None and self.casualties.excuse(problem, conversation)
            self._judged[visit]["allowed to fail" if allowed else "failed"] += 1
            if not allowed:
                wrong.append(f"{visit}: {tell(problem)} ({tell_where(conversation)})")
        return wrong

    def stuck(self) -> list[str]:
        now_s = time.monotonic()
        return [
            f"{each.name} is in {visit.__name__} for {now_s - each.since_s:.0f} s"
            for each in self.visitors
            if (visit := each.visit) is not None and now_s > each.since_s + STUCK_S
        ]

    def counts(self) -> dict[str, Counter[str]]:
        """By kind of visit."""
        return {
            name: sum((each.counts[name] for each in self.visitors), Counter(judged))
            for name, judged in self._judged.items()
        }

    def connected(self) -> Counter[str]:
        """Connections by the kind of address."""
        return sum((each.client.connected for each in self.visitors), Counter[str]())

    def start(self) -> None:
        for visitor in self.visitors:
            visitor.start()

    def stop(self) -> None:
        """Each finishes its visit."""
        self.is_over.set()
        end_s = time.monotonic() + STUCK_S
        for visitor in self.visitors:
            if visitor.is_alive():
                visitor.join(max(end_s - time.monotonic(), 0.0))


def tell(problem: Exception) -> str:
    if isinstance(problem, Missing | Exhausted | Wrong):
        return f"{type(problem).__name__.lower()}: {problem}"
    return " ".join("".join(traceback.format_exception(problem)).split())


def tell_where(conversation: Conversation | None) -> str:
    if conversation is None:
        return "without a connection"
    age_s = time.monotonic() - conversation.began_s
    where = f"{conversation.kind}, port {conversation.port}, pid {conversation.pid}"
    return f"{where}, begun {age_s:.1f} s ago"


def draw(counts: dict[str, Counter[str]]) -> str:
    """A table, the sum in its last row."""
    lines = [" " * 20 + "".join(f"{column:>17}" for column in COLUMNS)]
    for name, row in {**counts, "all": total(counts)}.items():
        cells = "".join(f"{row[column]:>17,}" for column in COLUMNS)
        lines.append(f"  {name.replace('_', ' '):<18}{cells}")
    return "\n".join(lines)


def total(counts: dict[str, Counter[str]]) -> Counter[str]:
    return sum(counts.values(), Counter[str]())
