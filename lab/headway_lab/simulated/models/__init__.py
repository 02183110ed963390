"""The experiments of `headway bench` that can be simulated, by the same names."""

from __future__ import annotations

from headway_lab.simulated.models.countdown import SimulatedCountdown
from headway_lab.simulated.models.echo import SimulatedEcho
from headway_lab.simulated.models.experiment import Simulated
from headway_lab.simulated.models.latency import SimulatedLatency
from headway_lab.simulated.models.wsgi import SimulatedWsgi

SIMULATED: dict[str, Simulated] = {
    each.experiment.name: each
    for each in (SimulatedLatency(), SimulatedCountdown(), SimulatedEcho(), SimulatedWsgi())
}
