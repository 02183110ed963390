"""A worker that sends itself tasks by files, without a broker."""

import os
import time
from pathlib import Path

from celery import Celery, signals

app = Celery("celery_site", broker="filesystem://")
for name in ("queue", "processed"):
    Path(name).mkdir(exist_ok=True)
app.conf.update(
    broker_transport_options={
        "data_folder_in": "queue",
        "data_folder_out": "queue",
        "processed_folder": "processed",
    },
    worker_lost_wait=0.1,
)


@app.task
def light(number):
    return os.getpid()


@app.task(acks_late=True, reject_on_worker_lost=True)
def long():
    with open("begun", "a") as file:
        print(os.getpid(), file=file)
    while not Path("go_on").exists():
        time.sleep(0.01)


@signals.worker_ready.connect
def send(**_):
    for number in range(4):
        light.delay(number)
    long.delay()
