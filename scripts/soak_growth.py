"""Watches what the processes of scripts/soak_server.py use, in a thread of its own, and judges
whether it grows.

The supervisor is judged over the whole run, the workers of the calm part over that. The first third
of each is for caches and pools to fill. Knows nothing of requests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import NamedTuple

from soak_conversation import Conversation
from soak_processes import Sample, children, connections, range_of, sample, slope_per_min

KB = 1024
# Faster growth is a leak: 64 KB/min are 1 byte for each of 1,000 requests a second.
SUPERVISOR_KB_PER_MIN = 64.0
WORKER_KB_PER_MIN = 256.0
# Below that, what a heap does by chance is more than the bound.
LEAST_JUDGED_S = 120.0
WARM_UP = 1 / 3
# The server has noticed by then that a client has gone.
FORGOTTEN_S = 25.0


class Growth(NamedTuple):
    name: str
    kb_per_min: float
    bound_kb_per_min: float
    minutes: float
    is_judged: bool

    def __str__(self) -> str:
        judged = "" if self.is_judged else "; too short a time to judge"
        return (
            f"{self.name}: {self.kb_per_min:+.1f} KB/min over {self.minutes:.1f} min "
            f"(bound {self.bound_kb_per_min:g}{judged})"
        )


def growth(name: str, samples: list[Sample], bound_kb_per_min: float) -> Growth:
    kept = samples[int(len(samples) * WARM_UP) :]
    minutes = (kept[-1].time_s - kept[0].time_s) / 60 if kept else 0.0
    slope = slope_per_min(kept, lambda each: each.rss_bytes / KB)
    return Growth(name, slope, bound_kb_per_min, minutes, minutes * 60 >= LEAST_JUDGED_S)


class Watch:
    """Samples the supervisor `pid` and its children until `stop`."""

    def __init__(self, pid: int, ports: Collection[int], period_s: float) -> None:
        self.pid = pid
        self.ports = ports
        self.period_s = period_s
        self.samples: dict[int, list[Sample]] = {}
        # Connections of workers whose client has gone, and since when.
        self._forgotten: dict[tuple[int, int], float] = {}
        self.stuck: str | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        turn = 0
        while not self._over.wait(self.period_s):
            turn += 1
            workers = children(self.pid)
            for pid in (self.pid, *workers):
                if (seen := sample(pid)) is not None:
                    self.samples.setdefault(pid, []).append(seen)
            # Costs more.
            if turn % 5 == 0:
                self._look_for_stuck(workers)

    def _look_for_stuck(self, workers: list[int]) -> None:
        now_s = time.monotonic()
        # In this order: what is seen after it was open may have been closed, and not the reverse.
        mine = Conversation.open.ports()
        found = {
            (pid, each.remote_port): each.state
            for pid in workers
            for each in connections(pid, self.ports)
            if each.remote_port not in mine
        }
        self._forgotten = {key: self._forgotten.get(key, now_s) for key in found}
        for (pid, port), since_s in self._forgotten.items():
            if now_s > since_s + FORGOTTEN_S and self.stuck is None:
                self.stuck = (
                    f"a connection is stuck: pid {pid} has one from port {port}, "
                    f"{found[pid, port]}, {now_s - since_s:.0f} s after its client closed it"
                )

    def usage(self, pids: list[int]) -> str:
        last = [self.samples[pid][-1] for pid in pids if self.samples.get(pid)]
        return (
            f"{range_of(each.rss_bytes // KB // KB for each in last)} MB, "
            f"{range_of(each.descriptors for each in last)} descriptors, "
            f"{range_of(each.threads for each in last)} threads"
        )

    def growths(self, calm_pids: list[int]) -> list[Growth]:
        rows = [growth("supervisor", self.samples.get(self.pid, []), SUPERVISOR_KB_PER_MIN)]
        for pid in calm_pids:
            rows.append(growth(f"worker {pid}", self.samples.get(pid, []), WORKER_KB_PER_MIN))
        return rows
