"""Telemetry's datagrams and records, through the functions that the recorder uses."""

import struct

import pytest

from headway import _native
from headway.recorder.receive.senders import IDENTITY

TICK = {
    "hostname": "host",
    "process_group": "shop",
    "sample_period": 2.0,
    "switch_interval": 0.005,
    "request_count": 3,
    "request_threads_maximum": 4,
    "capacity_utilization": 0.5,
    "memory_rss": 1000,
    "gil_wait_time_histogram": [(0.005, 2), (0.020, 1)],
    "request_threads_busy_time": [1.0, 0.25],
    "gils": [{"gil_name": "main", "gil_held": 1.5, "gil_interpreter": 0}],
}


def tick(**changes: object) -> bytes:
    return _native.telemetry_encode(2, 42, 7, 1000.5, {**TICK, **changes})


def test_what_is_encoded_is_parsed() -> None:
    kind, pid, seq, stamp, fields = _native.telemetry_parse(tick())
    assert (kind, pid, seq, stamp) == (2, 42, 7, 1000.5)
    wait = fields.pop("gil_wait_time_histogram")
    assert fields == {k: v for k, v in TICK.items() if k != "gil_wait_time_histogram"}
    assert wait["count"] == 3
    assert wait["sum"] == pytest.approx(0.030)
    assert (wait["min"], wait["max"], wait["p999"]) == (0.005, 0.020, 0.020)
    assert 0.005 <= wait["p50"] <= 0.005 * 1.0626
    assert [count for _, count in wait["buckets"]] == [2, 1]


def test_a_field_without_a_name_is_kept_when_parsed() -> None:
    datagram = tick() + struct.pack("<HBQ", 4999, 1, 5)
    assert _native.telemetry_parse(datagram)[4]["id4999"] == 5
    assert "id4999" not in _native.telemetry_read(_native.telemetry_record(datagram))


def test_records_add_up() -> None:
    records = [
        _native.telemetry_record(tick()),
        _native.telemetry_record(tick(switch_interval=0.002, sample_period=1.0)),
    ]
    total = _native.telemetry_read(_native.telemetry_merge(records))
    assert total["request_count"] == 6
    assert total["switch_interval"] == [0.005, 0.002]
    assert total["process_group"] == "shop"
    assert total["process_seconds"] == 3.0
    assert total["busy_seconds"] == 0.5 * 4 * 3.0
    assert total["rss_byte_seconds"] == 3000.0
    assert total["gil_wait_time_histogram"]["count"] == 6
    assert total["gils"] == [{"gil_name": "main", "gil_held": 3.0}]
    assert total["slots"][0]["busy"] == 2.0


def test_the_sum_of_nothing_is_empty() -> None:
    assert _native.telemetry_read(_native.telemetry_merge([])) == {}


@pytest.mark.parametrize(
    ("datagram", "what"),
    [
        (b"", "less than a header"),
        (b"JUNK" + bytes(20), 'does not begin with "WSGI"'),
        (tick()[:-1], "are announced"),
        (tick() + bytes(70_000), "65536 are allowed"),
    ],
)
def test_malformed_datagrams_are_refused_in_one_line(datagram: bytes, what: str) -> None:
    for read in (_native.telemetry_parse, _native.telemetry_record):
        with pytest.raises(ValueError, match=what) as raised:
            read(datagram)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("record", [b"", b"\x02", b"\x01\xff", b"\x01\x14\xff"])
def test_damaged_records_are_refused(record: bytes) -> None:
    with pytest.raises(ValueError, match=r"record|number|end"):
        _native.telemetry_merge([record])
    with pytest.raises(ValueError, match=r"record|number|end"):
        _native.telemetry_read(record)


@pytest.mark.parametrize(
    "fields",
    [
        {"no_such_field": 1},
        {"request_count": -1},
        {"request_count": "1"},
        {"hostname": b"host"},
        {"gils": [1]},
        {"gils": [{"gils": []}] * 2 + [{"threads": [{}]}]},
        {"gil_wait_time_histogram": [1]},
        {"slots": []},
        {1: 2},
    ],
)
def test_what_cannot_be_encoded_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, OverflowError)):
        _native.telemetry_encode(2, 1, 1, 0.0, fields)


def test_a_tick_is_received_with_all_that_describes_its_sender() -> None:
    read_each_tick = ("hostname", "process_group", "reported_by_supervisor", "sample_period")
    counted = ("process_started_stamp", "ticks_unsent", "records_lost")
    names = {*IDENTITY, *read_each_tick, *counted}
    texts = {name for name in names if name.endswith(("_version", "name", "_group", "_kind"))}
    texts |= {"gil_mode", "policy"}
    sent = {name: "x" if name in texts else 1 for name in names}
    datagram = _native.telemetry_encode(2, 42, 7, 1000.5, {**sent, "request_count": 3})
    assert _native.telemetry_receive(datagram)[4] == sent
