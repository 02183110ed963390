"""The experiments of `headway bench` that can be simulated, by the same names."""

from __future__ import annotations

from headway.experiments.simulated.models.countdown import SimulatedCountdown
from headway.experiments.simulated.models.echo import SimulatedEcho
from headway.experiments.simulated.models.experiment import Simulated
from headway.experiments.simulated.models.latency import SimulatedLatency
from headway.experiments.simulated.models.wsgi import SimulatedWsgi

SIMULATED: dict[str, Simulated] = {
    each.experiment.name: each
    for each in (SimulatedLatency(), SimulatedCountdown(), SimulatedEcho(), SimulatedWsgi())
}
