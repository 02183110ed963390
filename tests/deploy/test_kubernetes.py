"""The manifests of examples/deploy/kubernetes are valid, and their parts fit together and fit
Headway's own command line."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from command_lines import check_recorder, check_server
from layouts import DEPLOY, MANIFESTS, ROOT, Container, Pod, documents, pods

from headway.environment import Request
from headway.options import SocketPath
from headway.server.settings import ProcessGroup

kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="tests/requirements-deploy.txt is not installed"
)

KUBERNETES = DEPLOY / "kubernetes"
# The oldest version that has all that the manifests use, and the newest with a schema.
VERSIONS = ("1.30", kubernetes_validate.latest_version())
OBJECTS = [
    pytest.param(each, id=f"{path.stem}-{each['kind']}-{each['metadata']['name']}")
    for path in MANIFESTS
    for each in documents(path)
    if "kind" in each
]
PODS = {name: pod for path in MANIFESTS for name, pod in pods(path).items()}
RECORDERS = ("shop", "headway-recorder")


def recorder_of(pod: Pod) -> Container:
    return pod.container("recorder")


@pytest.mark.parametrize("document", OBJECTS)
@pytest.mark.parametrize("version", VERSIONS)
def test_each_object_has_what_its_schema_allows(document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_a_mistake_in_an_object_is_found() -> None:
    """Strict validation knows every key."""
    (deployment,) = documents(KUBERNETES / "sidecar.yml")
    wrong = copy.deepcopy(deployment)
    wrong["spec"]["template"]["spec"]["initContainers"][0]["restartPolicies"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError, match="restartPolicies"):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_the_files_have_the_workloads_that_the_page_describes() -> None:
    assert sorted(PODS) == ["headway-recorder", "reports", "shop"]


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_every_mount_is_of_a_volume_and_every_volume_is_mounted(pod: Pod) -> None:
    mounted = {mount.source for each in pod.containers for mount in each.mounts}
    assert mounted == set(pod.volumes)
    for container in pod.containers:
        assert container.has_read_only_root
        assert container.is_unprivileged
        assert ":" in container.image
        assert not container.image.endswith(":latest")


@pytest.mark.parametrize("name", RECORDERS)
def test_the_recorder_takes_its_options(name: str, tmp_path: Path) -> None:
    pod = PODS[name]
    recorder = recorder_of(pod)
    settings = check_recorder(recorder, tmp_path)
    assert settings.http is not None
    assert (settings.http.port,) == recorder.ports
    written = {mount.path for mount in recorder.mounts if not mount.is_read_only}
    assert {str(Path(each).parent) for each in (settings.listen, settings.store)} <= written
    (token,) = [mount for mount in recorder.mounts if mount.source == "token"]
    assert str(Path(recorder.option("token-file")).parent) == token.path
    assert pod.volumes["token"]["secret"] == {"secretName": "headway"}
    # The name of the key is the name of the file.
    assert Path(recorder.option("token-file")).name == "token"


def test_the_server_takes_its_options(tmp_path: Path) -> None:
    pod = PODS["shop"]
    server = pod.container("shop")
    checked = check_server(server, tmp_path)
    assert checked["bind"] == f"0.0.0.0:{server.ports[0]}"
    # At the same path, because each has it in its own options.
    folders = [
        {each.path for each in container.mounts if each.source == "socket"}
        for container in (server, recorder_of(pod))
    ]
    assert folders == [{"/run/headway"}, {"/run/headway"}]
    assert server.option("telemetry") == recorder_of(pod).option("listen")
    probe = server.probes["livenessProbe"]["exec"]["command"]
    assert probe[:2] == ["headway", "status"]
    assert SocketPath().parse(probe[2]) == server.option("status-socket")


def test_the_variable_of_the_program_under_gunicorn_is_what_headway_reads() -> None:
    recorder, program = recorder_of(PODS["headway-recorder"]), PODS["reports"].container("reports")
    request = Request.parse(program.variables["HEADWAY"])
    assert request.policy == "priority"
    assert f"unix:{request.telemetry}" == recorder.option("listen")
    # On the node, where both find it.
    folders = [PODS[name].volumes["socket"]["hostPath"] for name in ("headway-recorder", "reports")]
    assert folders[0] == folders[1]


def test_gunicorn_takes_its_options() -> None:
    config = pytest.importorskip("gunicorn.config")
    command = PODS["reports"].container("reports").command
    assert command[0] == "gunicorn"
    config.Config().parser().parse_args(command[1:])


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_probes_ask_ports_that_the_container_has(pod: Pod) -> None:
    for container in pod.containers:
        asked = {
            probe["httpGet"]["port"] for probe in container.probes.values() if "httpGet" in probe
        }
        assert asked <= set(container.ports)


def test_the_pod_has_the_time_that_its_server_needs_to_end() -> None:
    (deployment,) = documents(KUBERNETES / "sidecar.yml")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    pause_s = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    defaults = ProcessGroup()
    needed_s = pause_s + defaults.graceful_timeout_s + defaults.shutdown_timeout_s
    assert needed_s + 5 <= PODS["shop"].grace_period_s


def test_both_users_of_a_pod_may_use_the_socket_and_only_one_writes_the_history() -> None:
    pod = PODS["shop"]
    recorder, server = recorder_of(pod), pod.container("shop")
    assert recorder.uid != server.uid
    assert recorder.gid == server.gid == pod.fs_group
    assert recorder.groups == server.groups == (pod.fs_group,)
    assert "history" not in {mount.source for mount in server.mounts}


def test_the_database_fits_its_volume(tmp_path: Path) -> None:
    """With room for SQLite's log: a pod whose volume is full is evicted."""
    pod = PODS["shop"]
    limit = check_recorder(recorder_of(pod), tmp_path).store_limit_bytes
    assert pod.volumes["history"]["emptyDir"] == {"sizeLimit": "1Gi"}
    assert limit * 4 < 1 << 30


def test_the_policy_of_the_network_and_prometheus_name_the_recorders_port() -> None:
    daemonset, policy, _ = documents(KUBERNETES / "daemonset.yml")
    labels = daemonset["spec"]["template"]["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"] == labels
    (rule,) = policy["spec"]["ingress"]
    assert rule["ports"] == [{"port": "headway"}]
    (scraped,) = documents(KUBERNETES / "prometheus.yml")
    (job,) = scraped["scrape_configs"]
    keep = job["relabel_configs"][0]
    assert keep["source_labels"][0] == "__meta_kubernetes_pod_container_port_name"
    assert keep["regex"] == "headway;Running"
    for path in MANIFESTS:
        for document in documents(path):
            spec = document.get("spec", {}).get("template", {}).get("spec", {})
            for each in [*spec.get("initContainers", ()), *spec.get("containers", ())]:
                names = {port["name"] for port in each["ports"]}
                assert ("headway" in names) == (each["name"] == "recorder")


def test_the_rules_lie_beside_the_configuration_of_prometheus() -> None:
    (scraped,) = documents(KUBERNETES / "prometheus.yml")
    assert [(ROOT / "examples" / each).is_file() for each in scraped["rule_files"]] == [True]
