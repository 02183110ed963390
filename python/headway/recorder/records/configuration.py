"""The configuration of the processes of a record: CONFIG, and the short name of a configuration.

A record keeps all values of each setting, so that a selection of different processes shows all of
them. Pure.
"""

from __future__ import annotations

from typing import Any, TypedDict

from headway.recorder.records.summary import Record, values
from headway.report import units

Text = str | list[str] | None
Number = float | list[float] | None


class Config(TypedDict):
    """CONFIG. A setting that differs among the processes is a list, an unknown one is None. Times
    are in seconds, memory in bytes. A timeout that is off is left out."""

    processes: int
    threads: Number
    switch_interval: Number
    policy: Text
    gil_mode: Text
    python: Text
    cores: Number
    cpu_limit: Number
    memory_limit: Number
    server: Text
    timeouts: dict[str, Number]


TIMEOUTS = (
    "request_timeout",
    "interrupt_timeout",
    "queue_timeout",
    "graceful_timeout",
    "shutdown_timeout",
    "deadlock_timeout",
    "inactivity_timeout",
    "restart_interval",
    "maximum_requests",
    "startup_timeout",
)


def configure(record: Record, processes: float) -> Config:
    """CONFIG of these processes."""

    def of(field: str) -> Any:
        return _one_or_all(values(record, field))

    timeouts = {name: of(name) for name in TIMEOUTS}
    return {
        "processes": max(1, round(processes)) if processes > 0 else 0,
        "threads": of("request_threads_maximum"),
        "switch_interval": of("switch_interval"),
        "policy": of("policy"),
        "gil_mode": of("gil_mode"),
        "python": of("python_version"),
        "cores": of("cpu_cores"),
        "cpu_limit": of("cgroup_cpu_limit"),
        "memory_limit": of("cgroup_memory_limit"),
        "server": _one_or_all(_servers(record)),
        # 0 means that the limit is off.
        "timeouts": {name: value for name, value in timeouts.items() if value},
    }


def _servers(record: Record) -> list[str]:
    """The servers of the processes, with their versions."""
    # For mod_wsgi's viewer, Headway puts its own name into the field of mod_wsgi's version.
    found = [each for each in values(record, "mod_wsgi_version") if "headway" not in str(each)]
    return [f"headway {each}" for each in values(record, "headway_version")] + [
        f"mod_wsgi {each}" for each in found
    ]


def label(config: Config) -> str:
    """The name of a configuration, in the style of mod_wsgi's author: "2 x 5, 5 ms, priority"."""
    parts = [f"{config['processes']} x {_said(config['threads'])}"]
    if config["gil_mode"] == "disabled":
        parts.append("free-threaded")
    elif config["switch_interval"] is not None:
        intervals = config["switch_interval"]
        every = intervals if isinstance(intervals, list) else [intervals]
        parts.append(" and ".join(units.seconds(each) for each in every))
    if config["policy"] is not None and config["gil_mode"] != "disabled":
        parts.append(_said(config["policy"]))
    return ", ".join(parts)


def setting_of(record: Record) -> str | None:
    """The switch interval and the policy, as "5 ms, priority"; None without a GIL, and unless all
    processes have had the same all the time."""
    found = [values(record, field) for field in ("switch_interval", "policy")]
    if values(record, "gil_mode") == ["disabled"] or any(len(each) != 1 for each in found):
        return None
    ((interval_s,), (policy,)) = found
    return f"{units.seconds(interval_s)}, {policy}"


def _said(value: Any) -> str:
    if value is None:
        return "?"
    if isinstance(value, list):
        return "/".join(_said(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _one_or_all(found: list[Any]) -> Any:
    """The only value, a sorted list of several values, or `None` if there is no value."""
    if len(found) < 2:
        return found[0] if found else None
    return sorted(found)
