"""The configuration of docs/fleet.md at work: one Prometheus scrapes the recorders of two hosts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from prometheus import ROOT, Prometheus
from recorded import Recorded
from secured import make_certificate
from ticks import send, tick

pytestmark = pytest.mark.slow("starts Prometheus")

TOKEN = "a-token-of-some-length"
HOSTS = ("alpha", "beta")


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
            identity = {"process_started_stamp": time.time() - 50, "telemetry_interval": 30.0}
            ticks = [tick(n, 1, time.time(), hostname=host, **identity) for n in range(number)]
            send(recorder.socket, *ticks)
        with Prometheus(tmp_path, config) as prometheus:
            for number, host in enumerate(HOSTS, start=1):
                assert prometheus.wait_for(f'headway_processes{{host="{host}"}}', number)
            prometheus.wait_for("count(up == 1)", 2)
    finally:
        for recorder in recorders:
            assert recorder.stop() == 0
