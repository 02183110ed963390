"""prometheus_client makes a page of thousands of series, beside a thread that does little."""

from prometheus_client import CollectorRegistry, Counter, generate_latest
from ticker import beside_a_ticker

registry = CollectorRegistry()
counter = Counter("requests", "Requests.", ["path"], registry=registry)
for number in range(3000):
    counter.labels(f"/{number}").inc()
beside_a_ticker(lambda: generate_latest(registry))
