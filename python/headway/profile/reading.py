"""Makes a `Profile` of what the engine has charged to stacks."""

from __future__ import annotations

from headway.profile.model import (
    CUT,
    FORCED,
    RUNNING,
    UNKNOWN_THREAD,
    VOLUNTARY,
    Frame,
    Held,
    Profile,
    Totals,
    Waited,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from headway.report.model import GilReport

# The numbers of crates/gil/src/profile/store.rs.
ENDS = {1: FORCED, 2: VOLUNTARY, 3: RUNNING}
WAITED = 4
CUT_INDEX = (1 << 32) - 1

PARKED_SERIALS = range((1 << 32) - 3, 1 << 32)

ENDED_GILS = "ended interpreters"


def to_profile(
    raw: Mapping[str, Any], pid: int, program: str, report: GilReport | None = None
) -> Profile:
    """`raw` is the result of `headway.meter.engine.read_profile()`, or of `read_ledger_profile()`,
    which has the names of ended threads only: `report`, of the same ledger, has the others."""
    profile = Profile(pid, program, raw["began_wall_ns"], raw["wall_ns"])
    frames = [Frame(function, file, line) for function, file, line in raw["frames"]]
    cut = Frame(CUT, "", 0)
    stacks = [
        tuple(cut if index == CUT_INDEX else frames[index] for index in stack)
        for stack in raw["stacks"]
    ]
    threads = dict(raw["threads"]) if report is None else report.thread_names(raw["threads"])
    gils: dict[int, str] = {}
    for serial, interpreter, name, waited_ns, handoff_ns, held_ns, waits_ns in raw["gils"]:
        if serial == 0 and waited_ns == 0:
            continue
        gil = _name_of_gil(serial, interpreter, name)
        gils[serial] = gil
        has_holders = serial not in PARKED_SERIALS
        profile.totals.append(Totals(gil, waited_ns, handoff_ns, held_ns, waits_ns, has_holders))

    def thread(native_id: int) -> str:
        if native_id == 0:
            return UNKNOWN_THREAD
        return threads.get(native_id) or f"thread {native_id}"

    # Several rows may be one stack of the same names: of two instructions of a line, of two threads
    # with one name.
    holders: dict[tuple[str, tuple[Frame, ...], str, str, str], list[int]] = {}
    waiters: dict[tuple[str, tuple[Frame, ...], str], list[int]] = {}
    for kind, serial, stack, holder, waiter, charged_ns, readings in raw["charges"]:
        gil = gils.get(serial, ENDED_GILS)
        if kind == WAITED:
            sums = waiters.setdefault((gil, stacks[stack], thread(holder)), [0, 0])
        else:
            key = (gil, stacks[stack], thread(holder), thread(waiter), ENDS[kind])
            sums = holders.setdefault(key, [0, 0])
        sums[0] += charged_ns
        sums[1] += readings
    profile.holders.extend(Held(*key, *sums) for key, sums in holders.items())
    profile.waiters.extend(Waited(*key, *sums) for key, sums in waiters.items())
    return profile


def _name_of_gil(serial: int, interpreter: int | None, name: str) -> str:
    if serial == 0:
        return ENDED_GILS
    if interpreter == 0:
        return "main"
    return name or ("interpreter" if interpreter is None else f"interpreter {interpreter}")
