"""The experiments by name, in the order of the published documents."""

from __future__ import annotations

from headway.experiments.experiment import Experiment
from headway.experiments.measured.bandwidth import Bandwidth
from headway.experiments.measured.countdown import Countdown
from headway.experiments.measured.echo import Echo
from headway.experiments.measured.hash import Hash
from headway.experiments.measured.latency import Latency
from headway.experiments.measured.race import Race
from headway.experiments.measured.refcount import Refcount
from headway.experiments.measured.throughput import Throughput
from headway.experiments.measured.wsgi.experiment import Wsgi

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
