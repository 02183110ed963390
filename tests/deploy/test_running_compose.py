"""The compose file at work: server and recorder by their own commands, the real Collector and
Prometheus with the configurations that the file gives them, each in a network of its own where the
services' names are addresses, and at the end the questions of Grafana's dashboard."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode

import prometheus
import pytest
from command_lines import TOKEN
from containers import TIMEOUT_S, Network, Running, need_namespaces
from kubelet import answer
from layouts import ROOT, WWW_DATA, documents, in_this_checkout, services

pytestmark = pytest.mark.slow("starts a server, a recorder, a Collector and Prometheus")

PAGES = ROOT / "tests/apps/telemetry_pages.py"
COLLECTOR = ROOT / ".venvs/collector/otelcol"
SERVICES = services()
REQUESTS = 40
# The commands of the images of others, by their own documentation.
COMMANDS = {
    "collector": (str(COLLECTOR), "--config=/etc/otelcol/config.yaml"),
    "prometheus": (
        "prometheus",
        "--config.file=/etc/prometheus/prometheus.yml",
        "--storage.tsdb.path=/prometheus",
    ),
}


class Composition:
    """The services that can run here; Grafana is a network without a process."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self.networks = Network.joined(stack, list(SERVICES))
        self.running: dict[str, Running] = {}
        self._hosts = {name: network.address for name, network in self.networks.items()}

    def start(self, name: str, *options: str) -> Running:
        container = SERVICES[name]
        command = COMMANDS.get(name, container.command)
        if name == "prometheus":
            command = (prometheus.program("prometheus"), *command[1:])
        sources = {mount.source: self._source(mount.source) for mount in container.mounts}
        started = Running(
            container,
            self._folder,
            self.networks[name],
            sources,
            host_name=name,
            hosts=self._hosts,
            files={"/srv/shop/shop.py": PAGES},
            command=(*command, *options),
        )
        self._stack.callback(started.kill)
        self.running[name] = started
        return started

    def _source(self, source: str) -> Path:
        """The file of the checkout, the secret, or the volume."""
        made = self._folder / "volumes" / source.strip("./").replace("/", "-")
        if made.exists():
            return made
        made.parent.mkdir(exist_ok=True)
        if source == "./token":
            made.write_text(f"{TOKEN}\n")
            made.chmod(0o644)
        elif source.startswith("./"):
            text = in_this_checkout(source).read_text()
            made.write_text(text.replace("scrape_interval: 15s", "scrape_interval: 1s"))
            made.chmod(0o644)
        else:
            # As the Dockerfile makes the folder that the volume is mounted at.
            made.mkdir()
            made.chmod(0o755)
            os.chown(made, WWW_DATA, 0)
        return made

    def get(self, place: str, url: str) -> tuple[int, bytes]:
        """The answer to a request from the network of the service `place`, by a service's name."""
        name, _, rest = url.removeprefix("http://").partition(":")
        return self.networks[place].call(lambda: answer(f"http://{self._hosts[name]}:{rest}"))


@pytest.fixture
def composition(tmp_path: Path) -> Iterator[Composition]:
    need_namespaces()
    pytest.importorskip("opentelemetry.sdk", reason="tests/requirements-otlp.txt is not installed")
    if not COLLECTOR.exists():
        pytest.skip("there is no OpenTelemetry Collector: scripts/otel-collector")
    prometheus.program("prometheus")
    with ExitStack() as stack:
        yield Composition(tmp_path, stack)


def test_a_request_is_seen_by_grafanas_questions(composition: Composition) -> None:
    composition.start("collector")
    composition.start("prometheus")
    # The default is 15 s.
    recorder = composition.start("recorder", "--otlp-interval=1")
    server = composition.start("shop")
    server.wait_until(lambda: is_there(composition, "shop", "http://shop:8000/"))
    recorder.wait_until(lambda: is_there(composition, "recorder", "http://recorder:8888/login"))
    for _ in range(REQUESTS):
        assert composition.get("grafana", "http://shop:8000/deadline")[0] == 200
    source, board = grafana()
    seen = 0.0
    deadline = time.monotonic() + TIMEOUT_S
    while seen < REQUESTS:
        assert time.monotonic() < deadline, logs(composition)
        time.sleep(0.2)
        found = ask(composition, source, 'sum(headway_requests_total{group="shop"})')
        seen = float(found[0]["value"][1]) if found else 0.0
    # Each metric has come all the way, under the name that it has at the recorder.
    recorder.wait_until(
        lambda: names_at_recorder(composition) == {name_of(each) for each in all_of(composition)}
    )
    names, arrived = names_at_recorder(composition), all_of(composition)
    places = [each["metric"] for each in arrived if "group" in each["metric"]]
    assert {(each["host"], each["group"]) for each in places} == {("shop", "shop")}
    asked = expressions(board)
    for expression in asked:
        ask(composition, source, expression)
    answered = [each for each in asked if set(re.findall(r"\bheadway_\w+", each)) <= names]
    # The others are about limits and processes that there are none of here.
    assert len(answered) > len(asked) / 2
    for name in ("shop", "recorder", "prometheus", "collector"):
        assert composition.running[name].end(25) == 0, composition.running[name].log


def names_at_recorder(composition: Composition) -> set[str]:
    shown = composition.get("recorder", "http://recorder:8888/metrics")[1].decode()
    return set(re.findall(r"^(headway_\w+)", shown, re.MULTILINE))


def all_of(composition: Composition) -> list[dict[str, Any]]:
    """The series of Headway that Prometheus has."""
    return ask(composition, grafana()[0], '{__name__=~"headway_.*"}')


def name_of(series: dict[str, Any]) -> str:
    return str(series["metric"]["__name__"])


def is_there(composition: Composition, place: str, url: str) -> bool:
    try:
        return composition.get(place, url)[0] == 200
    except URLError:
        return False


def grafana() -> tuple[str, dict[str, Any]]:
    """The address of its data source, and its dashboard, where it finds them."""
    files = {mount.path: in_this_checkout(mount.source) for mount in SERVICES["grafana"].mounts}
    (sources,) = documents(files["/etc/grafana/provisioning/datasources/headway.yml"])
    (providers,) = documents(files["/etc/grafana/provisioning/dashboards/headway.yml"])
    (board,) = files[providers["providers"][0]["options"]["path"]].iterdir()
    return sources["datasources"][0]["url"], json.loads(board.read_text())


def expressions(board: dict[str, Any]) -> list[str]:
    """With the variables of the dashboard as they are at first: all hosts and groups."""
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    for variable, value in (("host", ".*"), ("group", ".*"), ("__rate_interval", "1m")):
        asked = [each.replace(f"${variable}", value) for each in asked]
    return asked


def ask(composition: Composition, source: str, expression: str) -> list[dict[str, Any]]:
    try:
        url = f"{source}/api/v1/query?{urlencode({'query': expression})}"
        status, body = composition.get("grafana", url)
    except URLError:
        return []
    if status == 503:
        # Prometheus starts.
        return []
    result = json.loads(body)
    assert (status, result["status"]) == (200, "success"), (expression, result)
    found: list[dict[str, Any]] = result["data"]["result"]
    return found


def logs(composition: Composition) -> str:
    return "\n".join(f"{name}:\n{each.log}" for name, each in composition.running.items())
