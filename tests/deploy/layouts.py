"""The containers of examples/deploy, as the tests need them: read from the manifests of Kubernetes
and from the compose file, with no copy of a command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="tests/requirements-deploy.txt is not installed")

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "examples/deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yml"))
# The user of the image, as Debian numbers it.
WWW_DATA = 33


@dataclass(frozen=True)
class Mount:
    """`source` is the name of a volume, or a path of the compose file's folder."""

    source: str
    path: str
    is_read_only: bool = False


@dataclass(frozen=True)
class Container:
    name: str
    image: str
    command: tuple[str, ...]
    variables: dict[str, str]
    ports: tuple[int, ...]
    mounts: tuple[Mount, ...]
    # Of the process: user, group, and further groups.
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    has_read_only_root: bool = False
    is_unprivileged: bool = False
    # As the manifest has them, by their names: readinessProbe, ...
    probes: dict[str, Any] | None = None
    memory_limit_mib: int = 0
    # Of `preStop`, before SIGTERM.
    pause_s: int = 0

    def option(self, name: str) -> str | None:
        """The value of `--NAME=VALUE` in the command."""
        found = [each.partition("=")[2] for each in self.command if each.startswith(f"--{name}=")]
        return found[0] if found else None

    def arguments(self, verb: str) -> tuple[str, ...] | None:
        """The words after `headway VERB`; `None` for another command."""
        return self.command[2:] if self.command[:2] == ("headway", verb) else None


@dataclass(frozen=True)
class Pod:
    name: str
    # Sidecars first: they start first, and end last.
    containers: tuple[Container, ...]
    # The definition of each volume in the manifest.
    volumes: dict[str, dict[str, Any]]
    fs_group: int | None
    grace_period_s: int

    def container(self, name: str) -> Container:
        (found,) = [each for each in self.containers if each.name == name]
        return found


def documents(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def pods(path: Path) -> dict[str, Pod]:
    """The pods of a file's workloads, by name."""
    return {pod.name: pod for pod in _pods(path)}


def _pods(path: Path) -> Iterator[Pod]:
    for document in documents(path):
        if "template" not in document.get("spec", {}):
            continue
        spec = document["spec"]["template"]["spec"]
        context = spec["securityContext"]
        groups = (context["fsGroup"],) if "fsGroup" in context else ()
        sidecars = spec.get("initContainers", [])
        assert all(each["restartPolicy"] == "Always" for each in sidecars)
        yield Pod(
            document["metadata"]["name"],
            tuple(
                _container({**context, **each["securityContext"]}, groups, each)
                for each in [*sidecars, *spec["containers"]]
            ),
            {each["name"]: each for each in spec["volumes"]},
            context.get("fsGroup"),
            spec.get("terminationGracePeriodSeconds", 30),
        )


def _container(
    context: dict[str, Any], groups: tuple[int, ...], document: dict[str, Any]
) -> Container:
    ports = document.get("ports", [])
    limit = re.fullmatch(r"(\d+)Mi", document["resources"]["limits"]["memory"])
    assert limit, document["resources"]
    return Container(
        name=document["name"],
        image=document["image"],
        command=tuple(document["command"]),
        variables={each["name"]: each["value"] for each in document.get("env", [])},
        ports=tuple(each["containerPort"] for each in ports),
        mounts=tuple(
            Mount(each["name"], each["mountPath"], each.get("readOnly", False))
            for each in document["volumeMounts"]
        ),
        uid=context["runAsUser"],
        gid=context.get("runAsGroup", 0),
        groups=groups,
        has_read_only_root=context["readOnlyRootFilesystem"],
        is_unprivileged=context["capabilities"]["drop"] == ["ALL"]
        and not context["allowPrivilegeEscalation"],
        probes={
            name: _with_number(each, {port["name"]: port["containerPort"] for port in ports})
            for name, each in document.items()
            if name.endswith("Probe")
        },
        memory_limit_mib=int(limit[1]),
        pause_s=document.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0),
    )


def _with_number(probe: dict[str, Any], ports: dict[str, int]) -> dict[str, Any]:
    """The probe with the number of its port instead of the port's name."""
    if "httpGet" not in probe:
        return probe
    return {**probe, "httpGet": {**probe["httpGet"], "port": ports[probe["httpGet"]["port"]]}}


def composition() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text())
    return document


def services() -> dict[str, Container]:
    """The containers of the compose file, by name; the command is empty where the image has it."""
    document = composition()
    files = {name: each["file"] for name, each in document["secrets"].items()}
    return {
        name: Container(
            name=name,
            image=service["image"],
            command=tuple(service.get("command", ())),
            variables=service.get("environment", {}),
            ports=tuple(int(each.rpartition(":")[2]) for each in service.get("ports", ())),
            mounts=(
                *(_bound(each) for each in service.get("volumes", ())),
                *(
                    Mount(files[each], f"/run/secrets/{each}", True)
                    for each in service.get("secrets", ())
                ),
            ),
            uid=WWW_DATA,
            gid=WWW_DATA,
        )
        for name, service in document["services"].items()
    }


def _bound(text: str) -> Mount:
    source, path, *mode = text.split(":")
    return Mount(source, path, mode == ["ro"])


def in_this_checkout(source: str) -> Path:
    """The file here that a mount of the compose file names: `headway` is the checkout."""
    prefix = "./headway/"
    assert source.startswith(prefix), source
    return ROOT / source.removeprefix(prefix)
