"""No import runs up the picture that opens ARCHITECTURE.md; modules of a crate form no cycle.

Reads the sources and Cargo's own account of the crates; imports nothing of Headway, so it runs
without a build. Top-level and lazy imports count alike: a function's import is an arrow too.
"""

import ast
import graphlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

rust_modules = pytest.importorskip(
    "rust_modules",
    reason="tests/requirements-layers.txt is not installed",
    exc_type=ImportError,
)

pytestmark = pytest.mark.slow("make lint runs it")

ROOT = Path(__file__).resolve().parent.parent
CRATES = sorted([*(ROOT / "crates").iterdir(), *(ROOT / "lab" / "crates").iterdir()])

# Top first. A part is a module or a package directly under `headway`; an import goes to a lower
# row or stays in its part. A new part gets its row here.
PYTHON_LAYERS = (
    {"__main__"},
    {"cli"},
    {"arguments"},
    {"commands"},
    {"tune"},
    {"output", "top"},
    {"attach"},
    {"programs", "recorder"},
    {"audit"},
    {"server"},
    {"environment", "pytest_plugin"},
    {"options"},
    {"meter"},
    {"profile", "trace"},
    {"report"},
    {"json_file", "json_shape"},
    {"_native"},
    {"temporary", "verbs"},
    {"address", "errors", "extras", "owned_folder", "quick_arguments"},
)
# `headway.gil` is the public face of `meter`, and belongs to it.
FACES = {"gil": "meter"}
RANKS = {part: -row for row, parts in enumerate(PYTHON_LAYERS) for part in parts}

# Code that runs inside other people's programs imports these alone, besides the standard library.
GUESTS = {
    "meter": {"_native", "errors", "gil", "json_file", "meter", "profile", "report", "trace"},
    "attach/guest": {"_native", "errors", "meter"},
    "environment": {"_native", "environment", "errors", "json_file", "meter", "options"},
    # It runs at the end of a measured program.
    "profile": {"_native", "errors", "json_file", "profile", "report"},
    "server/worker": {
        *("_native", "address", "errors", "gil", "meter", "options", "report", "server"),
    },
}

# The crates that each crate may depend on, in any kind of dependency, as a pattern for the name.
# Crates from outside that speak Python (pyo3...) are for the two modules, `headway-server` and
# `headway-python`; the C API is for the last: the modules name pyo3-ffi for its feature.
RUST_DEPENDENCIES = {
    "headway-native": r"headway-(server|python|reporter|telemetry|threads|gil|measure)|"
    r"pyo3-.*|libc|serde_json|toml",
    "headway-lab-native": r"headway-(python|refcounts|simulation)|pyo3-.*|serde_json",
    "headway-server": r"headway-(python|reporter|telemetry|threads|gil|measure)|pyo3-build-config|"
    r"(?!headway-|pyo3|python).*",
    "headway-python": r"pyo3-.*",
    "headway-reporter": r"headway-(telemetry|threads|gil|measure)|(?!headway-|pyo3|python).*",
    "headway-telemetry": r"headway-measure|(?!headway-|pyo3|python|libc$).*",
    "headway-refcounts": r"(?!headway-|pyo3|python|libc$).*",
    "headway-gil": r"headway-(measure|sched|threads)|(?!headway-|pyo3|python).*",
    "headway-threads": r"(?!headway-|pyo3|python).*",
    "headway-measure": r"(?!headway-|pyo3|python).*",
    "headway-simulation": r"headway-sched|(?!headway-|pyo3|python|libc$).*",
    "headway-sched": r"(?!headway-|pyo3|python|libc$).*",
}

# The parts of the server's crate, from the bottom. A module uses its own part and those before it.
SERVER_PARTS = (
    *("shutdown", "net", "stderr", "http", "stats", "connection", "limits", "request", "wsgi"),
    *("interpreters", "pool", "server"),
)


def imported_names(source: str, package: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Each name that a module of `package` imports, in parts, with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = package[: len(package) - node.level + 1] if node.level else []
            module = origin + (node.module.split(".") if node.module else [])
            # `from headway import gil` names a part; `from headway.gil import x` does not.
            yield from ((node.lineno, [*module, alias.name]) for alias in node.names)


def modules_of(root: Path, top: str = "headway") -> Iterator[tuple[Path, list[str], str]]:
    """Each module of the package `top` in `root`: its path, its package in parts, its source."""
    for path in sorted((root / top).rglob("*.py")):
        yield path, list(path.relative_to(root).with_suffix("").parts[:-1]), path.read_text()


def python_violations(root: Path) -> list[str]:
    """Every import under root/headway that runs up, and every part that has no row."""
    found = []
    for path, package, source in modules_of(root):
        part = package[1] if len(package) > 1 else FACES.get(path.stem, path.stem)
        if part == "__init__":
            # The root is imported before any part, so it may import none but the lowest.
            rank = RANKS["errors"] + 1
        elif part in RANKS:
            rank = RANKS[part]
        else:
            found.append(f"{path.relative_to(root)}: the part {part!r} has no row in PYTHON_LAYERS")
            continue
        for line, name in imported_names(source, package):
            if name[0] == "headway_lab":
                found.append(f"{path.relative_to(root)}:{line}: {part} imports headway_lab")
            # `import headway` itself is no arrow: a package's root runs before everything in it.
            target = name[1] if name[0] == "headway" and len(name) > 1 else part
            target = FACES.get(target, target)
            if target in RANKS and target != part and RANKS[target] >= rank:
                found.append(f"{path.relative_to(root)}:{line}: {part} imports {target}")
    return found


def guest_violations(root: Path) -> list[str]:
    """Every import of a guest that is neither the standard library's nor in its list."""
    found = []
    for path, package, source in modules_of(root):
        place = "/".join([*package[1:], path.stem])
        guest = next((name for name in GUESTS if place.startswith(name)), None)
        if guest is None:
            continue
        for line, name in imported_names(source, package):
            if name[0] == "headway":
                allowed = len(name) == 1 or name[1] in GUESTS[guest] or name[1] == "__version__"
            else:
                allowed = name[0] in sys.stdlib_module_names
            if not allowed:
                found.append(f"{path.relative_to(root)}:{line}: {guest} imports {'.'.join(name)}")
    return found


def python_cycle(root: Path, top: str = "headway") -> list[str] | None:
    """Modules of the package `top` in `root` that import each other in a circle, or None.

    A package's root is left out: it runs before everything in the package.
    """
    sources = {
        ".".join([*package, path.stem]): (package, source)
        for path, package, source in modules_of(root, top)
        if path.stem != "__init__"
    }
    graph = {
        name: {
            target
            for _, parts in imported_names(source, package)
            for target in (".".join(parts), ".".join(parts[:-1]))
            if target in sources and target != name
        }
        for name, (package, source) in sources.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return None


def rust_violations(root: Path) -> list[str]:
    """Every dependency in the workspace at `root` that RUST_DEPENDENCIES does not allow."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline"]
    metadata = json.loads(
        subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    )
    found = []
    for crate in metadata["packages"]:
        allowed = RUST_DEPENDENCIES.get(crate["name"])
        if allowed is None:
            found.append(f"the crate {crate['name']} has no entry in RUST_DEPENDENCIES")
            continue
        for dependency in crate["dependencies"]:
            # With other features, for its tests.
            is_itself = dependency["name"] == crate["name"]
            if not is_itself and not re.fullmatch(allowed, dependency["name"]):
                found.append(f"{crate['name']} depends on {dependency['name']}")
    return found


def test_no_python_import_runs_up() -> None:
    assert python_violations(ROOT / "python") == []


def test_guests_of_other_programs_import_nothing_else() -> None:
    assert guest_violations(ROOT / "python") == []


def test_the_configuration_knows_no_process() -> None:
    """Flags and files become settings, from which processes are made."""
    found = [
        f"{path.name}:{line} imports {'.'.join(name)}"
        for path, package, source in modules_of(ROOT / "python")
        if package[1:3] == ["server", "config"]
        for line, name in imported_names(source, package)
        if name[1:3] in (["server", "worker"], ["server", "supervisor"])
    ]
    assert found == []


def test_no_python_modules_form_a_cycle() -> None:
    assert python_cycle(ROOT / "python") is None


def test_no_modules_of_the_lab_form_a_cycle() -> None:
    assert python_cycle(ROOT / "lab", "headway_lab") is None


def test_no_crate_depends_upwards() -> None:
    assert rust_violations(ROOT) == []


@pytest.mark.parametrize(
    ("path", "source", "violation"),
    [
        ("gil.py", "import headway.server", "meter imports server"),
        ("gil.py", "from headway import audit", "meter imports audit"),
        ("commands/run.py", "from ..cli import main", "commands imports cli"),
        ("server/log.py", "from ..audit import main", "server imports audit"),
        ("server/log.py", "def write():\n    import headway.recorder", "server imports recorder"),
        ("errors.py", "from headway.gil import Snapshot", "errors imports meter"),
        ("__init__.py", "from headway import gil", "__init__ imports meter"),
        ("manager.py", "", "the part 'manager' has no row"),
        ("commands/run.py", "def f():\n    from headway_lab import verbs", "imports headway_lab"),
    ],
)
def test_an_import_that_runs_up_is_found(
    tmp_path: Path, path: str, source: str, violation: str
) -> None:
    module = tmp_path / "headway" / path
    module.parent.mkdir(parents=True)
    module.write_text(source)
    found = python_violations(tmp_path)
    assert len(found) == 1
    assert violation in found[0]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("commands/run.py", "from headway import gil, report\nfrom headway.errors import Error"),
        ("server/log.py", "from . import clock\nfrom .. import gil\nimport headway"),
        ("gil.py", "from headway import _native\nimport json\nfrom headway import __version__"),
    ],
)
def test_an_import_that_runs_down_is_allowed(tmp_path: Path, path: str, source: str) -> None:
    module = tmp_path / "headway" / path
    module.parent.mkdir(parents=True)
    module.write_text(source)
    assert python_violations(tmp_path) == []


@pytest.mark.parametrize(
    ("path", "source", "violation"),
    [
        ("meter/clock.py", "import numpy", "meter imports numpy"),
        ("meter/clock.py", "def now():\n    import textual.app", "meter imports textual.app"),
        ("meter/clock.py", "from headway.server import task", "meter imports headway.server.task"),
        ("server/worker/x.py", "from headway import trace", "worker imports headway.trace"),
    ],
)
def test_an_import_that_a_guest_may_not_have_is_found(
    tmp_path: Path, path: str, source: str, violation: str
) -> None:
    module = tmp_path / "headway" / path
    module.parent.mkdir(parents=True)
    module.write_text(source)
    (found,) = guest_violations(tmp_path)
    assert violation in found


@pytest.mark.parametrize(
    "sources",
    [
        {"a": "import headway.b", "b": "from headway import a"},
        {"a": "from headway.b import x", "b": "def f():\n    from . import a"},
        {"a": "from .b import x", "b": "from headway.c import x", "c": "import headway.a"},
    ],
)
def test_modules_that_import_each_other_are_found(tmp_path: Path, sources: dict[str, str]) -> None:
    (tmp_path / "headway").mkdir()
    for name, source in sources.items():
        (tmp_path / "headway" / f"{name}.py").write_text(source)
    assert set(python_cycle(tmp_path) or []) == {f"headway.{name}" for name in sources}


@pytest.mark.parametrize(
    ("crate", "dependency", "violation"),
    [
        ("headway-gil", "headway-server", "headway-gil depends on headway-server"),
        ("headway-gil", "pyo3-ffi", "headway-gil depends on pyo3-ffi"),
        ("headway-server", "headway-native", "headway-server depends on headway-native"),
        ("headway-sched", "libc", "headway-sched depends on libc"),
        ("headway-native", "headway-simulation", "headway-native depends on headway-simulation"),
        ("headway-native", "headway-refcounts", "headway-native depends on headway-refcounts"),
        ("headway-extras", "libc", "the crate headway-extras has no entry"),
    ],
)
def test_a_dependency_that_runs_up_is_found(
    tmp_path: Path, crate: str, dependency: str, violation: str
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "lib.rs").touch()
    (tmp_path / "Cargo.toml").write_text(
        f'[package]\nname = "{crate}"\nversion = "0.0.0"\nedition = "2021"\n'
        f'[workspace]\n[dependencies]\n{dependency} = "1"\n'
    )
    found = rust_violations(tmp_path)
    assert len(found) == 1
    assert violation in found[0]


def test_the_c_api_is_called_through_its_guards() -> None:
    """One import of a function of CPython without a guard can remove all guards of it."""
    sources = (path for crate in CRATES for path in (crate / "src").rglob("*.rs"))
    users = {path for path in sources if re.search(r"\bpyo3_ffi::", path.read_text())}
    assert users == {ROOT / "crates" / "python" / "src" / "c_api.rs"}


@pytest.mark.parametrize("crate", CRATES, ids=[crate.name for crate in CRATES])
def test_no_crate_has_a_cycle_of_modules(crate: Path) -> None:
    graph = rust_modules.module_graph(crate / "src" / "lib.rs")
    assert rust_modules.find_cycle(graph) is None


def upward_arrows(source: Path, parts: Sequence[str]) -> list[str]:
    """Arrows between the parts of a crate that do not run down; `source` is its `lib.rs`."""
    graph = rust_modules.module_graph(source)
    return [
        f"{'::'.join(module)} uses {'::'.join(target)}"
        for module, targets in graph.items()
        for target in targets
        if module and target and parts.index(target[0]) > parts.index(module[0])
    ]


def test_no_part_of_the_server_uses_one_above_it() -> None:
    lib = ROOT / "crates" / "server" / "src" / "lib.rs"
    assert upward_arrows(lib, SERVER_PARTS) == []


def test_an_arrow_that_runs_up_is_found(tmp_path: Path) -> None:
    (tmp_path / "low.rs").write_text("use crate::high::H;")
    (tmp_path / "high.rs").write_text("use crate::low::L;")
    (tmp_path / "lib.rs").write_text("mod high;\nmod low;\n")
    assert upward_arrows(tmp_path / "lib.rs", ("low", "high")) == ["low uses high"]


@pytest.mark.parametrize(
    "sources",
    [
        {"a": "use crate::b::B;", "b": "use super::a::A;"},
        {"a": "fn f() { crate::b::g() }", "b": "fn g() { super::a::f() }"},
        {"a": "use super::b;", "b": 'fn g() { println!("{}", crate::a::ONE) }'},
        {"a": "use crate::c::B;", "b": "use crate::a::A;", "c": "pub use super::b::*;"},
        {"a": "use crate::B as C;", "b": "use crate::a::A;"},
        {"a": "mod inner { use crate::b::B; }", "b": "use crate::a::inner::A;"},
    ],
)
def test_a_cycle_of_modules_is_found(tmp_path: Path, sources: dict[str, str]) -> None:
    assert cycle_of(tmp_path, sources) is not None


@pytest.mark.parametrize(
    "sources",
    [
        {"a": "use crate::b::B;", "b": ""},
        {"a": "mod inner { use super::A; }\nuse inner::I;"},
        {"a": "use crate::b::B;", "b": '// use crate::a::A;\nconst A: &str = "crate::a::A";'},
        {"a": "use crate::b::B;", "b": "#[cfg(test)]\nmod tests { use crate::a::A; }"},
        {"a": "use crate::b::B;", "b": "use a::A;\nuse std::a;"},
    ],
)
def test_arrows_that_form_no_cycle(tmp_path: Path, sources: dict[str, str]) -> None:
    assert cycle_of(tmp_path, sources) is None


def cycle_of(directory: Path, sources: dict[str, str]) -> str | None:
    """A cycle in a crate of these modules, whose root re-exports `b::B`."""
    for name, source in sources.items():
        (directory / f"{name}.rs").write_text(source)
    root = "".join(f"pub mod {name};\n" for name in sources) + "pub use b::B;\n"
    (directory / "lib.rs").write_text(root)
    cycle: str | None = rust_modules.find_cycle(rust_modules.module_graph(directory / "lib.rs"))
    return cycle
