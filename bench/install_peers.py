"""Installs what benchmarks of `headway serve` run beside it: wrk, and other WSGI servers.

wrk, and what some servers are built from, come from Debian: root installs it here, anybody else is
told. The servers come from PyPI, at the versions of bench/peers-requirements.txt, into an
environment of their own with the interpreter that runs this script; a free-threaded one has a list
and an environment of its own. One that cannot be had is named with its reason, here and in the
results; the others are installed all the same.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import sitting
from builds import FREE_THREADED
from installed import folder_for
from peers import PEERS, ROOT, SITE

from headway.programs.processes import ProgramError

# apache2-bin is Apache without the service that Debian's apache2 starts.
PACKAGES = ("wrk", "build-essential", "libev-dev", "apache2-bin", "apache2-dev")
UV = ROOT / ".venvs" / "tools" / "bin" / "uv"
BENCH = ROOT / "bench"
REQUIREMENTS = {
    False: "peers-requirements.txt",
    True: "peers-requirements-free-threaded.txt",
}


def say(text: str) -> None:
    print(f"install_peers: {text}", flush=True)


def missing_packages() -> list[str]:
    status = ["dpkg-query", "--show", "--showformat", "${Status}"]
    missing = []
    for package in PACKAGES:
        found = subprocess.run([*status, package], capture_output=True, text=True)
        if not found.stdout.endswith(" installed"):
            missing.append(package)
    return missing


def install_packages() -> None:
    """Installs the missing Debian packages. A failure costs only the peers that need them."""
    if shutil.which("apt-get") is None:
        say(f"this is not Debian: install what it calls {' '.join(PACKAGES)}")
        return
    missing = missing_packages()
    if not missing:
        return
    if os.geteuid() != 0:
        say(f"as root: apt-get install --no-install-recommends {' '.join(missing)}")
        return
    say(f"installing Debian's {' '.join(missing)}")
    apt = ["apt-get", "--quiet", "--quiet"]
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = [*apt, "install", "--yes", "--no-install-recommends", *missing]
    for words in ([*apt, "update"], install):
        ended = subprocess.run(words, env=quiet, capture_output=True, text=True)
        if ended.returncode != 0:
            say(f"{' '.join(words)} failed: {last_line(ended.stderr)}")


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it says nothing"])[-1].strip()


def reason(text: str) -> str:
    """The compiler's first error, which says more than pip's message; else the last line."""
    lines = [line.strip() for line in text.splitlines()]
    complaints = [line for line in lines if "error:" in line.lower() and "subprocess" not in line]
    return (complaints or [last_line(text)])[0]


def make_environment(folder: Path) -> None:
    if folder.exists() and not (folder / "pyvenv.cfg").exists():
        raise ProgramError(f"--peers-folder {folder}: it is there, and no virtual environment", 2)
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}{sys.abiflags}"
    ours = Path(sys.base_prefix) / "bin" / name
    subprocess.run([ROOT / "scripts" / "tools"], check=True)
    words = [str(UV), "venv", "--quiet", "--no-project", "--clear", "--python", str(ours)]
    subprocess.run([*words, str(folder)], check=True)


def install(folder: Path, *requirements: str) -> str | None:
    """Installs the requirements. Returns the reason if this failed."""
    words = [str(UV), "pip", "install", "--quiet", "--python", str(folder / "bin" / "python")]
    ended = subprocess.run([*words, *requirements], capture_output=True, text=True)
    return reason(ended.stderr) if ended.returncode else None


def peers() -> dict[str, list[str]]:
    """Each peer's requirements, by its name in `PEERS`; gunicorn's are those of the benchmarks."""
    lines = (BENCH / REQUIREMENTS[FREE_THREADED]).read_text().splitlines()
    wanted = [line.split() for line in lines if line and not line.startswith("#")]
    names = {peer.distribution: name for name, peer in PEERS.items()}
    return {names[words[0].partition("==")[0]]: words for words in wanted}


def install_all(folder: Path) -> int:
    """Returns how many peers could not be installed."""
    install_packages()
    make_environment(folder)
    failed = 0
    common = install(folder, "--requirement", str(BENCH / "requirements.txt"))
    if common is not None:
        raise ProgramError(f"bench/requirements.txt: {common}")
    why = install(folder, "--requirement", str(SITE / "requirements.txt"))
    if why is not None:
        failed += 1
        say(f"without bench/site_servers.py: {why}")
    for name, requirements in peers().items():
        say(requirements[0])
        why = install(folder, *requirements)
        if why is not None:
            failed += 1
            say(f"without {name}: {why}")
            (folder / f"{name}.failed").write_text(f"{why}\n")
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser("install_peers", __doc__)
    parser.add_argument(
        "--peers-folder",
        type=Path,
        default=folder_for(FREE_THREADED),
        metavar="DIR",
        help="the environment to make; one that is there is made anew (default: .venvs/peers, or "
        ".venvs/peers-free-threaded in a free-threaded build)",
    )
    try:
        options = parser.parse_args(arguments)
        failed = install_all(options.peers_folder)
    except ProgramError as error:
        print(f"install_peers: {error}", file=sys.stderr)
        return error.exit_code
    except subprocess.CalledProcessError as error:
        print(f"install_peers: {error.cmd[0]} failed", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    say(f"done: {options.peers_folder}" + (f", {failed} could not be had" if failed else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
