"""Runs the commands of containers in namespaces of their own, as a runtime would: a root that may
be read-only, a user without rights, volumes, process 1, a host name and a network.

The image is this machine's own root, below a layer that is thrown away, with the environment of the
tests in front of PATH. Needs root, overlayfs and util-linux; a test that misses one is skipped.
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from layouts import ROOT, Container

TIMEOUT_S = 60
WORK_DIRECTORY = "/srv/shop"
CLONE_NEWNET = 0x40000000
# Documentation's addresses (RFC 5737), in networks that end with the test.
ADDRESS = "192.0.2.{}"
Result = TypeVar("Result")


def need_namespaces() -> None:
    """Skips the test where containers cannot be made."""
    for program in ("unshare", "nsenter", "setpriv", "ip", "chroot"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    if os.geteuid() != 0:
        pytest.skip("needs root, for namespaces")
    made = subprocess.run(["unshare", "--mount", "--net", "--pid", "--uts", "--fork", "true"])
    if made.returncode != 0 or "overlay" not in Path("/proc/filesystems").read_text():
        pytest.skip("namespaces or overlayfs cannot be had here")
    if os.stat(sys.executable).st_dev != os.stat("/").st_dev:
        pytest.skip("the environment of the tests is on another file system than the root")


class Network:
    """The network of a pod or of a service: loopback, and an address that is not loopback."""

    def __init__(self, stack: ExitStack, address: str = ADDRESS.format(1)) -> None:
        self.address = address
        self._holder = stack.enter_context(_held_network())
        self.run("ip", "link", "set", "lo", "up")

    @classmethod
    def alone(cls, stack: ExitStack) -> Network:
        network = cls(stack)
        network.run("ip", "address", "add", f"{network.address}/32", "dev", "lo")
        return network

    @classmethod
    def joined(cls, stack: ExitStack, names: Sequence[str]) -> dict[str, Network]:
        """A network for each name, all of them on one bridge."""
        bridge = cls(stack)
        bridge.run("ip", "link", "add", "bridge0", "type", "bridge")
        bridge.run("ip", "link", "set", "bridge0", "up")
        networks = {}
        for number, name in enumerate(names, start=10):
            network = networks[name] = cls(stack, ADDRESS.format(number))
            end = f"veth{number}"
            peer = ("peer", "name", "eth0", "netns", str(network._holder))
            bridge.run("ip", "link", "add", end, "type", "veth", *peer)
            bridge.run("ip", "link", "set", end, "master", "bridge0", "up")
            network.run("ip", "address", "add", f"{network.address}/24", "dev", "eth0")
            network.run("ip", "link", "set", "eth0", "up")
        return networks

    def command(self) -> tuple[str, ...]:
        return ("nsenter", f"--net=/proc/{self._holder}/ns/net")

    def run(self, *command: str) -> None:
        subprocess.run([*self.command(), *command], check=True, timeout=TIMEOUT_S)

    def call(self, function: Callable[[], Result]) -> Result:
        """Calls the function in a thread of this process that is in this network."""
        results: list[Result] = []
        errors: list[BaseException] = []

        def enter_and_call() -> None:
            try:
                descriptor = os.open(f"/proc/{self._holder}/ns/net", os.O_RDONLY)
                try:
                    entered = ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET)
                finally:
                    os.close(descriptor)
                assert entered == 0, os.strerror(ctypes.get_errno())
                results.append(function())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=enter_and_call)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]


@contextmanager
def _held_network() -> Iterator[int]:
    """A network, and the id of a process that keeps it until the end."""
    command = ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.communicate()


class Running:
    """A container that runs, until `end`."""

    def __init__(
        self,
        container: Container,
        folder: Path,
        network: Network,
        sources: Mapping[str, Path],
        *,
        host_name: str,
        hosts: Mapping[str, str] | None = None,
        files: Mapping[str, Path] | None = None,
        command: Sequence[str] = (),
    ) -> None:
        """`sources` has the folder or file of each mount, `hosts` the addresses of names, `files`
        what the image has besides, and `command` replaces the container's."""
        self.container = container
        self._folder = folder / f"{host_name}-{container.name}"
        self._folder.mkdir()
        self._log = self._folder / "log"
        script = self._script(sources, host_name, hosts or {}, files or {}, command)
        unshare = ("unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child")
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*network.command(), *unshare, "sh", "-euc", script], stdout=log, stderr=log
            )

    def _script(
        self,
        sources: Mapping[str, Path],
        host_name: str,
        hosts: Mapping[str, str],
        files: Mapping[str, Path],
        command: Sequence[str],
    ) -> str:
        container = self.container
        layer, root = self._folder / "layer", self._folder / "layer/root"
        layer.mkdir()
        lines = [
            f"mount -t tmpfs tmpfs {layer}",
            f"mkdir {layer}/upper {layer}/work {root}",
            "mount -t overlay overlay -o "
            f"lowerdir=/,upperdir={layer}/upper,workdir={layer}/work {root}",
        ]
        # The environment of the tests may be in a folder that only root may enter.
        for path in (Path(sys.prefix), Path(sys.base_prefix), ROOT):
            lines += [f"chmod a+rx {root}{each}" for each in (path, *path.parents)]
        lines += [f"mkdir -p {root}{WORK_DIRECTORY}", f"hostname {host_name}"]
        for name, address in hosts.items():
            lines.append(f"echo {address} {name} >>{root}/etc/hosts")
        for place, file in files.items():
            lines += [f"mkdir -p {root}{Path(place).parent}", f"cp -r {file} {root}{place}"]
        for mount in container.mounts:
            place, source = f"{root}{mount.path}", sources[mount.source]
            if source.is_dir():
                lines.append(f"mkdir -p {place}")
            else:
                lines += [f"mkdir -p {Path(place).parent}", f"touch {place}"]
            lines.append(f"mount --bind {source} {place}")
            if mount.is_read_only:
                lines.append(f"mount -o remount,bind,ro {place}")
        lines += [f"mount --rbind /dev {root}/dev", f"mount -t proc proc {root}/proc"]
        if container.has_read_only_root:
            lines.append(f"mount -o remount,ro {root}")
        variables = {"PATH": f"{Path(sys.prefix)}/bin:/usr/bin:/bin", **container.variables}
        lines.append(
            shlex.join(
                [
                    *("exec", "chroot", str(root), *self._as_user(container)),
                    *("env", "-i", "-C", WORK_DIRECTORY),
                    *(f"{name}={value}" for name, value in variables.items()),
                    *(command or container.command),
                ]
            )
        )
        return "\n".join(lines)

    @staticmethod
    def _as_user(container: Container) -> list[str]:
        groups = ",".join(map(str, container.groups))
        command = ["setpriv", f"--reuid={container.uid}", f"--regid={container.gid}"]
        command.append(f"--groups={groups}" if groups else "--clear-groups")
        if container.is_unprivileged:
            command += ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
        return command

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def pid(self) -> int:
        """Of the container's process 1, as this process sees it, once it is there."""
        self.wait_until(lambda: bool(self._children()))
        return self._children()[0]

    def _children(self) -> list[int]:
        parent = self._process.pid
        return [*map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())]

    def _has_begun(self) -> bool:
        """Whether process 1 has its root and its user, after which it is the command's."""
        pid = self.pid
        users = re.findall(r"^Uid:\t(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        at_root = os.readlink(f"/proc/{pid}/root").endswith("/layer/root")
        return at_root and users == [str(self.container.uid)]

    def resident_mib(self) -> int:
        """The memory of all processes of the container, without what files back."""
        total_kib = 0
        pids = [self.pid]
        while pids:
            pid = pids.pop()
            pids += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    total_kib += int(line.split()[1])
        return total_kib >> 10

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """The command in the container, as the same user: what a probe `exec` does."""
        self.wait_until(self._has_begun)
        inside = ("nsenter", f"--target={self.pid}", "--mount", "--pid", "--net", "--uts", "--root")
        path = f"PATH={Path(sys.prefix)}/bin:/usr/bin:/bin"
        return subprocess.run(
            # The tests' own directory is not in the container. CPython 3.13.0 raises SystemError
            # for a missing attribute of a module where the current directory cannot be had.
            [*inside, *self._as_user(self.container), "env", "-i", "--chdir=/", path, *command],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not is_so():
            assert self._process.poll() is None, f"{self.container.name} ended:\n{self.log}"
            assert time.monotonic() < deadline, f"{self.container.name}:\n{self.log}"
            time.sleep(0.05)

    def end(self, limit_s: float, number: signal.Signals = signal.SIGTERM) -> int:
        """Signals process 1; the exit status, or SIGKILL's after that time."""
        if self._process.poll() is None:
            self.wait_until(self._has_begun)
            os.kill(self.pid, number)
            try:
                self._process.wait(limit_s)
            except subprocess.TimeoutExpired:
                self.kill()
        return self._process.returncode

    def kill(self) -> None:
        """As the kernel does with a container that has no memory left. The end of process 1 ends
        all processes of its namespace."""
        for pid in self._children() if self._process.poll() is None else ():
            os.kill(pid, signal.SIGKILL)
        # If there is no process 1 yet.
        self._process.kill()
        self._process.wait()
