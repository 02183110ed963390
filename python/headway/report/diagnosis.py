"""Diagnoses threads by their waits: for the GIL that they share, or where there is none.

The report of a program, the caption of a trace and the recorder's verdicts use these rules, so that
they agree on what a convoy is. Each makes a `Contention` or, for a free-threaded program, a
`Parking` from its own figures. The report of a program uses this module, so it imports `thresholds`
alone.
"""

from __future__ import annotations

from headway.report import thresholds

LONG_HOLD, CONVOY, GIL_BOUND, HEALTHY = "long-hold", "convoy", "gil-bound", "healthy"
COLLECTION = "garbage-collection"
LOCK_CONTENTION, STOPPED_WORLD = "lock-contention", "stopped-world"
# The part of the waiting from which on a convoy, which a policy ends, comes before a full GIL.
CONVOY_FIRST = 1 / 3


class Contention:
    """The waits and holds of one GIL. Times are in seconds.

    - `interval_s`: the switch interval, or None if it is unknown.
    - `wall_s`: how long the GIL was watched, summed over processes.
    - `used_s`: the part of `wall_s` in which the GIL was held or handed over.
    - `waited_s`, `held_s`: the sums of waits and of holds.
    - `interval_waits_s`, `interval_holds_s`: the parts of these sums in waits and holds of a whole
      switch interval (`whole_interval_s`) or longer.
    - `needed_s`: how long the work that waits most typically needs the GIL at a time.
    - `delayed_s`: the typical wait of that work; None if it is unknown.
    - `kept_s`: the longest time that a holder kept the GIL after a drop request, without passes of
      the garbage collector.
    - `waited_for_kept_s`: the sum of waits for holders that did not answer a drop request. Where
      the meter did not divide the waits, those for holds that are long by `long_hold_s`.
    - `preventable_s`: the sum of the waits that a policy could have prevented, those for short work
      behind computing that can be preempted; None if the meter did not divide the waits.
    - `collection_s`: the sum of the waits behind passes of the garbage collector.
    - `longest_collection_s`: the longest pass.
    """

    __slots__ = (
        "collection_s",
        "delayed_s",
        "held_s",
        "interval_holds_s",
        "interval_s",
        "interval_waits_s",
        "kept_s",
        "longest_collection_s",
        "needed_s",
        "preventable_s",
        "used_s",
        "waited_for_kept_s",
        "waited_s",
        "wall_s",
    )

    def __init__(
        self,
        *,
        interval_s: float | None,
        wall_s: float,
        used_s: float,
        waited_s: float,
        held_s: float,
        interval_waits_s: float,
        interval_holds_s: float,
        needed_s: float,
        delayed_s: float | None = None,
        kept_s: float = 0.0,
        waited_for_kept_s: float = 0.0,
        preventable_s: float | None = None,
        collection_s: float = 0.0,
        longest_collection_s: float = 0.0,
    ) -> None:
        self.interval_s = interval_s
        self.wall_s = wall_s
        self.used_s = used_s
        self.waited_s = waited_s
        self.held_s = held_s
        self.interval_waits_s = interval_waits_s
        self.interval_holds_s = interval_holds_s
        self.needed_s = needed_s
        self.delayed_s = delayed_s
        self.kept_s = kept_s
        self.waited_for_kept_s = waited_for_kept_s
        self.preventable_s = preventable_s
        self.collection_s = collection_s
        self.longest_collection_s = longest_collection_s

    @property
    def waiting(self) -> float:
        """The average number of threads that wait for the GIL."""
        return _share(self.waited_s, self.wall_s)

    @property
    def interval_waits_share(self) -> float:
        return _share(self.interval_waits_s, self.waited_s)

    @property
    def interval_holds_share(self) -> float:
        return _share(self.interval_holds_s, self.held_s)

    @property
    def waited_for_kept_share(self) -> float:
        return _share(self.waited_for_kept_s, self.waited_s)

    @property
    def collection_share(self) -> float:
        return _share(self.collection_s, self.waited_s)

    @property
    def preventable_share(self) -> float:
        """The share of the waiting that a policy could have prevented, as far as it is known."""
        if self.preventable_s is not None:
            return _share(self.preventable_s, self.waited_s)
        return self._estimated_preventable_share()

    def _estimated_preventable_share(self) -> float:
        """This share from the lengths of waits and holds, where the meter did not divide the waits:
        that part of them in whole switch intervals which is for no long hold and no garbage
        collection, if the work that waits is short and it is most of the waiting."""
        interval_s, delayed_s = self.interval_s, self.delayed_s
        others_s = max(0.0, self.interval_waits_s - self.waited_for_kept_s - self.collection_s)
        is_convoy = (
            bool(interval_s)
            and self.interval_waits_share >= thresholds.CONVOY_TIME.value
            and self.interval_holds_share >= thresholds.CONVOY_HELD.value
            and self.needed_s < thresholds.CONVOY_WORK.value * (interval_s or 0.0)
            and (delayed_s is None or delayed_s >= whole_interval_s(interval_s or 0.0))
        )
        return _share(others_s, self.waited_s) if is_convoy else 0.0


def whole_interval_s(interval_s: float) -> float:
    """The shortest wait or hold that counts as a whole switch interval, in seconds."""
    return thresholds.WHOLE_INTERVALS.value * interval_s


def long_hold_s(interval_s: float | None, cpu_s: float | None) -> float:
    """The shortest time from a drop request to the drop that counts as a long hold, in seconds.
    `cpu_s` is the CPU time that the holder used after the request, or None if it is unknown."""
    limit_s = thresholds.LONG_HOLD_INTERVALS.value * (interval_s or 0.0)
    if limit_s and cpu_s is not None and cpu_s >= thresholds.C_CODE_CPU_S.value:
        return limit_s
    return max(limit_s, thresholds.LONG_HOLD_S.value)


def is_asleep(kept_s: float, cpu_s: float | None) -> bool:
    """Whether a holder that did not answer a drop request for so long, and used so much CPU time or
    an unknown one, slept with the GIL: without a core it would have run in between."""
    computed = cpu_s is not None and cpu_s >= thresholds.C_CODE_CPU_S.value
    return kept_s >= thresholds.CORE_WAIT_S.value and not computed


def finding(contention: Contention) -> str:
    """The finding that explains most of the waiting, or HEALTHY."""
    return next(iter(findings(contention)), HEALTHY)


def findings(contention: Contention) -> list[str]:
    """The findings that explain a part of the waiting that counts, of LONG_HOLD, COLLECTION, CONVOY
    and GIL_BOUND, the one with the largest part first. A hold of a second is first in any case,
    and a convoy of a third before a full GIL: a policy ends it."""
    shares = {}
    if has_long_holds(contention):
        shares[LONG_HOLD] = contention.waited_for_kept_share
    if has_collections(contention):
        shares[COLLECTION] = contention.collection_share
    if is_convoy(contention):
        shares[CONVOY] = contention.preventable_share
    if is_gil_bound(contention):
        # Equal work that waits for each other.
        shares[GIL_BOUND] = max(0.0, 1 - sum(shares.values()))
    if shares.get(CONVOY, 0.0) >= CONVOY_FIRST and GIL_BOUND in shares:
        shares[GIL_BOUND] = min(shares[GIL_BOUND], shares[CONVOY])
    found = sorted(shares, key=lambda name: -shares[name])
    alone_s = thresholds.LONG_HOLD_ALONE_S.value
    longest_pass_s = min(contention.longest_collection_s, contention.collection_s)
    if max(contention.kept_s, longest_pass_s) >= alone_s:
        first = COLLECTION if longest_pass_s >= contention.kept_s else LONG_HOLD
        return [first, *(name for name in found if name != first)]
    return found


def has_long_holds(contention: Contention) -> bool:
    """Whether waits for holders that do not answer drop requests are a part of the waiting that
    counts, and the holders kept the GIL for longer than Python code does."""
    share = contention.waited_for_kept_share
    return (
        share >= thresholds.LONG_HOLD_SHARE.value
        and contention.kept_s >= thresholds.C_CODE_CPU_S.value
        and not is_little(contention)
    )


def has_collections(contention: Contention) -> bool:
    """Whether waits for the garbage collector are a part of the waiting that counts."""
    share = contention.collection_share
    return share >= thresholds.LONG_HOLD_SHARE.value and not is_little(contention)


def is_convoy(contention: Contention) -> bool:
    """Whether short work waits behind computing that can be preempted, for a part of the waiting
    that counts."""
    share = contention.preventable_share
    return share >= thresholds.PREVENTABLE_SHARE.value and not is_little(contention)


def lacks_cores(
    *, wall_s: float, used_s: float, cpu_s: float, others_s: float, busy_s: float, cores: float
) -> bool:
    """Whether other programs take the cores from threads that hold the GIL or are to have it.

    - `used_s`: the part of `wall_s` in which the GIL was held or handed over, without holds of
      threads that slept.
    - `cpu_s`, `others_s`, `busy_s`: the CPU time of the process, that of others on the `cores` that
      it may use, and of all.
    """
    return (
        _share(busy_s, wall_s) >= thresholds.CORES_FULL.value * cores
        and _share(others_s, busy_s) >= thresholds.CORES_OF_OTHERS.value
        and _share(used_s, wall_s) >= thresholds.GIL_NEEDED.value
        and _share(cpu_s, used_s) < thresholds.ON_A_CORE.value
    )


def is_gil_bound(contention: Contention) -> bool:
    """Whether the GIL is in use nearly all the time while threads wait for it."""
    use = _share(contention.used_s, contention.wall_s)
    return use >= thresholds.GIL_FULL.value and contention.waiting >= thresholds.THREADS_WAIT.value


def is_little(contention: Contention) -> bool:
    """Whether all waiting together is too little to limit anything."""
    return contention.waiting < thresholds.LITTLE_WAITING.value


class Parking:
    """The waits of threads without a GIL. Times are in seconds.

    - `wall_s`: how long the program was watched, summed over processes.
    - `cpu_s`: the CPU time of the processes, or None if it is unknown.
    - `contended_s`: the sum of the waits for locks and events that are shorter than LOCK_WAIT_S.
      CPython waits for both in the same way, and only the length shows which it was.
    - `stopped_s`: the sum of the waits of threads that stopped the world, or that stood still while
      another thread did.
    """

    __slots__ = ("contended_s", "cpu_s", "stopped_s", "wall_s")

    def __init__(
        self, *, wall_s: float, cpu_s: float | None, contended_s: float, stopped_s: float
    ) -> None:
        self.wall_s = wall_s
        self.cpu_s = cpu_s
        self.contended_s = contended_s
        self.stopped_s = stopped_s

    @property
    def contending(self) -> float:
        """The average number of threads that wait for a contended lock."""
        return _share(self.contended_s, self.wall_s)

    @property
    def contended_share(self) -> float:
        """The part of the threads' time that goes to contended locks. The rest is CPU time."""
        return _share(self.contended_s, self.contended_s + (self.cpu_s or 0.0))

    @property
    def stopped(self) -> float:
        """The average number of threads that stand still or wait for others to do so."""
        return _share(self.stopped_s, self.wall_s)

    @property
    def stopped_share(self) -> float:
        """The part of the threads' time that goes to stopped worlds. The rest is CPU time."""
        return _share(self.stopped_s, self.stopped_s + (self.cpu_s or 0.0))


def parking_finding(parking: Parking) -> str:
    """The first of STOPPED_WORLD and LOCK_CONTENTION that limits a free-threaded program, or
    HEALTHY. A thread that stands still keeps its locks, so stopped worlds explain waits for them.
    """
    if is_stopped_world(parking):
        return STOPPED_WORLD
    return LOCK_CONTENTION if is_lock_contention(parking) else HEALTHY


def is_stopped_world(parking: Parking) -> bool:
    """Whether threads lose much of their time because one of them stops all others."""
    return (
        parking.stopped >= thresholds.THREADS_PARKED.value
        and parking.stopped_share >= thresholds.PARKED_SHARE.value
    )


def is_lock_contention(parking: Parking) -> bool:
    """Whether threads lose much of their time to locks that another thread has, while one works."""
    working = parking.cpu_s is None or (
        _share(parking.cpu_s, parking.wall_s) >= thresholds.LOCK_CPU.value
    )
    return (
        working
        and parking.contending >= thresholds.THREADS_PARKED.value
        and parking.contended_share >= thresholds.PARKED_SHARE.value
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
