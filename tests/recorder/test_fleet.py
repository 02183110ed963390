"""The configurations of docs/fleet.md at work: one Prometheus scrapes the recorders of two hosts,
and one OpenTelemetry Collector takes what they push."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from ports import free_ports
from prometheus import ROOT, Prometheus
from recorded import Recorded
from secured import make_certificate
from ticks import send, tick

pytestmark = pytest.mark.slow("starts Prometheus, or a Collector")

TOKEN = "a-token-of-some-length"
HOSTS = ("alpha", "beta")
COLLECTOR = ROOT / ".venvs/collector/otelcol"
TIMEOUT_S = 60


def report(recorder: Recorded, host: str, processes: int) -> None:
    """Ticks of that many processes of a host."""
    identity = {"process_started_stamp": time.time() - 50, "telemetry_interval": 30.0}
    ticks = [tick(n, 1, time.time(), hostname=host, **identity) for n in range(processes)]
    send(recorder.socket, *ticks)


def test_one_prometheus_scrapes_the_recorders_of_two_hosts(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    token = tmp_path / "token"
    token.write_text(TOKEN)
    config = (ROOT / "examples/prometheus-fleet.yml").read_text()
    for written, here in (
        ("scrape_interval: 15s", "scrape_interval: 1s"),
        ("/etc/prometheus/headway-token", str(token)),
        # Both recorders have the same certificate here, and the address is not its name.
        (
            "ca_file: /etc/prometheus/headway-ca.pem",
            f"{{ca_file: {made.certificate}, server_name: localhost}}",
        ),
        ("rule_files: [headway-alerts.yml]", f"rule_files: [{ROOT}/examples/headway-alerts.yml]"),
    ):
        assert written in config
        config = config.replace(written, here)
    recorders = []
    try:
        for number, host in enumerate(HOSTS, start=1):
            folder = tmp_path / host
            folder.mkdir()
            options = ("--http", "0.0.0.0:0", "--token-file", str(token))
            files = ("--tls-certificate", str(made.certificate), "--tls-key", str(made.key))
            recorder = Recorded(folder, *options, *files)
            recorders.append(recorder)
            port = recorder.url.rpartition(":")[2]
            assert f"{host}.example:8888" in config
            config = config.replace(f"{host}.example:8888", f"127.0.0.1:{port}")
            report(recorder, host, number)
        with Prometheus(tmp_path, config) as prometheus:
            for number, host in enumerate(HOSTS, start=1):
                assert prometheus.wait_for(f'headway_processes{{host="{host}"}}', number)
            prometheus.wait_for("count(up == 1)", 2)
    finally:
        for recorder in recorders:
            assert recorder.stop() == 0


def test_one_collector_joins_the_recorders_of_two_hosts(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="tests/requirements-otlp.txt is not installed")
    if not COLLECTOR.exists():
        pytest.skip("there is no OpenTelemetry Collector: scripts/otel-collector")
    taken, shown = free_ports(2)
    config = (ROOT / "examples/otel-collector.yml").read_text()
    for written, here in (
        ("0.0.0.0:4318", f"127.0.0.1:{taken}"),
        ("0.0.0.0:9464", f"127.0.0.1:{shown}"),
        # Its own metrics would have a fixed port.
        ("\nservice:\n", "\nservice:\n  telemetry: {metrics: {level: none}}\n"),
    ):
        assert written in config
        config = config.replace(written, here)
    file, log = tmp_path / "collector.yml", tmp_path / "collector.log"
    file.write_text(config)
    recorders = []
    with log.open("w") as stream:
        collector = subprocess.Popen([COLLECTOR, f"--config=file:{file}"], stderr=stream)
    try:
        for number, host in enumerate(HOSTS, start=1):
            folder = tmp_path / host
            folder.mkdir()
            options = ("--otlp", f"http://127.0.0.1:{taken}", "--otlp-interval", "1")
            recorder = Recorded(folder, *options)
            recorders.append(recorder)
            report(recorder, host, number)
        end = time.monotonic() + TIMEOUT_S
        while processes_by_host(shown) != {"alpha": 1, "beta": 2}:
            assert collector.poll() is None, log.read_text()
            assert time.monotonic() < end, f"{processes_by_host(shown)}\n{log.read_text()}"
            time.sleep(0.1)
    finally:
        for recorder in recorders:
            assert recorder.stop() == 0
        collector.terminate()
        try:
            collector.wait(TIMEOUT_S)
        finally:
            collector.kill()
            collector.wait()
    assert collector.returncode == 0, log.read_text()


def processes_by_host(port: int) -> dict[str, int]:
    """`headway_processes` as the Collector shows it; empty while it does not answer."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except URLError:
        return {}
    found = re.findall(r'^headway_processes\{.*host="(\w+)".*\} (\d+)$', text, re.MULTILINE)
    return {host: int(count) for host, count in found}
