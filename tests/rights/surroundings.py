"""Runs commands where little is allowed, as in a container that was made for one application: on a
file system that is read-only, as a user that no file names, without /proc or /dev/shm, under a
filter of system calls, with little memory and a fraction of a core, or in gVisor.

The root is this machine's own, below a layer that is thrown away, with the environment of the
tests; all is real but the container's runtime. Needs root, overlayfs and util-linux.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from launch import TIMEOUT_S, Result

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# No line of /etc/passwd has it.
USER = 48_211
CGROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
GVISOR = ("runsc", "--platform=ptrace", "--network=none", "--ignore-cgroups", "do", "--quiet")


@dataclass(frozen=True)
class Surroundings:
    """The rights of a command.

    - `user`: the number of its user, who has no capability, no line in /etc/passwd and no home; 0
      is root, with all rights.
    - `temporary`: how /tmp is mounted: `rw`, `noexec`, or `ro` as all else is then.
    - `readable_executable`: whether the user may read the file of the interpreter. If not,
      /proc/self/mem, /proc/self/maps and others are root's.
    - `filtered`: the rules of `filtered.py`.
    """

    user: int = USER
    read_only: bool = False
    temporary: str = "rw"
    shared_memory: bool = True
    proc: bool = True
    readable_executable: bool = True
    filtered: tuple[str, ...] = ()
    memory_mib: int = 0
    cores: float = 0
    gvisor: bool = False

    def need(self) -> None:
        """Skips the test where these surroundings cannot be had."""
        if os.geteuid() != 0:
            pytest.skip("needs root, for namespaces")
        programs = ["unshare", "setpriv", "chroot"] + ["runsc"] * self.gvisor
        for program in programs:
            if shutil.which(program) is None:
                pytest.skip(f"{program} is not installed")
        if why := _no_namespaces():
            pytest.skip(why)
        if self.gvisor and (why := _no_gvisor()):
            pytest.skip(why)
        if self.filtered and (why := no_filters()):
            pytest.skip(why)
        if (self.memory_mib or self.cores) and _cgroup_folders() is None:
            pytest.skip("control groups cannot be made here")

    def run(self, folder: Path, *command: str, **variables: str) -> Result:
        """The command at its end. `folder` is for these surroundings alone, and empty."""
        self.need()
        if self.gvisor:
            return _end(_in_gvisor(command, variables))
        with self._cgroups() as groups:
            script = self._script(folder, groups, command, variables)
            unshare = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
            return _end([*unshare, "sh", "-euc", script])

    def _script(
        self,
        folder: Path,
        groups: Sequence[Path],
        command: Sequence[str],
        variables: dict[str, str],
    ) -> str:
        layer, root = folder / "layer", folder / "layer/root"
        lines = [f"echo $$ >{group}/cgroup.procs" for group in groups]
        lines += [
            f"mkdir {layer}",
            f"mount -t tmpfs tmpfs {layer}",
            f"mkdir {layer}/upper {layer}/work {root}",
            "mount -t overlay overlay -o "
            f"lowerdir=/,upperdir={layer}/upper,workdir={layer}/work {root}",
        ]
        # The environment of the tests may be in a folder that only root may enter.
        for path in (Path(sys.prefix), Path(sys.base_prefix), ROOT):
            lines += [f"chmod a+rx {root}{each}" for each in (path, *path.parents)]
        if not self.readable_executable:
            lines.append(f"chmod 711 {root}{Path(sys.executable).resolve()}")
        lines += [
            f"mount -t tmpfs -o mode=755 tmpfs {root}/dev",
            *(f"touch {root}/dev/{each}" for each in DEVICES),
            *(f"mount --bind /dev/{each} {root}/dev/{each}" for each in DEVICES),
            *(f"ln -s /proc/self/fd/{n} {root}/dev/{each}" for n, each in enumerate(STREAMS)),
            f"mount --rbind -o ro /sys {root}/sys",
        ]
        if self.shared_memory:
            lines += [f"mkdir -m 1777 {root}/dev/shm"]
        if self.proc:
            lines.append(f"mount -t proc proc {root}/proc")
        if self.temporary != "ro":
            noexec = "noexec," * (self.temporary == "noexec")
            lines.append(f"mount -t tmpfs -o {noexec}mode=1777 tmpfs {root}/tmp")
        if self.read_only:
            lines += [f"mount -o remount,ro {root}", f"mount -o remount,ro {root}/dev"]
        chroot = ["exec", "chroot", str(root)]
        if self.user:
            chroot += ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]
            chroot += ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
        chroot += ["env", "-i", "-C", "/tmp"]
        chroot += [f"{name}={value}" for name, value in _variables(variables).items()]
        if self.filtered:
            chroot += [sys.executable, "-IS", str(HERE / "filtered.py"), *self.filtered, "--"]
        lines.append(shlex.join([*chroot, *command]))
        return "\n".join(lines)

    @contextmanager
    def _cgroups(self) -> Iterator[list[Path]]:
        """Control groups with the limits, until the end."""
        folders = _cgroup_folders() if self.memory_mib or self.cores else None
        groups: dict[str, Path] = {}
        try:
            for controller, folder in (folders or {}).items():
                groups[controller] = folder / f"headway-tests-{os.getpid()}"
                groups[controller].mkdir(exist_ok=True)
            if self.memory_mib:
                group, limit = groups["memory"], str(self.memory_mib << 20)
                _write_first(group, {"memory.max": limit, "memory.limit_in_bytes": limit})
            if self.cores:
                quota_us = int(self.cores * PERIOD_US)
                limits = {"cpu.max": f"{quota_us} {PERIOD_US}", "cpu.cfs_quota_us": str(quota_us)}
                _write_first(groups["cpu"], limits)
            yield list(dict.fromkeys(groups.values()))
        finally:
            for group in groups.values():
                with suppress(FileNotFoundError):
                    group.rmdir()


DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
STREAMS = ("stdin", "stdout", "stderr")


def _variables(changes: dict[str, str]) -> dict[str, str]:
    return {"PATH": f"{sys.prefix}/bin:/usr/bin:/bin", "PYTHONIOENCODING": "utf-8", **changes}


def _end(command: Sequence[str]) -> Result:
    # runsc cannot start where TMPDIR and XDG_RUNTIME_DIR are one folder in the other.
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=3 * TIMEOUT_S,
        env={"PATH": os.environ["PATH"]},
    )


def _in_gvisor(command: Sequence[str], variables: dict[str, str]) -> list[str]:
    words = [f"{name}={value}" for name, value in _variables(variables).items()]
    return [*GVISOR, "env", "-i", "-C", "/tmp", *words, *command]


@cache
def _no_namespaces() -> str:
    made = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"])
    if made.returncode != 0 or "overlay" not in Path("/proc/filesystems").read_text():
        return "namespaces or overlayfs cannot be had here"
    used = (sys.executable, sys.prefix, sys.base_prefix, str(HERE))
    if {os.stat(place).st_dev for place in used} != {os.stat("/").st_dev}:
        return "the environment of the tests is on another file system than the root"
    return ""


@cache
def _no_gvisor() -> str:
    done = _end([*GVISOR, "true"])
    return "" if done.returncode == 0 else f"gVisor does not run here: {done.stderr.strip()}"


@cache
def no_filters() -> str:
    tried = (sys.executable, "-IS", str(HERE / "filtered.py"), "EPERM:acct", "--", "/bin/true")
    done = _end(tried)
    reason = done.stderr.strip().rpartition("\n")[2]
    return "" if done.returncode == 0 else f"no filter of system calls: {reason}"


@cache
def _cgroup_folders() -> dict[str, Path] | None:
    """The folders in which groups with limits of memory and processors can be made."""
    unified = (CGROUPS / "cgroup.controllers").exists()
    folders = {name: CGROUPS if unified else CGROUPS / name for name in ("memory", "cpu")}
    try:
        if unified:
            (CGROUPS / "cgroup.subtree_control").write_text("+memory +cpu")
        for folder in folders.values():
            trial = folder / f"headway-trial-{os.getpid()}"
            trial.mkdir()
            trial.rmdir()
    except OSError:
        return None
    return folders


def _write_first(group: Path, files: dict[str, str]) -> None:
    """Writes that one of the files which this version of control groups has."""
    for name, text in files.items():
        if (group / name).exists():
            (group / name).write_text(text)
            return
    raise AssertionError(f"{group} has none of {', '.join(files)}")
