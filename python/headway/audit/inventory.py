"""Imports the application in a child's main interpreter, and reports every extension module that is
then loaded: its file, its distribution, its importer, and its declarations."""

from __future__ import annotations

import os
import sys
import warnings
from importlib.machinery import ExtensionFileLoader
from types import ModuleType

from headway.errors import CommandError
from headway.server.worker.application import ImportFailed, load_application

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import Distribution
    from types import FrameType
    from typing import Any

    from headway.audit.event_pipe import EventPipe
    from headway.audit.task import Inventory


def run(events: EventPipe, task: Inventory) -> None:
    """Sends `refused` if the application cannot be loaded, else `module` for each module and
    `loaded`."""
    # A GIL that was switched on is a finding and needs no warning.
    warnings.filterwarnings("ignore", "The global interpreter lock", RuntimeWarning)
    importers = watch_importers()
    events.send("loading", application=task["application"])
    try:
        load_application(task["application"])
    except CommandError as error:
        details = error.details if isinstance(error, ImportFailed) else ""
        events.send("refused", message=str(error), exit_code=error.exit_code, details=details)
        return
    found = list(extension_modules())
    gil_enabled = getattr(sys, "_is_gil_enabled", lambda: True)()
    path = list(filter(None, map(os.fspath, sys.path)))
    # The list is complete, so from here on this process may import any module.
    from headway.audit.declaration import read_declaration

    distributions = Distributions()
    for name, module in found:
        file = module_file(module)
        distribution = distributions.of(name, file)
        events.send(
            "module",
            name=name,
            file=file,
            distribution=distribution and distribution.metadata["Name"],
            version=distribution and distribution.version,
            stdlib=distribution is None and name.partition(".")[0] in sys.stdlib_module_names,
            imported_by=importers.get(name),
            declares=read_declaration(module, file),
        )
    events.send("loaded", path=path, gil_enabled=gil_enabled)


def extension_modules() -> Iterator[tuple[str, ModuleType]]:
    """The modules in `sys.modules` that came from shared objects, each once, in the order of
    imports."""
    seen = set()
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if spec is None or not isinstance(getattr(spec, "loader", None), ExtensionFileLoader):
            continue
        if (spec.name, spec.origin) not in seen:
            seen.add((spec.name, spec.origin))
            # The name under which the module was imported, which may differ from its name in
            # sys.modules.
            yield spec.name if spec.name in sys.modules else name, module


def module_file(module: ModuleType) -> str:
    spec = module.__spec__
    assert spec is not None, "only modules with an ExtensionFileLoader are asked"
    return os.path.abspath(spec.origin or "")


def watch_importers() -> dict[str, str]:
    """Starts to record, by an extension module's name, the module whose code imported it first."""
    importers: dict[str, str] = {}
    create_module = ExtensionFileLoader.create_module

    def watched(self: ExtensionFileLoader, spec: Any) -> Any:
        importer = _nearest_importer(sys._getframe(1))
        if importer is not None:
            importers.setdefault(spec.name, importer)
        return create_module(self, spec)

    ExtensionFileLoader.create_module = watched  # type: ignore[method-assign]
    return importers


def _nearest_importer(frame: FrameType | None) -> str | None:
    while frame is not None:
        name = frame.f_globals.get("__name__")
        is_importlib = frame.f_code.co_filename.startswith("<frozen importlib")
        if not is_importlib and name != "importlib":
            return str(name) if name != "headway.server.worker.application" else None
        frame = frame.f_back
    return None


class Distributions:
    """Finds the installed distribution to which a file belongs."""

    def __init__(self) -> None:
        import importlib.metadata as metadata

        self._by_file: dict[str, Distribution] = {}
        for distribution in metadata.distributions():
            for file in distribution.files or ():
                if file.suffix == ".so":
                    path = os.path.realpath(str(distribution.locate_file(file)))
                    self._by_file.setdefault(path, distribution)
        self._packages = metadata.packages_distributions()
        self._distribution = metadata.distribution

    def of(self, name: str, file: str) -> Distribution | None:
        """Uses the record of installed files. If the file is not in it, as with editable
        installations, uses the name of the package, if only one distribution has it."""
        found = self._by_file.get(os.path.realpath(file))
        candidates = set(self._packages.get(name.partition(".")[0], []))
        if found is None and len(candidates) == 1:
            return self._distribution(candidates.pop())
        return found
