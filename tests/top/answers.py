"""Answers of the recorder's API, as the tests of `headway top` need them: small, with every string
hostile that may come from the wire."""

from __future__ import annotations

from typing import Any

# Clears the screen, is markup in Rich and in HTML, turns the text around, ends a line.
EVIL = "\x1b[2J[bold]evil[/bold]</script>\u202e\r\n\x00"
NOW_S = 1_795_000_000.0


def quantiles(middle_s: float) -> dict[str, Any]:
    factors = {"mean": 1, "min": 0.5, "p50": 1, "p90": 1.5, "p95": 2, "p99": 3, "max": 5}
    return {"count": 100, **{name: middle_s * factor for name, factor in factors.items()}}


def summary(rps: float = 100.0, **changes: Any) -> dict[str, Any]:
    return {
        "period": 10.0,
        "processes": 2.0,
        "requests": round(10 * rps),
        "rps": rps,
        "rpm": 60 * rps,
        "errors_5xx": 1,
        "errors_4xx": 2,
        "failed": 0,
        "response": quantiles(0.010),
        "application": quantiles(0.008),
        "gil_wait": quantiles(0.004),
        "gil": {"held": 0.9, "handoff": 0.06, "idle": 0.04, "takes": 1000.0},
        "cpu": 1.86,
        "cpu_per_process": 0.93,
        "rss": 64 * 1024 * 1024,
        "rss_per_process": 32 * 1024 * 1024,
        "busy": 0.8,
        "threads": 10,
        "input_bytes": 0.0,
        "output_bytes": 2048.0,
        "throttled": 0.0,
        "gc": None,
        "exact": True,
        **changes,
    }


def measured(**changes: Any) -> dict[str, Any]:
    verdict = {
        "name": "gil-bound",
        "severity": "warning",
        "title": "GIL-bound",
        "text": "Threads wait for each other.",
        "evidence": [{"text": "GIL held", "value": 0.9, "unit": "share", "limit": 0.8}],
        "advice": [{"try": "more processes", "expect": "twice the throughput"}],
        "sample": {"seconds": 10.0, "requests": 1000},
    }
    config = {
        "processes": 2,
        "threads": 5,
        "switch_interval": 0.005,
        "policy": "interval",
        "gil_mode": "enabled",
        "python": "3.13.0",
        "server": "headway 0.1.0",
    }
    return {"summary": summary(**changes), "config": config, "verdict": verdict}


def now(group: str = "site") -> dict[str, Any]:
    return {
        "time": NOW_S,
        "recorder": {"received": 10, "malformed": 0},
        "total": measured(rps=200.0),
        "groups": [{"host": "web1", "group": group, **measured(rps=200.0)}],
        "processes": [
            {
                "host": "web1",
                "pid": pid,
                "started": NOW_S - 60,
                "group": group,
                "kind": "serve",
                "alive": True,
                "last_seen": NOW_S,
                **measured(rps=rps),
            }
            for pid, rps in ((9, 80.0), (10, 120.0))
        ],
    }
