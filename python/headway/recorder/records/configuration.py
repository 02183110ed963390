"""The configuration of the processes of a record: CONFIG, and the short name of a configuration.

A record keeps all values of each setting, so that a selection of different processes shows all of
them. Pure.
"""

from __future__ import annotations

from typing import Any

from headway.recorder.records.summary import Record, values
from headway.report import units

Config = dict[str, Any]

# The names in CONFIG and the fields of ticks.
FIELDS = {
    "threads": "request_threads_maximum",
    "switch_interval": "switch_interval",
    "policy": "policy",
    "gil_mode": "gil_mode",
    "python": "python_version",
    "cores": "cpu_cores",
    "cpu_limit": "cgroup_cpu_limit",
    "memory_limit": "cgroup_memory_limit",
}
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
    """CONFIG of these processes. A setting that differs among them is a list, an unknown one is
    None."""
    config: Config = {"processes": max(1, round(processes)) if processes > 0 else 0}
    for name, field in FIELDS.items():
        config[name] = _one_or_all(values(record, field))
    config["server"] = _one_or_all(_servers(record))
    timeouts = {name: _one_or_all(values(record, name)) for name in TIMEOUTS}
    # 0 means that the limit is off.
    config["timeouts"] = {name: value for name, value in timeouts.items() if value}
    return config


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
