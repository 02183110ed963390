"""Who sends, told apart by what mod_wsgi's and Headway's datagrams say; and what got lost."""

from __future__ import annotations

from typing import Any

import pytest

from headway.telemetry import senders
from headway.telemetry.senders import Refused, Sender, Senders

NOW = 1_700_000_000.0
TICK, SLOW, STARTED, STOPPED = 2, 4, 5, 7


class Heard:
    """Datagrams as they come in."""

    def __init__(self) -> None:
        self.senders = Senders("here")
        self.now = NOW

    def __call__(
        self, sequence: int, kind: int = TICK, pid: int = 7, origin: str = "", **fields: Any
    ) -> Sender:
        if kind in (TICK, STARTED):
            fields = {"hostname": "alpha", **fields}
        stamp = fields.pop("stamp", self.now)
        return self.senders.identify(origin, kind, pid, sequence, stamp, fields, self.now)[0]


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
    there = heard(1, hostname="beta", origin="beta")
    assert here is not there
    # mod_wsgi's slow requests say no host.
    assert heard(2, SLOW, origin="beta") is there
    assert heard(2, SLOW) is here
    assert heard(1, SLOW, origin="gamma").host == "gamma"
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
    sender, time = heard.senders.identify("", TICK, 7, 1, stamp, {}, NOW)
    assert time == (stamp if is_believed else NOW)
    assert heard.senders.clocks_off == (not is_believed)
    assert sender.clock_is_off == (not is_believed)


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


def test_what_the_forgotten_lost_stays_counted(heard: Heard) -> None:
    heard(1)
    heard(5, ticks_unsent=2, records_lost=4)
    heard.now += senders.FORGOTTEN_AFTER_S + 1
    heard.senders.forget_silent(heard.now)
    assert (heard.senders.lost, heard.senders.unsent, heard.senders.records_lost) == (3, 2, 4)


def test_strings_are_bounded(heard: Heard) -> None:
    sender = heard(1, hostname="x" * 9000, process_group="y" * 9000, policy="z" * 9000)
    assert len(sender.host) == len(sender.group) == senders.MAX_NAME
    assert len(sender.identity["policy"]) == senders.MAX_TEXT


def test_fields_of_a_wrong_type_are_no_identity(heard: Heard) -> None:
    sender = heard(1, process_group=5, ticks_unsent="many", process_started_stamp="x")
    assert (sender.group, sender.unsent, sender.started) == ("", 0, 0.0)


def test_forgetting_many_takes_no_look_at_all_others_for_each(heard: Heard) -> None:
    class Counted(dict[tuple[str, int], Sender]):
        looks = 0

        def items(self) -> Any:
            self.looks += len(self)
            return super().items()

    heard.senders._by_pid = by_pid = Counted()
    for pid in range(100):
        heard(1, pid=pid)
        heard(2, SLOW, pid=pid, origin="relay")
    heard.now += senders.FORGOTTEN_AFTER_S + 1
    heard.senders.forget_silent(heard.now)
    assert len(heard.senders) == len(by_pid) == 0
    assert by_pid.looks <= 200
