"""`countdown` in virtual time: threads that each count down their share once, and end.

They all start at once. Those of `programs/countdown_threads.py` start one after another, which
affects the order of the threads and not the time of the last end. Without timer slack, timers are
exact.
"""

from __future__ import annotations

from dataclasses import replace

from headway.output.results import Parameters
from headway_lab.experiment import Choice, Measured, Row
from headway_lab.measured.countdown import PATIENCE, SECONDS, UNIT_DECREMENTS, Countdown
from headway_lab.simulated.models.experiment import Conditions, Scene, Simulated, gils_of, window_s
from headway_lab.simulated.samples import NS
from headway_lab.simulated.scenario import Outcome, Scenario, Thread, compute


class SimulatedCountdown(Simulated):
    experiment = Countdown()
    scene = Scene(
        {
            "policy": "stock",
            "switch_interval": 0.005,
            "threads": 2,
            "mode": "threads",
            "timers": "default",
        },
        seconds=0.2,
    )

    def calibration(self, choice: Choice, conditions: Conditions) -> Parameters:
        """The number of decrements that take one thread the time of a value."""
        seconds = choice.seconds or SECONDS
        decrements = round(seconds * NS / conditions.costs.decrement_ns)
        return {"decrements": decrements, **super().calibration(choice, conditions)}

    def scenario(self, row: Row, choice: Choice, conditions: Conditions) -> Scenario:
        if row.parameters["timers"] == "exact":
            exact = replace(conditions.machine, timer_slack_ns=0)
            conditions = replace(conditions, machine=exact)
        gils = gils_of(row)
        count = row.parameters["threads"]
        seconds = choice.seconds or SECONDS
        share = [compute(seconds * NS / count)]
        threads = [
            Thread(f"countdown-{index}", share, gil=0 if gils else None, once=True)
            for index in range(count)
        ]
        return conditions.scenario(gils, threads, 0.0, PATIENCE * seconds)

    def measured(
        self, row: Row, scenario: Scenario, outcome: Outcome, conditions: Conditions
    ) -> Measured:
        ends_ns = [thread["finished_ns"] for thread in outcome.threads]
        known_ns = [end_ns for end_ns in ends_ns if end_ns is not None]
        every_ended = len(known_ns) == len(ends_ns)
        ended_s = max(known_ns) / NS if every_ended else window_s(scenario)
        computed_ns = sum(thread["computed_ns"] for thread in outcome.threads)
        decrements = computed_ns / conditions.costs.decrement_ns
        return Measured(ended_s / decrements * UNIT_DECREMENTS)
