"""A switch interval for each thread: its slice under a policy, inherited; nothing under `interval`.

Two threads compute beside each other; what they held tells whose turns were longer. The margins
leave room for a kernel that runs other programs when it is a waiter's turn to ask.
"""

from __future__ import annotations

import textwrap

import pytest
from launch import GIL_ENABLED
from metered import assert_balanced, run_metered

pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL"),
]

SCHEDULING = ("priority", "deadline")
# By slices of 0.5 ms and 50 ms: a hundred to one.
SHORT_NS, LONG_NS = 500_000, 50_000_000
UNEQUAL, EQUAL = 3.0, 5.0

COMPUTE = f"""
from headway import _native
SHORT_NS, LONG_NS = {SHORT_NS}, {LONG_NS}
own = _native.gil_set_switch_interval

def compute_beside(first, second, seconds=1.2):
    '''What each of two threads, made by these functions of what to compute, held.'''
    ended = False
    def compute():
        while not ended: sum(range(50))
    before = gil.snapshot()
    threads = [first(compute), second(compute)]
    [thread.start() for thread in threads]
    time.sleep(seconds)
    ended = True
    [thread.join() for thread in threads]
    report = (gil.snapshot() - before).to_dict()
    held = {{row["name"]: row["held_s"] for row in report["threads"]}}
    return [report, *(held[thread.name] for thread in threads)]

def thread_with(ns, name):
    def make(compute):
        def run():
            own(ns)
            compute()
        return threading.Thread(target=run, name=name)
    return make
"""


def held(policy: str, code: str) -> list[tuple[float, float]]:
    """The times that the two threads held the GIL, each time that `code` showed them."""
    source = COMPUTE + f"gil.install({policy!r})\n" + textwrap.dedent(code)
    shown = run_metered(source)
    for report, *_ in shown:
        assert_balanced(report)
    return [(first, second) for _, first, second in shown]


def alike(first: float, second: float) -> bool:
    return max(first, second) < EQUAL * min(first, second)


@pytest.mark.parametrize("policy", SCHEDULING)
@pytest.mark.slow("needs a quiet machine")
def test_threads_hold_in_the_proportion_of_their_slices(policy: str) -> None:
    code = """
        show(compute_beside(thread_with(SHORT_NS, "short"), thread_with(LONG_NS, "long")))
        show(compute_beside(thread_with(None, "one"), thread_with(None, "other")))
    """
    (short, long), (one, other) = held(policy, code)
    assert 0 < UNEQUAL * short < long
    assert alike(one, other)


def test_under_interval_it_has_no_effect() -> None:
    code = """
        show(compute_beside(thread_with(SHORT_NS, "short"), thread_with(LONG_NS, "long")))
    """
    ((short, long),) = held("interval", code)
    assert alike(short, long)


def test_a_thread_inherits_what_its_starter_had_and_one_that_gave_it_back_leaves_nothing() -> None:
    code = """
        class Inheriting(threading.Thread):
            '''Never sets its own; is started with what its starter has at that moment.'''
            def __init__(self, ns, name, compute):
                super().__init__(name=name, target=compute)
                self.ns = ns
            def start(self):
                own(self.ns)
                super().start()
                own(None)
        def heir(ns, name): return lambda compute: Inheriting(ns, name, compute)
        show(compute_beside(heir(SHORT_NS, "short"), heir(LONG_NS, "long")))
        show(compute_beside(heir(None, "one"), heir(None, "other")))
    """
    (short, long), (one, other) = held("deadline", code)
    assert 0 < UNEQUAL * short < long
    assert alike(one, other)


def test_starts_that_fail_or_come_in_hundreds_leave_room_for_the_next() -> None:
    """Also daemon threads, which CPython up to 3.13.7 unwinds when it ends."""
    code = """
        import resource
        own(LONG_NS)
        limits = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (1 << 36, limits[1]))
        threading.stack_size(1 << 40)
        failed = 0
        for _ in range(600):
            try: threading.Thread(target=print).start()
            except RuntimeError: failed += 1
        assert failed == 600
        threading.stack_size(0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        seen = []
        crowd = [threading.Thread(target=seen.append, args=(number,)) for number in range(600)]
        [thread.start() for thread in crowd]
        [thread.join() for thread in crowd]
        assert sorted(seen) == list(range(600))
        def compute_for_ever():
            while True: sum(range(50))
        plain = lambda compute: threading.Thread(target=compute, name="inherits")
        show(compute_beside(plain, thread_with(SHORT_NS, "short")))
        for _ in range(4): threading.Thread(target=compute_for_ever, daemon=True).start()
    """
    ((inherits, short),) = held("priority", code)
    assert 0 < UNEQUAL * short < inherits


def test_it_takes_nanoseconds_or_none_and_nothing_before_the_install() -> None:
    code = """
        from headway import _native
        own = _native.gil_set_switch_interval
        own(5)
        own(None)
        for bad, error in ((-1, OverflowError), ("1", TypeError), (0.5, TypeError)):
            try: own(bad)
            except error as problem: show(str(problem))
            else: raise AssertionError(bad)
    """
    assert len(run_metered(code)) == 3
