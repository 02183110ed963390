"""`headway simulate --calibrate FILE`: probes this machine, and writes what it measured to a file.

Progress and doubts go to stderr. If it is interrupted, it ends its programs and writes nothing.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence

from headway import json_file
from headway.errors import CommandError, reason_of
from headway.output.metadata import Circumstances, Metadata, doubts, ticks
from headway.programs import interpreters, signals
from headway.programs.progress import clear_progress, progress
from headway_lab.simulated import calibration, probe
from headway_lab.simulated.constants import Constants, Derivation

OPTION = "--calibrate"
# Positions in the first line of /proc/stat after its name: idle, waiting for I/O, steal.
NOBODYS_TICKS = (3, 4, 7)
# If other programs use a larger share of the processors, the figures are doubtful.
MOST_OTHERS = 0.05


def run(file: str) -> int:
    path = json_file.check_path(file, OPTION)
    signals.watch()
    circumstances = Circumstances()
    others = Others()
    cores = len(os.sched_getaffinity(0))
    try:
        samples = probe.measure(progress)
    except KeyboardInterrupt:
        clear_progress()
        print("Interrupted: nothing is written.", file=sys.stderr)
        return 130
    clear_progress()
    found = Derivation(samples, cores).constants()
    metadata = circumstances.to_dict(interpreters.this(), others=others.share())
    try:
        calibration.write(path, metadata, *found)
    except OSError as error:
        raise CommandError(f"{OPTION} {file}: {reason_of(error)}") from error
    for line in remarks(metadata, found):
        print(line, file=sys.stderr)
    return 0


class Others:
    """The share of all processors' time that other processes used since the construction. The
    processes of the probe must have ended before `share` is called."""

    def __init__(self) -> None:
        self._ticks = ticks()
        self._own_s = own_s()

    def share(self) -> float:
        passed = [now - then for now, then in zip(ticks(), self._ticks, strict=True)]
        return others_share(passed, own_s() - self._own_s)


def others_share(passed: Sequence[int], used_s: float) -> float:
    """`passed` is in the form of `metadata.ticks`. `used_s` is the processor time of the probe."""
    busy = sum(passed) - sum(passed[place] for place in NOBODYS_TICKS)
    used = round(used_s * os.sysconf("SC_CLK_TCK"))
    return max(0, busy - used) / max(1, sum(passed))


def own_s() -> float:
    """Processor time of this process and of its children."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def remarks(metadata: Metadata, found: Constants) -> list[str]:
    """The doubts about the file, and the number of constants that were measured here."""
    lines = [f"doubtful: {doubt}" for doubt in doubts(metadata)]
    if metadata["others"] > MOST_OTHERS:
        lines.append(
            f"doubtful: others used {metadata['others']:.0%} of the processors meanwhile; "
            "calibrate a quiet machine"
        )
    lines += [f"as shipped: {name}: {why}" for name, why in found.kept().items()]
    count = sum(constant.kept is None for part in found[:2] for constant in part.values())
    lines.append(f"{count} constants measured in {metadata['seconds']:.0f} s")
    return lines
