"""Sends Celery 20 light tasks a second while two heavy ones are always under way.

    celery_client.py URL

URL is that of the broker and of the results. A light task's latency is the time from sending it to
its end.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from celery_tasks import app, heavy, light
from latencies import SECONDS, print_latencies

LIGHT_PER_S = 20
HEAVY_AT_ONCE = 2
TIMEOUT_S = 60


def send_heavy(end_s: float) -> int:
    """Sends one heavy task after the other. Returns the number of those that ended in time."""
    count = 0
    while time.monotonic() < end_s:
        heavy.delay().get(timeout=TIMEOUT_S)
        count += time.monotonic() < end_s
    return count


def main() -> None:
    app.conf.update(broker_url=sys.argv[1], result_backend=sys.argv[1])
    # The worker is ready once it has run a task.
    light.delay(time.monotonic()).get(timeout=TIMEOUT_S)
    with ThreadPoolExecutor(HEAVY_AT_ONCE) as threads:
        end_s = time.monotonic() + SECONDS
        computing = [threads.submit(send_heavy, end_s) for _ in range(HEAVY_AT_ONCE)]
        sent = []
        while (now_s := time.monotonic()) < end_s:
            sent.append(light.delay(now_s))
            time.sleep(1 / LIGHT_PER_S)
        latencies_s = [each.get(timeout=TIMEOUT_S) for each in sent]
        count = sum(each.result() for each in computing)
    print_latencies(latencies_s, count, SECONDS)


if __name__ == "__main__":
    main()
