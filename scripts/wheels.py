"""Builds the wheels and the source distributions of Headway and headway-lab into dist/.

Usage: scripts/wheels.py [NAME...]

A NAME is `sdist`, or a wheel such as `cp313-x86_64`, `cp313t-aarch64` (free-threaded) or
`cp313-x86_64-musl`; commas may separate names. Each names those of both packages. Without a NAME
all are built, which takes about a minute for each.

A file tells pyo3's build script the version, and zig compiles and links for both architectures,
against the glibc of `GLIBC` or against musl. Only the bytecode of the wheel's modules needs an
interpreter of its version, which `scripts/find-python` finds; where there is none, a line says that
the wheel is without. Each finished wheel is checked: auditwheel finds the promised platform, and
the wheel has the module of its version and the shared unwinder; that of Headway also has the
dashboard and the `.pth` file. At the end scripts/index.py makes dist/simple, from which pip and uv
install.
docs/design/packages.md has the reasons.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import index
from complete_wheel import CompletionError, complete

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".venvs/tools/bin"
DIST = ROOT / "dist"
WORK = ROOT / "target/wheels"

VERSIONS = ("310", "311", "312", "313", "313t", "314", "314t", "315", "315t")
ARCHITECTURES = ("x86_64", "aarch64")
C_LIBRARIES = ("gnu", "musl")
SDIST = "sdist"
GLIBC = "2_28"
MUSL = "1_2"

# The functions that Rust's standard library takes from libgcc_s, by symbol version: gcc's
# libgcc-std.ver, the same on both architectures.
UNWINDER = {
    "GCC_3.0": (
        "_Unwind_DeleteException",
        "_Unwind_GetDataRelBase",
        "_Unwind_GetIP",
        "_Unwind_GetLanguageSpecificData",
        "_Unwind_GetRegionStart",
        "_Unwind_GetTextRelBase",
        "_Unwind_RaiseException",
        "_Unwind_Resume",
        "_Unwind_SetGR",
        "_Unwind_SetIP",
    ),
    "GCC_3.3": ("_Unwind_Backtrace", "_Unwind_GetCFA"),
    "GCC_4.2.0": ("_Unwind_GetIPInfo",),
}

PYO3_CONFIG = """\
implementation=CPython
version={version}
shared=true
abi3=false
abiflags={flags}
abi_tag={tag}
pointer_width=64
build_flags={build_flags}
suppress_build_script_link_lines=false
"""


class WheelError(Exception):
    """Why something cannot be built, in one line."""


@dataclass(frozen=True)
class Package:
    """A distribution: its name in files, its folder, and the ends of names that its wheels have."""

    name: str
    folder: Path
    endings: tuple[str, ...]


PACKAGES = (
    Package(
        "headway",
        ROOT,
        ("/recorder/static/index.html", ".data/purelib/headway_follow.pth"),
    ),
    Package("headway_lab", ROOT / "lab", ("/entry_points.txt",)),
)


@dataclass(frozen=True)
class Wheel:
    """A wheel of each package, for a version such as `313t`, an architecture such as `aarch64` and
    a C library."""

    tag: str
    architecture: str
    c_library: str = "gnu"

    @property
    def name(self) -> str:
        ending = "" if self.c_library == "gnu" else f"-{self.c_library}"
        return f"cp{self.tag}-{self.architecture}{ending}"

    @property
    def target(self) -> str:
        return f"{self.architecture}-unknown-linux-{self.c_library}"

    @property
    def policy(self) -> str:
        return f"manylinux_{GLIBC}" if self.c_library == "gnu" else f"musllinux_{MUSL}"

    @property
    def platform(self) -> str:
        return f"{self.policy}_{self.architecture}"

    def module(self, package: Package) -> str:
        platform = f"{self.architecture}-linux-{self.c_library}"
        return f"{package.name}/_native.cpython-{self.tag}-{platform}.so"

    @property
    def is_free_threaded(self) -> bool:
        return self.tag.endswith("t")

    @property
    def version(self) -> str:
        return f"3.{self.tag[1:].rstrip('t')}"

    @property
    def ending(self) -> str:
        """The end of the file's name: interpreter, ABI and platform."""
        return f"-cp{self.tag.rstrip('t')}-cp{self.tag}-{self.platform}.whl"

    def pyo3_config(self) -> str:
        return PYO3_CONFIG.format(
            version=self.version,
            flags="t" if self.is_free_threaded else "",
            tag=self.tag,
            build_flags="Py_GIL_DISABLED" if self.is_free_threaded else "",
        )


WHEELS = {
    wheel.name: wheel
    for wheel in (
        Wheel(tag, machine, c_library)
        for c_library in C_LIBRARIES
        for machine in ARCHITECTURES
        for tag in VERSIONS
    )
}


def chosen(arguments: Sequence[str]) -> list[str]:
    """The names in `arguments`, all of them if there are none. Raises `WheelError`."""
    names = [name for argument in arguments for name in argument.replace(",", " ").split()]
    for name in names:
        if name not in WHEELS and name != SDIST:
            versions = ", ".join(f"cp{tag}" for tag in VERSIONS)
            raise WheelError(
                f"found '{name}'; allowed: {SDIST}, or one of {versions} with "
                f"{' or '.join(f'-{machine}' for machine in ARCHITECTURES)}, and -musl behind it"
            )
    return list(dict.fromkeys(names)) or [SDIST, *WHEELS]


def prepare(names: Sequence[str]) -> None:
    """Brings the tools and the dashboard. Raises `WheelError` for what is missing."""
    os.chdir(ROOT)
    if shutil.which("cargo") is None:
        raise WheelError("cargo is missing: install Rust 1.85 or newer with rustup")
    for target in sorted({WHEELS[name].target for name in names if name in WHEELS}):
        printed = subprocess.run(
            ["rustc", "--print", "target-libdir", "--target", target],
            capture_output=True,
            text=True,
        )
        if not list(Path(printed.stdout.strip() or "/nonexistent").glob("libstd-*")):
            raise WheelError(f"Rust cannot compile for {target}: rustup target add {target}")
    if subprocess.call(["scripts/tools", "wheels"]) or subprocess.call(
        ["scripts/dashboard", "build"]
    ):
        raise WheelError("a tool or the dashboard is missing; the reason is above")
    if not Path("python/headway/recorder/static/index.html").is_file():
        raise WheelError("what is published has the dashboard, which needs Node.js")
    DIST.mkdir(exist_ok=True)


def run(command: Sequence[str | Path], log: Path, folder: Path = ROOT, **changes: str) -> None:
    """Runs a tool in `folder`; its output goes to `log`, and to stderr if it fails."""
    environment = {**os.environ, "PATH": f"{TOOLS}:{os.environ['PATH']}", **changes}
    with log.open("a") as output:
        status = subprocess.call(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            cwd=folder,
        )
    if status != 0:
        lines = [line for line in log.read_text().splitlines() if "Compiling" not in line]
        print(*lines[-60:], sep="\n", file=sys.stderr)
        raise WheelError(f"{Path(command[0]).name} failed; {log.relative_to(ROOT)} has its output")


def make_unwinder(architecture: str, log: Path) -> Path:
    """Makes a libgcc_s.so.1 to link against: the names and versions of its functions, no code.

    Without it zig links its own unwinder into the module. That one cannot continue what the
    process's libgcc_s began, and pthread_exit crashes in a frame of the module.
    """
    folder = WORK / architecture
    folder.mkdir(parents=True, exist_ok=True)
    source, versions, library = (
        folder / name for name in ("unwinder.c", "unwinder.map", "libgcc_s.so.1")
    )
    functions = [function for names in UNWINDER.values() for function in names]
    source.write_text("".join(f"void {function}(void) {{}}\n" for function in functions))
    versions.write_text(
        "".join(
            f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in UNWINDER.items()
        )
    )
    run(
        [
            TOOLS / "python",
            "-m",
            "ziglang",
            "cc",
            "-target",
            f"{architecture}-linux-gnu.{GLIBC.replace('_', '.')}",
            "-shared",
            "-nostdlib",
            f"-Wl,-soname,{library.name}",
            f"-Wl,--version-script={versions}",
            "-o",
            library,
            source,
        ],
        log,
    )
    return library


def link_flags(wheel: Wheel, log: Path) -> tuple[str, ...]:
    """musl's pthread_exit does not unwind, so that the unwinder in the module needs to know no
    other, and Alpine's images have no libgcc_s."""
    if wheel.c_library == "musl":
        return ("-Ctarget-feature=-crt-static",)
    return (f"-Clink-arg={make_unwinder(wheel.architecture, log)}",)


def build(package: Package, wheel: Wheel) -> Path:
    """The path of the finished wheel, in dist/."""
    folder = WORK / package.name / wheel.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = WORK / f"{package.name}-{wheel.name}.log"
    log.write_text("")
    config = folder / "pyo3.txt"
    config.write_text(wheel.pyo3_config())
    cargo_home = os.environ.get("CARGO_HOME") or Path.home() / ".cargo"
    flags = (
        *link_flags(wheel, log),
        # Messages name files of crates, not of the machine that built them.
        f"--remap-path-prefix={cargo_home}/registry/src=crates.io",
    )
    run(
        [
            TOOLS / "maturin",
            "build",
            "--release",
            "--locked",
            "--zig",
            "--target",
            wheel.target,
            "--compatibility",
            wheel.policy,
            "--auditwheel",
            "check",
            "--out",
            folder,
        ],
        log,
        package.folder,
        CARGO_TARGET_DIR=str(ROOT / "target" / f"wheels-{wheel.target}"),
        CARGO_ENCODED_RUSTFLAGS="\x1f".join(flags),
        CARGO_PROFILE_RELEASE_DEBUG="false",
        CARGO_PROFILE_RELEASE_STRIP="symbols",
        PYO3_CONFIG_FILE=str(config),
    )
    (made,) = folder.glob("*.whl")
    complete(made, find_python(wheel))
    check(package, wheel, made)
    return made.replace(DIST / made.name)


def find_python(wheel: Wheel) -> str | None:
    """An interpreter that compiles the wheel's modules, free-threaded or not. The one with a GIL
    comes first, so that one machine always makes the same file. Without one it prints a line."""
    said = ""
    for version in (wheel.version, f"{wheel.version}t"):
        found = subprocess.run(["scripts/find-python", version], capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.strip()
        said = said or found.stderr.strip()
    print(f"without bytecode ({said}) ", end="", flush=True)
    return None


def check(package: Package, wheel: Wheel, file: Path) -> None:
    """Raises `WheelError` if the wheel is not what its name says, or lacks a part."""
    if not file.name.endswith(wheel.ending):
        raise WheelError(f"{file.name}: the name should end in {wheel.ending}")
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
    modules = [name for name in names if name.endswith(".so")]
    if modules != [wheel.module(package)]:
        raise WheelError(f"{file.name}: has the modules {modules}, not {wheel.module(package)}")
    for ending in package.endings:
        if not any(name.endswith(ending) for name in names):
            raise WheelError(f"{file.name}: a file that ends in {ending} is missing")
    shown = subprocess.run(
        [TOOLS / "auditwheel", "show", "--json", file], capture_output=True, text=True
    )
    if shown.returncode != 0:
        raise WheelError(f"{file.name}: auditwheel: {shown.stderr.strip()}")
    audit = json.loads(shown.stdout)
    if wheel.c_library == "musl":
        # auditwheel knows musl's policies by the name that Alpine gives the file of the library.
        # musl takes any name that begins with `libc.` for itself; maturin has checked the symbols.
        if set(audit["external_libs"]) != {"libc.so"}:
            raise WheelError(f"{file.name}: the module needs {sorted(audit['external_libs'])}")
        return
    if audit["overall_tag"] != wheel.platform or audit["external_libs"]:
        raise WheelError(
            f"{file.name}: auditwheel finds {audit['overall_tag']}, "
            f"and of other packages {sorted(audit['external_libs']) or 'nothing'}"
        )
    if "libgcc_s.so.1" not in audit["versioned_symbols"]:
        raise WheelError(f"{file.name}: the module does not use the process's unwinder, libgcc_s")


def build_sdist(package: Package) -> Path:
    folder = WORK / package.name / SDIST
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = WORK / f"{package.name}-{SDIST}.log"
    log.write_text("")
    run([TOOLS / "maturin", "sdist", "--out", folder], log, package.folder)
    (made,) = folder.glob("*.tar.gz")
    return made.replace(DIST / made.name)


def row(file: Path) -> str:
    size = file.stat().st_size
    if file.suffix != ".whl":
        return f"{file.name:<64} {size / 1e6:5.2f} MB"
    with zipfile.ZipFile(file) as archive:
        files = archive.infolist()
    module_size = sum(info.file_size for info in files if info.filename.endswith(".so"))
    unpacked = sum(info.file_size for info in files)
    return (
        f"{file.name:<64} {size / 1e6:5.2f} MB {unpacked / 1e6:8.2f} MB "
        f"{module_size / 1e6:6.2f} MB {len(files):6}"
    )


def main(arguments: Sequence[str]) -> int:
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    try:
        names = chosen(arguments)
    except WheelError as error:
        print(f"wheels: {error}", file=sys.stderr)
        return 2
    made = []
    try:
        prepare(names)
        both = [(package, name) for name in names for package in PACKAGES]
        for number, (package, name) in enumerate(both, 1):
            print(f"wheels: {number} of {len(both)}: {package.name} {name} ", end="", flush=True)
            began_s = time.monotonic()
            file = build_sdist(package) if name == SDIST else build(package, WHEELS[name])
            print(f"{time.monotonic() - began_s:.0f} s", flush=True)
            made.append(file)
        index.make(DIST)
    except (WheelError, CompletionError, ValueError) as error:
        print(f"wheels: {error}", file=sys.stderr)
        return 1
    print(f"\n{'in dist/':<64} {'size':>8} {'unpacked':>11} {'module':>9} {'files':>6}")
    print("\n".join(map(row, made)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
