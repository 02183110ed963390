"""Submits light tasks to Dask while two heavy ones are always under way.

    dask_client.py SCHEDULER

A light task's latency is the time from its submission to its result.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from dask.distributed import Client
from latencies import SECONDS, print_latencies

HEAVY_AT_ONCE = 2
PAUSE_S = 0.02
TIMEOUT_S = 60


def light(number: int) -> int:
    return number


def heavy() -> int:
    return sum(number * number for number in range(3_000_000))


def submit_light(client: Client) -> float:
    begin_s = time.monotonic()
    client.submit(light, 0, pure=False).result(TIMEOUT_S)
    return time.monotonic() - begin_s


def submit_heavy(client: Client, end_s: float) -> int:
    """Submits one heavy task after the other. Returns the number of those that ended in time."""
    count = 0
    while time.monotonic() < end_s:
        client.submit(heavy, pure=False).result(TIMEOUT_S)
        count += time.monotonic() < end_s
    return count


def main() -> None:
    with (
        Client(sys.argv[1], timeout=TIMEOUT_S) as client,
        ThreadPoolExecutor(HEAVY_AT_ONCE) as threads,
    ):
        client.wait_for_workers(1, timeout=TIMEOUT_S)
        submit_light(client)
        latencies_s = []
        end_s = time.monotonic() + SECONDS
        computing = [threads.submit(submit_heavy, client, end_s) for _ in range(HEAVY_AT_ONCE)]
        while time.monotonic() < end_s:
            latencies_s.append(submit_light(client))
            time.sleep(PAUSE_S)
        count = sum(each.result() for each in computing)
    print_latencies(latencies_s, count, SECONDS)


if __name__ == "__main__":
    main()
