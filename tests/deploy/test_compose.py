"""The compose file is valid, and its services fit together, fit Headway's own command line, and
find their files in a checkout."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import prometheus
import pytest
from command_lines import check_recorder, check_server
from layouts import DEPLOY, ROOT, composition, documents, in_this_checkout, services

from headway.server.settings import ProcessGroup

compose_spec = pytest.importorskip(
    "compose_spec", reason="tests/requirements-deploy.txt is not installed"
)

TEXT = (DEPLOY / "compose.yml").read_text()
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
SERVICES = services()


def target_of(service: str, path: str) -> Path:
    """The file of this checkout that the service has at `path`."""
    (mount,) = [each for each in SERVICES[service].mounts if each.path == path]
    assert mount.is_read_only
    return in_this_checkout(mount.source)


def test_the_file_is_what_the_specification_allows() -> None:
    parsed = compose_spec.PyCompose.from_yaml(TEXT)
    parsed.validate()
    assert sorted(parsed.service_names()) == sorted(SERVICES)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("stop_grace_period: 25s", "stop_grace_period: long"),
        ("restart: unless-stopped", "restarts: unless-stopped"),
        ("secrets: [token]", "secrets: [tokens]"),
    ],
)
def test_a_mistake_in_the_file_is_found(right: str, wrong: str) -> None:
    assert right in TEXT
    with pytest.raises(ValueError, match=wrong.split(":")[0].split("[")[0]):
        compose_spec.PyCompose.from_yaml(TEXT.replace(right, wrong, 1)).validate()


def test_each_name_is_declared_and_each_file_exists() -> None:
    document = composition()
    named = set()
    for service in SERVICES.values():
        for mount in service.mounts:
            if mount.source.startswith("./headway/"):
                assert in_this_checkout(mount.source).exists(), mount.source
            elif not mount.source.startswith("./"):
                named.add(mount.source)
        assert set(document["services"][service.name].get("depends_on", ())) <= set(SERVICES)
    assert named == set(document["volumes"])


def test_images_have_versions() -> None:
    built = {name for name, each in composition()["services"].items() if "build" in each}
    assert built == {"shop", "recorder"}
    for name, service in SERVICES.items():
        if name not in built:
            assert re.search(r":v?\d+\.\d+\.\d+$", service.image), service.image
    # The Collector that the tests run.
    manifest = (ROOT / "tests/recorder/collector-manifest.yml").read_text()
    version = SERVICES["collector"].image.rpartition(":")[2]
    assert f"otlpreceiver v{version}\n" in manifest


def test_recorder_and_server_take_their_options_and_meet_at_the_socket(tmp_path: Path) -> None:
    server, recorder = SERVICES["shop"], SERVICES["recorder"]
    settings = check_recorder(recorder, tmp_path)
    checked = check_server(server, tmp_path)
    assert checked["bind"] == f"0.0.0.0:{server.ports[0]}"
    assert server.option("telemetry") == f"unix:{settings.listen}"
    assert settings.http is not None
    assert (settings.http.port,) == recorder.ports
    assert recorder.option("token-file") in {mount.path for mount in recorder.mounts}
    folders = {mount.path: mount.source for mount in recorder.mounts}
    assert folders[str(Path(settings.store).parent)] == "history"
    for service in (server, recorder):
        sources = {mount.path: mount.source for mount in service.mounts}
        assert sources[str(Path(settings.listen).parent)] == "socket"


def test_the_metrics_go_from_one_service_to_the_next(tmp_path: Path) -> None:
    """The recorder's --otlp, the Collector's two ports, Prometheus' target, Grafana's source."""
    settings = check_recorder(SERVICES["recorder"], tmp_path)
    (collector,) = documents(target_of("collector", "/etc/otelcol/config.yaml"))
    taken = collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    assert settings.otlp == f"http://collector:{taken.rpartition(':')[2]}/v1/metrics"
    shown = collector["exporters"]["prometheus"]["endpoint"]
    (scraped,) = documents(target_of("prometheus", "/etc/prometheus/prometheus.yml"))
    (job,) = scraped["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"collector:{shown.rpartition(':')[2]}"]}]
    folder = "/etc/grafana/provisioning"
    (sources,) = documents(target_of("grafana", f"{folder}/datasources/headway.yml"))
    (source,) = sources["datasources"]
    assert source["url"] == f"http://prometheus:{SERVICES['prometheus'].ports[0]}"
    assert source["isDefault"]
    (boards,) = documents(target_of("grafana", f"{folder}/dashboards/headway.yml"))
    (provider,) = boards["providers"]
    found = target_of("grafana", provider["options"]["path"])
    assert [path.name for path in found.iterdir()] == ["headway.json"]


def test_prometheus_reads_its_configuration(tmp_path: Path) -> None:
    for path in ("prometheus.yml", "headway-alerts.yml"):
        shutil.copy(target_of("prometheus", f"/etc/prometheus/{path}"), tmp_path / path)
    prometheus.check("config", tmp_path / "prometheus.yml")


def test_the_server_has_the_time_that_it_needs_to_end() -> None:
    given = composition()["services"]["shop"]["stop_grace_period"]
    defaults = ProcessGroup()
    assert int(given[:-1]) >= defaults.graceful_timeout_s + defaults.shutdown_timeout_s + 5


def test_the_image_has_what_the_services_need() -> None:
    """The extra for --otlp, and folders that the volumes get their owner from."""
    (argument,) = re.findall(r"^ARG (\w+)=$", DOCKERFILE, re.MULTILINE)
    for name in ("shop", "recorder"):
        build = composition()["services"][name]["build"]
        assert build == {"context": ".", "args": {argument: "[otlp]"}}
    assert f'pip wheel --wheel-dir /wheels "/headway${argument}"' in DOCKERFILE
    assert re.search(r"^otlp = ", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    (made,) = re.findall(
        r"^RUN install --directory --owner=www-data (.*)$", DOCKERFILE, re.MULTILINE
    )
    own = {
        mount.path
        for name in ("shop", "recorder")
        for mount in SERVICES[name].mounts
        if not mount.is_read_only
    }
    assert set(made.split()) == own
    assert "USER www-data\n" in DOCKERFILE


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.install", "Dockerfile.alpine"])
def test_the_page_on_installation_has_the_dockerfile(name: str) -> None:
    """Without the comments at its top and about its command."""
    page = (ROOT / "docs/installation.md").read_text()
    body = re.sub(
        r"(?m)^# (?!Extras|For the recorder|Headway from).*\n", "", (DEPLOY / name).read_text()
    )
    assert f"```dockerfile\n{body}```" in page
