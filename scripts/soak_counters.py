"""Whether counters balance and the sums of a profile agree, for a soak: see soak.py."""

from __future__ import annotations

from collections.abc import Sequence

from headway.profile.model import Held, Profile, Waited
from headway.report.model import GilReport

EXACT_COUNTS = ("takes", "contended_takes", "voluntary_drops", "forced_drops", "preemptions")
# Sums of floats that were whole nanoseconds.
ROUNDING_S = 1e-6


class SoakFailure(Exception):
    """A failure of the soak; the text is one line."""


def check_counters(report: GilReport) -> None:
    """Raises SoakFailure unless the counters balance as ARCHITECTURE.md has it."""
    for row in report.gils:
        threads = report.threads_of(row)
        drops = row.voluntary_drops + row.forced_drops
        balances: dict[str, tuple[float, float]] = {
            "anomalies": (row.anomalies, 0),
            "takes and drops": (row.takes + row.held_at_open, drops + row.held_now),
            "waits and contended takes": (row.wait.count, row.contended_takes),
            "holds and drops": (row.hold.count, drops),
            "held, handoff, idle and wall": (row.held_s + row.handoff_s + row.idle_s, row.wall_s),
            "held and the threads' sum": (row.held_s, sum(each.held_s for each in threads)),
            **{
                f"{count} and the threads' sum": (
                    getattr(row, count),
                    sum(getattr(each, count) for each in threads),
                )
                for count in EXACT_COUNTS
            },
        }
        for what, (one, other) in balances.items():
            exact = isinstance(one, int) and isinstance(other, int)
            if abs(one - other) > (0 if exact else ROUNDING_S):
                where = f"pid {report.pid}, GIL {row.id} ({row.name})"
                raise SoakFailure(f"{where}: {what}: {one} is not {other}")
    for child in report.children:
        # One that runs may have been seen in the middle of an event.
        if not any(row.alive for row in child.gils):
            check_counters(child)


def check_profile(profile: Profile) -> None:
    """Raises SoakFailure unless the charges of each side, with what has no stack, are the waiting
    for each GIL. GILs of one name count together: an interpreter has another GIL after each
    installation of the meter."""
    for gil in {total.gil for total in profile.totals}:
        totals = [total for total in profile.totals if total.gil == gil]
        waited_ns = sum(total.waited_ns for total in totals)
        sides: dict[str, tuple[Sequence[Held | Waited], int]] = {
            "waiters": (profile.waiters, sum(each.waits_not_recorded_ns for each in totals))
        }
        if profile.has_holders:
            without_stack_ns = sum(each.handoff_ns + each.held_not_recorded_ns for each in totals)
            sides["holders"] = (profile.holders, without_stack_ns)
        for side, (charges, without_stack_ns) in sides.items():
            charged_ns = sum(each.waited_ns for each in charges if each.gil == gil)
            if charged_ns + without_stack_ns != waited_ns:
                raise SoakFailure(
                    f"pid {profile.pid}, GIL {gil}: {side} are charged with {charged_ns} ns and "
                    f"{without_stack_ns} ns have no stack, where {waited_ns} ns were waited"
                )
