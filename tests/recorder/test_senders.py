"""Senders, identified by the fields of mod_wsgi's and Headway's datagrams; and lost datagrams."""

from __future__ import annotations

from typing import Any

import pytest

from headway.recorder.receive import senders
from headway.recorder.receive.senders import Refused, Senders, source_of
from headway.recorder.records.sender import Sender, Source

NOW = 1_700_000_000.0
TICK, SLOW, STARTED, STOPPED = 2, 4, 5, 7


class Heard:
    """Datagrams as they come in."""

    def __init__(self) -> None:
        self.senders = Senders("here")
        self.now = NOW

    def __call__(
        self,
        sequence: int,
        kind: int = TICK,
        pid: int = 7,
        source: Source | None = None,
        **fields: Any,
    ) -> Sender:
        if kind in (TICK, STARTED):
            fields = {"hostname": "alpha", **fields}
        stamp = fields.pop("stamp", self.now)
        return self.senders.identify(kind, pid, sequence, stamp, fields, self.now, source)[0]


@pytest.fixture
def heard() -> Heard:
    return Heard()


def test_all_kinds_share_one_counter(heard: Heard) -> None:
    sender = heard(1)
    assert heard(2, SLOW) is sender
    assert heard(3) is sender
    assert sender.lost == 0
    heard(7)
    assert sender.lost == heard.senders.lost == 3


def test_datagrams_that_overtake_each_other_are_not_lost(heard: Heard) -> None:
    sender = heard(10)
    for sequence in (12, 11, 14, 13, 15):
        assert heard(sequence) is sender
    assert sender.lost == 0


def test_a_counter_that_begins_anew_is_another_process(heard: Heard) -> None:
    first = heard(500)
    assert heard(501) is first
    second = heard(1)
    assert second is not first
    assert second.lost == 0
    assert heard(2) is second


def test_a_start_is_another_process(heard: Heard) -> None:
    first = heard(40)
    second = heard(1, STARTED)
    assert second is not first
    assert second.started == NOW
    assert heard(2) is second


def test_a_start_that_its_first_tick_overtook_is_none(heard: Heard) -> None:
    first = heard(2)
    assert heard(1, STARTED) is first


def test_a_process_says_when_it_was_started(heard: Heard) -> None:
    first = heard(1, process_started_stamp=NOW - 50)
    assert heard(9, process_started_stamp=NOW - 50) is first
    assert heard(10, process_started_stamp=NOW - 3) is not first


def test_the_supervisor_reports_for_the_dead(heard: Heard) -> None:
    worker = heard(300, process_started_stamp=NOW - 50)
    assert heard(2, STOPPED, reported_by_supervisor=1, process_started_stamp=NOW - 50) is worker
    assert worker.ended
    assert (worker.lost, worker.sequence) == (0, 300)
    after = heard(1, process_started_stamp=NOW + 1)
    assert after is not worker
    assert not after.ended


def test_hosts_are_told_apart(heard: Heard) -> None:
    here = heard(1)
    # mod_wsgi's slow requests name no host: they belong to the latest process of that pid.
    assert heard(2, SLOW) is here
    there = heard(1, hostname="beta")
    assert here is not there
    assert heard(2, SLOW) is there
    assert heard(1, SLOW, pid=99).host == "here"


@pytest.mark.parametrize(
    ("stamp", "is_believed"),
    [
        (NOW - 3600, True),
        (NOW - 86_000, True),
        (NOW - 90_000, False),
        (NOW + 3, True),
        (NOW + 3600, False),
        (0.0, False),
        (1e300, False),
        (-1e300, False),
    ],
)
def test_clocks_that_are_off(heard: Heard, stamp: float, is_believed: bool) -> None:
    _, time = heard.senders.identify(TICK, 7, 1, stamp, {}, NOW)
    assert time == (stamp if is_believed else NOW)
    assert heard.senders.clocks_off == (not is_believed)


def test_nobody_has_that_many_processes(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "MAX_SENDERS", 100)
    for pid in range(100):
        heard(1, pid=pid)
    with pytest.raises(Refused):
        heard(1, pid=100)
    assert heard(2, pid=5).sequence == 2
    heard.now += senders.FORGOTTEN_AFTER_S + 1
    heard.senders.forget_silent(heard.now)
    assert len(heard.senders) == 0
    assert heard(1, pid=100).pid == 100


MINE = Source(uid=33, pid=500)
OTHER = Source(uid=33, pid=501)


@pytest.mark.parametrize("what", ["processes", "hosts", "groups"])
def test_one_process_does_not_name_any_number(heard: Heard, what: str) -> None:
    bound = getattr(MINE.bounds, what)

    def name(number: int, source: Source) -> Sender:
        if what == "processes":
            return heard(1, pid=number, source=source)
        if what == "hosts":
            return heard(1, hostname=f"host {number}", source=source)
        return heard(number, process_group=f"group {number}", source=source)

    for number in range(1, bound + 1):
        name(number, MINE)
    with pytest.raises(Refused, match=rf"^{what} of a sender$"):
        name(bound + 1, MINE)
    # A name that is already known is still accepted, and so is one of another sender.
    name(bound, MINE)
    name(bound + 1, OTHER)


def test_a_supervisor_reports_for_all_that_died(heard: Heard) -> None:
    supervisor = Source(uid=33, pid=1000)
    workers = {pid: heard(1, pid=pid, source=Source(33, pid)) for pid in range(2000, 2500)}
    for sequence, (pid, worker) in enumerate(workers.items()):
        assert heard(sequence, STOPPED, pid, source=supervisor, reported_by_supervisor=1) is worker
        assert worker.ended
    # Of some it says the first and only word; those that ended give way.
    for pid in range(3000, 3200):
        assert heard(pid, STOPPED, pid, source=supervisor, reported_by_supervisor=1).ended
    assert len(heard.senders) == 500 + supervisor.bounds.processes


def test_new_processes_of_one_sender_in_a_minute(heard: Heard) -> None:
    def name_until_refused() -> int:
        for number in range(10_000):
            try:
                heard(1, STOPPED, number, source=MINE, stamp=heard.now, reported_by_supervisor=1)
            except Refused:
                return number
        raise AssertionError("it was never refused")

    assert name_until_refused() == MINE.bounds.new_per_minute
    heard.now += senders.FORGOTTEN_AFTER_S + 1
    heard.senders.forget_silent(heard.now)
    assert name_until_refused() == MINE.bounds.new_per_minute


def test_a_user_has_a_bound(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "MAX_SENDERS_OF_USER", 10)
    for pid in range(1, 11):
        heard(1, pid=pid, source=Source(33, pid))
    with pytest.raises(Refused, match=r"^processes of a user$"):
        heard(1, pid=11, source=Source(33, 11))
    heard(1, pid=11, source=Source(34, 11))
    heard.now += senders.FORGOTTEN_AFTER_S + 1
    heard.senders.forget_silent(heard.now)
    heard(1, pid=11, source=Source(33, 11))


def test_who_sends_is_what_the_kernel_attests() -> None:
    assert source_of((500, 33), 7) == Source(33, 500)
    first, second = source_of((0, 33), 1), source_of((0, 33), 2)
    assert first == Source(33, 1, is_attested=False)
    assert first != second
    assert source_of((0, 33), 1) != source_of((1, 33), 1)
    assert source_of(None, 7) is None


def test_nobody_ticks_for_a_process_that_is_attested(heard: Heard) -> None:
    sender = heard(1, pid=500, source=MINE)
    sender.pid_confirmed = True
    with pytest.raises(Refused, match=r"^pid of another process$"):
        heard(2, pid=500, source=OTHER, process_started_stamp=NOW)
    assert heard(2, pid=500, source=MINE) is sender
    assert heard(9, STOPPED, pid=500, source=OTHER, reported_by_supervisor=1) is sender
    assert sender.ended


def test_a_sequence_that_nobody_reaches_is_refused(heard: Heard) -> None:
    heard(1)
    with pytest.raises(Refused, match=r"^sequence$"):
        heard(2**32 - 1)
    heard(2)
    assert heard.senders.lost == 0
    # After a long silence many may be missing.
    heard.now += 600
    heard(500_000)
    assert heard.senders.lost == 499_997


def test_counts_of_losses_grow_as_fast_as_a_process_can_lose(heard: Heard) -> None:
    heard(1, ticks_unsent=3, records_lost=2**64 - 1)
    heard(2, ticks_unsent=2**64 - 1)
    assert heard.senders.unsent == 3 + senders.MAX_AT_ONCE
    assert heard.senders.records_lost == senders.MAX_AT_ONCE


def test_ticks_tell_of_no_more_time_than_passed(heard: Heard) -> None:
    # The first has what happened while the recorder was away.
    heard(1, sample_period=50_000.0)
    with pytest.raises(Refused, match=r"^longer intervals"):
        heard(2, sample_period=50_000.0)
    for sequence in range(2, 3_000):
        heard.now += 1
        heard(sequence, sample_period=1.0)
    # A process that was stopped reports a long period.
    heard.now += 10_000
    heard(3_000, sample_period=10_000.0)


def test_datagrams_that_waited_in_the_socket_catch_up(heard: Heard) -> None:
    for sequence in range(1, 2_000):
        stamp = NOW - 2_000 + sequence
        heard(sequence, stamp=stamp, hostname="beta", sample_period=1.0)


def test_what_the_forgotten_lost_stays_counted(heard: Heard) -> None:
    heard(1)
    heard(5, ticks_unsent=2, records_lost=4)
    heard.now += senders.FORGOTTEN_AFTER_S + 1
    heard.senders.forget_silent(heard.now)
    assert (heard.senders.lost, heard.senders.unsent, heard.senders.records_lost) == (3, 2, 4)


def test_strings_are_bounded(heard: Heard) -> None:
    sender = heard(1, hostname="x" * 9000, process_group="y" * 9000, policy="z" * 9000)
    assert len(sender.host) == len(sender.group) == senders.MAX_NAME
    assert len(sender.identity["policy"]) == senders.MAX_NAME


def test_fields_of_a_wrong_type_are_no_identity(heard: Heard) -> None:
    sender = heard(1, process_group=5, ticks_unsent="many", process_started_stamp="x")
    assert (sender.group, sender.unsent, sender.started) == ("", 0, 0.0)


def test_forgetting_many_takes_no_look_at_all_others_for_each(heard: Heard) -> None:
    class Counted(dict[int, Sender]):
        looks = 0

        def items(self) -> Any:
            self.looks += len(self)
            return super().items()

    heard.senders._by_pid = by_pid = Counted()
    for pid in range(100):
        heard(1, pid=pid)
        heard(2, SLOW, pid=pid)
    heard.now += senders.FORGOTTEN_AFTER_S + 1
    heard.senders.forget_silent(heard.now)
    assert len(heard.senders) == len(by_pid) == 0
    assert by_pid.looks <= 200
