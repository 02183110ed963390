"""The experiments by name, in the order of the seeds' documents."""

from __future__ import annotations

from headway.bench.experiment import Experiment
from headway.bench.experiments.bandwidth import Bandwidth
from headway.bench.experiments.countdown import Countdown
from headway.bench.experiments.echo import Echo
from headway.bench.experiments.hash import Hash
from headway.bench.experiments.latency import Latency
from headway.bench.experiments.race import Race
from headway.bench.experiments.refcount import Refcount
from headway.bench.experiments.throughput import Throughput
from headway.bench.experiments.wsgi import Wsgi

EXPERIMENTS: dict[str, Experiment] = {
    each.name: each
    for each in (
        Throughput(),
        Latency(),
        Bandwidth(),
        Countdown(),
        Hash(),
        Echo(),
        Race(),
        Refcount(),
        Wsgi(),
    )
}
