"""`headway simulate NAME --timeline FILE`: one row of an experiment over time, in the format that
the file's name asks for.

This module does not make the timeline, and does not draw it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from headway import json_file
from headway.errors import CommandError, reason_of
from headway.output.results import Parameters
from headway.report.terminal import Style
from headway.trace import perfetto, svg, text
from headway.trace.timeline import Timeline
from headway_lab.experiment import Choice, Row
from headway_lab.simulated.events import timeline
from headway_lab.simulated.models.experiment import Conditions, Simulated
from headway_lab.simulated.samples import NS

SVG, CHROME = ".svg", ".json"
# A second of a convoy has some thousands of events.
MOST_EVENTS = 500_000


class TimelineFile:
    """The file of a timeline. Raises CommandError (exit code 2) if it cannot be written, or if its
    name has no known suffix."""

    def __init__(self, file: str) -> None:
        self.path = json_file.check_path(file, "--timeline")
        self._suffix = os.path.splitext(file)[1]
        if self.path != json_file.STDOUT and self._suffix not in (SVG, CHROME):
            raise CommandError(
                f"--timeline {file!r}: found the suffix {self._suffix!r}; there are {SVG} (a "
                f"drawing), {CHROME} (a trace for Perfetto and Chrome), and - (this terminal)",
                exit_code=2,
            )

    def write(self, drawn: Timeline, style: Style) -> str:
        """Writes the drawing; returns the text for the terminal. Raises CommandError."""
        if self.path == json_file.STDOUT:
            return text.draw(drawn, style).removesuffix("\n")
        made = svg.draw(drawn) if self._suffix == SVG else "".join(perfetto.to_chrome(drawn))
        try:
            json_file.write(made.encode(), self.path)
        except OSError as error:
            raise CommandError(f"--timeline {self.path}: {reason_of(error)}") from error
        return f"Drawn: {drawn.title}"


def simulate(simulated: Simulated, choice: Choice, conditions: Conditions) -> Timeline:
    """Simulates the row for which the experiment is known, or the chosen row that is most like it.
    Raises CommandError (exit code 2) if there is none."""
    rows = [row for row in simulated.rows(choice, conditions.machine) if not row.left_out]
    if not rows:
        raise CommandError("--timeline: no such row can be simulated", exit_code=2)
    scene = simulated.scene
    row = likest(rows, scene.parameters)
    scenario = simulated.scenario(row, choice, conditions)
    seconds = choice.seconds or scene.seconds
    scenario = replace(
        scenario,
        end_ns=scenario.begin_ns + seconds * NS,
        timeline_events=MOST_EVENTS,
    )
    title = f"{simulated.experiment.name}: {row}"
    return timeline(title, scenario, scenario.run())


def likest(rows: Sequence[Row], parameters: Parameters) -> Row:
    """The first of the rows that have most of these parameters."""
    return max(rows, key=lambda row: len(parameters.items() & row.parameters.items()))
