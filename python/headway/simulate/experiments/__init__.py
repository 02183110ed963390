"""The experiments of `headway bench` that can be simulated, by the same names."""

from __future__ import annotations

from headway.simulate.experiments.countdown import SimulatedCountdown
from headway.simulate.experiments.echo import SimulatedEcho
from headway.simulate.experiments.latency import SimulatedLatency
from headway.simulate.experiments.simulated import Simulated
from headway.simulate.experiments.wsgi import SimulatedWsgi

SIMULATED: dict[str, Simulated] = {
    each.experiment.name: each
    for each in (SimulatedLatency(), SimulatedCountdown(), SimulatedEcho(), SimulatedWsgi())
}
