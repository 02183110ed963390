"""Runs the pods of a manifest as the kubelet of a node does: volumes with their owners and modes,
containers in the order of their start and end, and probes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from command_lines import TOKEN
from containers import TIMEOUT_S, Network, Running
from layouts import Pod


class Node:
    """A node with its folders, below `folder`. The stack ends what runs on it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack

    def run(self, pod: Pod, host_name: str, files: Mapping[str, Path]) -> RunningPod:
        """Starts the pod; its containers' images have `files`."""
        sources = {
            name: self._volume(host_name, name, volume, pod.fs_group)
            for name, volume in pod.volumes.items()
        }
        running = RunningPod(pod, Network.alone(self._stack))
        for container in pod.containers:
            started = Running(
                container,
                self._folder,
                running.network,
                sources,
                host_name=host_name,
                files=files,
            )
            self._stack.callback(started.kill)
            running.containers[container.name] = started
            # A sidecar's startup probe holds up what comes after it.
            running.wait_for(container.name, "startupProbe", "readinessProbe")
        return running

    def _volume(
        self, host_name: str, name: str, volume: dict[str, Any], fs_group: int | None
    ) -> Path:
        if "hostPath" in volume:
            assert volume["hostPath"]["type"] == "DirectoryOrCreate"
            made = self._folder / "node" / volume["hostPath"]["path"].lstrip("/")
            made.mkdir(parents=True, exist_ok=True)
            made.chmod(0o755)
            return made
        made = self._folder / f"{host_name}-volumes" / name
        made.mkdir(parents=True)
        made.chmod(0o777)
        if "secret" in volume:
            (made / "token").write_text(f"{TOKEN}\n")
            (made / "token").chmod(0o644)
        if fs_group is not None:
            for path in (*made.iterdir(), made):
                os.chown(path, -1, fs_group)
            made.chmod(0o2777)
        return made


class RunningPod:
    def __init__(self, pod: Pod, network: Network) -> None:
        self.pod = pod
        self.network = network
        self.containers: dict[str, Running] = {}

    def get(self, port: int, path: str) -> tuple[int, bytes]:
        """The pod's answer at its address, to which probes and Prometheus go."""
        return self.network.call(lambda: answer(f"http://{self.network.address}:{port}{path}"))

    def passes(self, container: str, probe: str) -> bool:
        """Whether the probe of the container succeeds, once."""
        spec = (self.pod.container(container).probes or {})[probe]
        if "exec" in spec:
            return self.containers[container].execute(*spec["exec"]["command"]).returncode == 0
        try:
            return 200 <= self.get(spec["httpGet"]["port"], spec["httpGet"]["path"])[0] < 400
        except (URLError, ConnectionError):
            return False

    def wait_for(self, container: str, *probes: str) -> None:
        for probe in probes:
            if probe in (self.pod.container(container).probes or {}):
                self.containers[container].wait_until(partial(self.passes, container, probe))

    def end(self) -> dict[str, int]:
        """Ends the containers as the kubelet does, sidecars last; the exit status of each. SIGKILL
        comes when the pod's time is over, of which `preStop` has had its share."""
        status = {}
        for container in reversed(self.pod.containers):
            limit_s = self.pod.grace_period_s - container.pause_s
            status[container.name] = self.containers[container.name].end(limit_s)
        return status


def answer(url: str, token: str = TOKEN) -> tuple[int, bytes]:
    """The status and body. Raises `URLError` while nobody listens."""
    request = Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        response: HTTPResponse
        with urlopen(request, timeout=TIMEOUT_S) as response:
            return response.status, response.read()
    except HTTPError as error:
        return error.code, error.read()
