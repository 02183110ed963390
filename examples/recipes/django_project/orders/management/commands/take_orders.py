"""Takes orders as they come while two threads compute reports, and prints how long orders take."""

from __future__ import annotations

import threading
import time
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand
from latencies import SECONDS, print_latencies

from orders.models import Order

PAUSE_S = 0.01


class Command(BaseCommand):
    help = __doc__

    def handle(self, *arguments: Any, **options: Any) -> None:
        call_command("migrate", run_syncdb=True, verbosity=0)
        ended = threading.Event()
        reports: list[int] = []
        threads = [
            threading.Thread(target=compute_reports, args=(ended, reports), name=f"reports-{at}")
            for at in range(2)
        ]
        for thread in threads:
            thread.start()
        latencies_s = take_orders(SECONDS)
        print_latencies(latencies_s, len(reports), SECONDS)
        ended.set()
        for thread in threads:
            thread.join()


def take_orders(seconds: float) -> list[float]:
    latencies_s = []
    end_s = time.monotonic() + seconds
    while (began_s := time.monotonic()) < end_s:
        order = Order.objects.create(product=len(latencies_s))
        Order.objects.filter(pk=order.pk).update(is_paid=True)
        assert Order.objects.get(pk=order.pk).is_paid
        latencies_s.append(time.monotonic() - began_s)
        time.sleep(PAUSE_S)
    return latencies_s


def compute_reports(ended: threading.Event, reports: list[int]) -> None:
    while not ended.is_set():
        reports.append(sum(number * number for number in range(1_000_000)))
