"""Datagrams that a real mod_wsgi 6.1.1 has sent are read as its own viewer reads them, and kept."""

import struct
from pathlib import Path

import pytest

from headway import _native

DATAGRAMS = sorted((Path(__file__).parent / "datagrams").glob("*.bin"))
KINDS = {
    "tick": 2,
    "slow_request": 4,
    "process_started": 5,
    "process_stopping": 6,
    "process_stopped": 7,
    "gc_snapshot": 8,
    "gc_event": 9,
}


def name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", DATAGRAMS, ids=name)
def test_all_fields_are_known_by_name(path: Path) -> None:
    kind, pid, _, stamp, fields = _native.telemetry_parse(path.read_bytes())
    assert kind == KINDS[path.stem.split("-")[0]]
    assert pid > 0
    assert stamp > 1.7e9
    assert [field for field in fields if field.startswith("id")] == []


@pytest.mark.parametrize("path", DATAGRAMS, ids=name)
def test_every_cut_is_refused_or_whole(path: Path) -> None:
    datagram = path.read_bytes()
    whole = _native.telemetry_parse(datagram)[4]
    for end in range(len(datagram)):
        try:
            fields = _native.telemetry_parse(datagram[:end])[4]
        except ValueError:
            continue
        assert {field: whole[field] for field in fields} == fields


@pytest.mark.parametrize("path", [path for path in DATAGRAMS if "tick" in path.stem], ids=name)
def test_the_record_of_a_tick_says_what_the_tick_said(path: Path) -> None:
    datagram = path.read_bytes()
    fields = _native.telemetry_parse(datagram)[4]
    kept = _native.telemetry_read(_native.telemetry_record(datagram))
    period, requests = fields["sample_period"], fields["request_count"]
    assert kept["request_count"] == requests
    assert kept["process_seconds"] == pytest.approx(period)
    cpu = kept["cpu_user_seconds"] + kept["cpu_system_seconds"]
    assert cpu == pytest.approx(fields["cpu_utilization"] * period, abs=1e-6)
    assert kept["rss_byte_seconds"] == pytest.approx(fields["memory_rss"] * period)
    busy = fields["capacity_utilization"] * fields["request_threads_maximum"] * period
    assert kept["busy_seconds"] == pytest.approx(busy, abs=1e-6)
    assert len(kept["slots"]) == len(fields["request_threads_busy_time"])
    for phase in ("server", "queue", "application", "request", "gil_wait", "output_write"):
        counted = sum(fields.get(f"{phase}_time_buckets", []))
        if counted == 0:
            assert f"{phase}_time_histogram" not in kept
            continue
        histogram = kept[f"{phase}_time_histogram"]
        assert histogram["count"] == counted == requests
        assert histogram["sum"] == pytest.approx(fields[f"{phase}_time"] * requests, abs=1e-6)
        assert histogram["max"] == pytest.approx(fields[f"{phase}_time_max"], abs=1e-8)
        assert histogram["min"] == pytest.approx(fields[f"{phase}_time_min"], abs=1e-8)
    assert kept["coarse_ticks"] == (1 if requests else 0)


def test_a_loaded_tick_shows_seed_000s_waits() -> None:
    path = Path(__file__).parent / "datagrams" / "tick-loaded-1.bin"
    kept = _native.telemetry_read(_native.telemetry_record(path.read_bytes()))
    assert kept["switch_interval"] == 0.005
    assert kept["gil_wait_time_histogram"]["p95"] > 0.005


def test_there_are_datagrams_of_every_kind() -> None:
    kinds = {_native.telemetry_parse(path.read_bytes())[0] for path in DATAGRAMS}
    assert kinds == set(KINDS.values())


def test_all_lengths_of_headers_are_little_endian() -> None:
    datagram = DATAGRAMS[0].read_bytes()
    pid, seq = struct.unpack_from("<II", datagram, 8)
    assert _native.telemetry_parse(datagram)[1:3] == (pid, seq)
