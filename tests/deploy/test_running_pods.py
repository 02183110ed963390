"""The pods of the manifests at work: their own commands, under their users, on volumes with the
permissions that a kubelet gives them; and the scrape configuration, with the labels that
Prometheus gets from a cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode

import prometheus
import pytest
from command_lines import TOKEN
from containers import Running, need_namespaces
from kubelet import Node, RunningPod, answer
from layouts import DEPLOY, ROOT, Container, Mount, documents, pods

pytestmark = pytest.mark.slow("starts servers and recorders in namespaces")

PAGES = ROOT / "tests/apps/telemetry_pages.py"
SIDECAR = pods(DEPLOY / "kubernetes/sidecar.yml")["shop"]
ON_NODE = pods(DEPLOY / "kubernetes/daemonset.yml")
HTTP, SITE = 8000, 8888
REQUESTS = 20


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    need_namespaces()
    with ExitStack() as stack:
        yield Node(tmp_path, stack)


def metrics(recorder: RunningPod, name: str) -> dict[tuple[str, str], float]:
    """The samples of a metric, by host and group."""
    text = recorder.get(SITE, "/metrics")[1].decode()
    found = re.findall(rf'^{name}\{{host="([^"]*)",group="([^"]*)"\}} (\S+)$', text, re.MULTILINE)
    return {(host, group): float(value) for host, group, value in found}


def lifecycle_events(recorder: RunningPod) -> list[dict[str, Any]]:
    """The events of the last ten minutes."""
    answered = recorder.get(SITE, "/api/v1/lifecycle?from=-600")[1]
    events: list[dict[str, Any]] = json.loads(answered)["events"]
    return events


def test_a_sidecar_records_its_pod_from_the_first_request_to_the_end(node: Node) -> None:
    pod = node.run(SIDECAR, "shop-1", {"/srv/shop/shop.py": PAGES})
    server, recorder = pod.containers["shop"], pod.containers["recorder"]
    for container in ("shop", "recorder"):
        pod.wait_for(container, "livenessProbe")
    for _ in range(REQUESTS):
        assert pod.get(HTTP, "/deadline")[0] == 200
    # The probe of readiness has asked too.
    server.wait_until(lambda: sum(metrics(pod, "headway_requests_total").values()) >= REQUESTS + 1)
    assert list(metrics(pod, "headway_processes").items()) == [(("shop-1", "shop"), 1.0)]
    for container in (server, recorder):
        assert container.resident_mib() < container.container.memory_limit_mib / 2
    server_end = server.end(SIDECAR.grace_period_s)
    # The recorder, which ends last, hears of the end.
    recorder.wait_until(lambda: any("shutdown_reason" in event for event in lifecycle_events(pod)))
    assert (server_end, pod.end()) == (0, {"shop": 0, "recorder": 0}), server.log


def test_the_site_of_a_recorder_needs_the_token(node: Node) -> None:
    pod = node.run(ON_NODE["headway-recorder"], "recorder-1", {})
    pod.wait_for("recorder", "livenessProbe")
    url = f"http://{pod.network.address}:{SITE}/metrics"
    assert pod.network.call(lambda: answer(url, token="another-one-of-its-length"))[0] == 401
    assert pod.network.call(lambda: answer(url))[0] == 200
    # `kubectl port-forward` reaches the pod's own loopback.
    local = f"http://localhost:{SITE}/metrics"
    assert pod.network.call(lambda: answer(local))[0] == 200


def test_a_recorder_of_a_node_hears_the_programs_of_all_pods(node: Node) -> None:
    """Two pods whose processes have the same users and, as they see it, the same ids; and the
    recorder is killed and starts anew, as when a node has no memory left."""
    recorder = node.run(ON_NODE["headway-recorder"], "recorder-1", {})
    recorder.wait_for("recorder", "livenessProbe")
    programs = [
        node.run(ON_NODE["reports"], f"reports-{number}", {"/srv/shop/reports.py": PAGES})
        for number in (1, 2)
    ]
    for program in programs:
        for _ in range(REQUESTS):
            assert program.get(HTTP, "/deadline")[0] == 200
    hosts = {(f"reports-{number}", "reports") for number in (1, 2)}
    recorder.containers["recorder"].wait_until(
        # gunicorn's own process, and its worker.
        lambda: metrics(recorder, "headway_processes") == dict.fromkeys(hosts, 2.0)
    )
    assert metrics(recorder, "headway_gil_takes_total").keys() == hosts
    recorder.containers["recorder"].kill()
    again = node.run(ON_NODE["headway-recorder"], "recorder-2", {})
    again.wait_for("recorder", "livenessProbe")
    again.containers["recorder"].wait_until(
        lambda: metrics(again, "headway_processes") == dict.fromkeys(hosts, 2.0)
    )
    for program in programs:
        assert program.end() == {"reports": 0}, program.containers["reports"].log
    assert again.end() == {"recorder": 0}


def test_prometheus_keeps_the_recorders_of_a_cluster(node: Node, tmp_path: Path) -> None:
    """There is no API server here, so the targets are given with the labels that the discovery of
    pods documents."""
    recorder = node.run(ON_NODE["headway-recorder"], "recorder-1", {})
    recorder.wait_for("recorder", "livenessProbe")
    (config,) = documents(DEPLOY / "kubernetes/prometheus.yml")
    (job,) = config["scrape_configs"]
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    address = recorder.network.address
    job["static_configs"] = [
        {
            "targets": [f"{address}:{port}"],
            "labels": {
                "__meta_kubernetes_pod_container_port_name": name,
                "__meta_kubernetes_pod_phase": phase,
                "__meta_kubernetes_namespace": "default",
                "__meta_kubernetes_pod_node_name": "node-1",
            },
        }
        for port, name, phase in (
            (SITE, "headway", "Running"),
            (HTTP, "http", "Running"),
            (SITE + 1, "headway", "Succeeded"),
        )
    ]
    config["global"]["scrape_interval"] = "1s"
    del config["rule_files"]
    # YAML reads JSON.
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    (tmp_path / "token").write_text(TOKEN)
    server = Container(
        name="prometheus",
        image="",
        command=(
            prometheus.program("prometheus"),
            "--config.file=/etc/prometheus/prometheus.yml",
            "--storage.tsdb.path=/tmp/prometheus",
        ),
        variables={},
        ports=(9090,),
        mounts=(
            Mount("prometheus.yml", "/etc/prometheus/prometheus.yml", True),
            Mount("token", job["authorization"]["credentials_file"], True),
        ),
        uid=65534,
        gid=65534,
    )
    sources = {name: tmp_path / name for name in ("prometheus.yml", "token")}
    running = Running(server, tmp_path, recorder.network, sources, host_name="prometheus")
    try:
        running.wait_until(lambda: kept(recorder) == {f"{address}:{SITE}": "1"})
        (found,) = result_of(recorder, 'up{namespace="default",node="node-1"}')
        assert found["metric"]["job"] == "headway"
        running.wait_until(lambda: bool(result_of(recorder, "headway_recorder_store_up")))
        assert running.end(30) == 0
    finally:
        running.kill()


def kept(pod: RunningPod) -> dict[str, str]:
    """The targets of Prometheus, and whether each is up."""
    return {each["metric"]["instance"]: each["value"][1] for each in result_of(pod, "up")}


def result_of(pod: RunningPod, expression: str) -> list[Any]:
    """The series that Prometheus has; none while it does not answer, or is not ready."""
    try:
        status, body = pod.get(9090, f"/api/v1/query?{urlencode({'query': expression})}")
    except URLError:
        return []
    if status == 503:
        return []
    found: list[Any] = json.loads(body)["data"]["result"]
    return found
