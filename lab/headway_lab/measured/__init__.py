"""The experiments by name, in the order of the published documents."""

from __future__ import annotations

from headway_lab.experiment import Experiment
from headway_lab.measured.bandwidth import Bandwidth
from headway_lab.measured.countdown import Countdown
from headway_lab.measured.echo import Echo
from headway_lab.measured.hash import Hash
from headway_lab.measured.latency import Latency
from headway_lab.measured.race import Race
from headway_lab.measured.refcount import Refcount
from headway_lab.measured.throughput import Throughput
from headway_lab.measured.wsgi.experiment import Wsgi

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
