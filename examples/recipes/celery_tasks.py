"""A light task and a heavy one, for a worker of Celery."""

from __future__ import annotations

import time

from celery import Celery

app = Celery("tasks", broker="redis://127.0.0.1", backend="redis://127.0.0.1")


@app.task
def light(sent_s: float) -> float:
    """Returns the time since `sent_s`, on the monotonic clock, which all processes share."""
    return time.monotonic() - sent_s


@app.task
def heavy() -> int:
    return sum(number * number for number in range(3_000_000))
