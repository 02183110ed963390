"""A Prefect flow submits a light task every 50 ms beside two tasks that compute.

The light task's latency is the time from its submission to the moment at which its result is there.
"""

from __future__ import annotations

import time

from latencies import SECONDS, print_latencies
from prefect import flow, task
from prefect.task_runners import ThreadPoolTaskRunner

INTERVAL_S = 0.05
HEAVY_AT_ONCE = 2


@task
def light() -> None:
    pass


@task
def heavy(end_s: float) -> int:
    count = 0
    while time.monotonic() < end_s:
        sum(number * number for number in range(300_000))
        count += 1
    return count


@flow(task_runner=ThreadPoolTaskRunner(max_workers=6))
def report() -> None:
    # The first run of a task also makes what the runs after it use.
    light.submit().result()
    end_s = time.monotonic() + SECONDS
    computing = [heavy.submit(end_s) for _ in range(HEAVY_AT_ONCE)]
    latencies_s: list[float] = []
    due_s = time.monotonic()
    while due_s < end_s:
        time.sleep(max(0.0, due_s - time.monotonic()))
        light.submit().result()
        latencies_s.append(time.monotonic() - due_s)
        due_s = max(due_s + INTERVAL_S, time.monotonic())
    print_latencies(latencies_s, sum(each.result() for each in computing), SECONDS)


if __name__ == "__main__":
    report()
