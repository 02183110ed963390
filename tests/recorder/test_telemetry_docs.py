"""docs/telemetry.md and docs/recorder.md have what the code has: verdicts, retention, options, and
metrics in examples.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import prometheus

from headway.commands.telemetry import prepare_parser
from headway.recorder.diagnosis.verdict import NAMES
from headway.recorder.metrics.definitions import METRICS
from headway.recorder.store.retention import EVENTS, KEPT

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/telemetry.md").read_text()
RECORDER = (ROOT / "docs/recorder.md").read_text()


def rows(head: str, page: str = PAGE) -> list[str]:
    """The lines of the table that begins with this cell."""
    _, _, rest = page.partition(f"\n| {head} |")
    assert rest, f"the page has no table of {head!r}"
    return rest.partition("\n\n")[0].splitlines()[2:]


def test_every_verdict_has_its_row() -> None:
    assert {row.split("`")[1] for row in rows("verdict")} == set(NAMES)


def test_the_table_of_what_is_kept_is_right() -> None:
    ages = {}
    for label, width_s in (
        ("10 seconds", 10),
        ("a minute", 60),
        ("5 minutes", 300),
        ("an hour", 3600),
    ):
        for column, owner in ((1, "process"), (2, "process_group")):
            (kept,) = [each for each in KEPT if each.table == f"{owner}_{width_s}"]
            ages[label, column] = kept.age_s
    (ticks,) = [each for each in KEPT if each.column == "ticks"]
    ages["every report", 1] = ticks.age_s
    table = {
        cells[0]: cells
        for cells in (row.strip("| ").split(" | ") for row in rows("kept", RECORDER))
    }
    for (label, column), age_s in ages.items():
        said = table[label][column].strip(" |")
        number, unit = said.split(" ")
        assert int(number) * {"hours": 3600, "days": 86_400}[unit] == age_s, label
    for label, kind in (
        ("slow requests and long holds", "slow"),
        ("lifecycle", "lifecycle"),
        ("garbage collections", "gc"),
    ):
        age_s, number_of = EVENTS[kind]
        assert table[label][1].startswith(f"{age_s // 86_400} days, {number_of:,}")


def test_options_that_the_pages_name_exist() -> None:
    parser = argparse.ArgumentParser()
    prepare_parser(parser)
    known = {option for action in parser._actions for option in action.option_strings}
    # Of `headway serve`, `run` and `top`.
    others = {
        "--telemetry",
        "--telemetry-group",
        "--telemetry-interval",
        "--slow-requests",
        "--capture-user-agent",
        "--dashboard",
        "--once",
        "--json",
    }
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE + RECORDER))
    assert named <= known | others
    assert known - named <= {"-h", "--help", "--no-http"}


def expressions() -> list[str]:
    """All that the examples ask Prometheus for; Grafana's variables as they may be."""
    board = json.loads((ROOT / "examples/grafana/headway.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked = [each.replace("$__rate_interval", "1m") for each in asked]
    alerts = (ROOT / "examples/headway-alerts.yml").read_text()
    asked += re.findall(r"expr: (.*)", alerts)
    # `expression`, alone or within a sentence.
    asked += [
        each for each in re.findall(r"`([^`]+)`", PAGE) if re.match(r"(1 -|headway_\w+\{)", each)
    ]
    return asked


def test_the_examples_ask_for_metrics_that_exist() -> None:
    known = set()
    for metric in METRICS:
        suffixes = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        known |= {metric.sample_name + suffix for suffix in suffixes}
    assert len(expressions()) > 30
    for expression in expressions():
        named = set(re.findall(r"\bheadway_\w+", expression))
        assert named, expression
        assert named <= known, expression


def test_prometheus_reads_the_examples(tmp_path: Path) -> None:
    prometheus.check("config", ROOT / "examples/prometheus.yml")
    prometheus.check("config", "--syntax-only", ROOT / "examples/prometheus-fleet.yml")
    prometheus.check("rules", ROOT / "examples/headway-alerts.yml")
    rules = [{"record": f"each:{n}", "expr": each} for n, each in enumerate(expressions())]
    # YAML reads JSON.
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))
    prometheus.check("rules", tmp_path / "rules.yml")
