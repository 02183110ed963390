"""APScheduler runs a light job every 20 ms beside two jobs that compute.

The light job's latency is the time from its due time to its end.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

from apscheduler.events import EVENT_JOB_EXECUTED, EVENT_JOB_MISSED, JobExecutionEvent
from apscheduler.schedulers.background import BackgroundScheduler
from latencies import SECONDS, print_latencies

INTERVAL_S = 0.02
HEAVY_AT_ONCE = 2


def light() -> None:
    pass


def heavy(end_s: float) -> int:
    count = 0
    while time.monotonic() < end_s:
        sum(number * number for number in range(300_000))
        count += 1
    return count


def main() -> None:
    latencies_s: list[float] = []
    counts: list[int] = []

    def note(event: JobExecutionEvent) -> None:
        if event.job_id == "light":
            late = datetime.now(timezone.utc) - event.scheduled_run_time
            latencies_s.append(late.total_seconds())
        else:
            counts.append(event.retval)

    scheduler = BackgroundScheduler(timezone=timezone.utc)
    # A job that is due several times runs as often, and never counts as missed.
    scheduler.configure(
        job_defaults={"coalesce": False, "misfire_grace_time": None, "max_instances": 100}
    )
    scheduler.add_listener(note, EVENT_JOB_EXECUTED | EVENT_JOB_MISSED)
    scheduler.start()
    end_s = time.monotonic() + SECONDS
    for _ in range(HEAVY_AT_ONCE):
        scheduler.add_job(heavy, args=[end_s])
    first = datetime.now(timezone.utc) + timedelta(seconds=INTERVAL_S)
    scheduler.add_job(light, "interval", seconds=INTERVAL_S, start_date=first, id="light")
    time.sleep(SECONDS)
    scheduler.remove_job("light")
    scheduler.shutdown()
    print_latencies(latencies_s, sum(counts), SECONDS)


if __name__ == "__main__":
    main()
