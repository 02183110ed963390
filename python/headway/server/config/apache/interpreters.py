"""<WSGIInterpreterOptions>: settings for the interpreters that its selectors match, and their order
of precedence.

The rules are those of mod_wsgi's documentation. For each directive the container with more
selectors takes precedence, then the later one, then server scope. The directories of WSGIPythonPath
add up, the most specific first. A container with application-group= applies to the interpreters of
that group. A switch interval or a path without application-group= applies to the whole process.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from headway.options import Kind
from headway.server.config.apache.syntax import Directive
from headway.server.config.configuration import Value
from headway.server.config.option_types import GLOBAL, Several, Switch, Text
from headway.server.config.options import DAEMON_SWITCH_INTERVAL

ON_OR_OFF = Switch(True)
ON_OR_OFF.allowed = "On or Off"
DIRECTORIES = Several(Text("DIR", "directories with : between them"), ":")
CHILDREN: dict[str, Kind] = {
    "wsgiperinterpretergil": ON_OR_OFF,
    "wsgifreethreading": ON_OR_OFF,
    "wsgiswitchinterval": DAEMON_SWITCH_INTERVAL,
    "wsgipythonpath": DIRECTORIES,
    "wsgirestrictstdin": ON_OR_OFF,
    "wsgirestrictstdout": ON_OR_OFF,
    "wsgirestrictsignal": ON_OR_OFF,
}
NAMES = (
    "WSGIPerInterpreterGIL, WSGIFreeThreading, WSGISwitchInterval, WSGIPythonPath, "
    "WSGIRestrictStdin, WSGIRestrictStdout, WSGIRestrictSignal"
)
# The option of an application group for each directive; DEFAULTS has mod_wsgi's own defaults
# where Headway's differ.
OPTION_OF = {
    "wsgiperinterpretergil": "per-interpreter-gil",
    "wsgirestrictstdin": "restrict-stdin",
    "wsgirestrictstdout": "restrict-stdout",
    "wsgirestrictsignal": "restrict-signal",
}
DEFAULTS = {"restrict-signal": Value(True, "mod_wsgi's default")}


@dataclass
class Container:
    """One section. A selector that is `None` matches everything, "" the default process group or
    the main interpreter."""

    section: Directive
    process_group: str | None = None
    application_group: str | None = None
    values: dict[str, Value] = field(default_factory=dict)

    @property
    def specificity(self) -> int:
        return (self.process_group is not None) + (self.application_group is not None)

    def matches(self, process_group: str, application_group: str | None) -> bool:
        """`process_group` is "" for the default one. If `application_group` is `None`, only a
        container that applies to the whole process matches."""
        return self.process_group in (None, process_group) and self.application_group in (
            None,
            application_group,
        )


class Interpreters:
    """The directives about interpreters in server scope and in containers."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._containers: list[Container] = []
        self._top: dict[str, Value] = {}

    def add(self, directive: Directive) -> None:
        """A directive of `CHILDREN` at server scope, or a container."""
        if directive.children is None:
            value = self._value(directive)
            if value is not None and self._has_effect(directive, value, None):
                self._top[directive.key] = value
            return
        container = Container(directive)
        for name, text in directive.options(0):
            self._select(container, name, text)
        for child in directive.children:
            if child.key not in CHILDREN or child.children is not None:
                raise child.refuse(f"it in <{directive.name}>", NAMES)
            value = self._value(child)
            if value is not None and self._has_effect(child, value, container):
                container.values[child.key] = value
        self._containers.append(container)

    def _select(self, container: Container, name: str, text: str) -> None:
        section = container.section
        if not text:
            raise section.refuse(f"{name}=", "a name, or %{GLOBAL}")
        selected = "" if text == GLOBAL else text
        if name == "process-group" and container.process_group is None:
            container.process_group = selected
        elif name == "application-group" and container.application_group is None:
            container.application_group = selected
        elif name in ("process-group", "application-group"):
            raise section.refuse(f"{name} a second time", "each selector once")
        else:
            raise section.refuse(f"the unknown selector {name}", "process-group, application-group")

    def _value(self, directive: Directive) -> Value | None:
        if len(directive.words) != 1:
            raise directive.refuse(directive.text or "nothing", "one word")
        value = parse_word(directive, CHILDREN[directive.key])
        return Value(value, directive.place)

    def _has_effect(self, directive: Directive, value: Value, container: Container | None) -> bool:
        """Returns whether the directive has an effect. If not, a warning says so, unless the
        directive asks for what Headway does in any case."""
        reason = None
        is_of_group = container is not None and container.application_group is not None
        if directive.key == "wsgiperinterpretergil" and value.value and sys.version_info < (3, 12):
            version = f"{sys.version_info[0]}.{sys.version_info[1]}"
            reason = f"this is Python {version}, and a GIL of its own takes 3.12"
        elif directive.key == "wsgifreethreading" and is_of_group:
            reason = "free-threading is for whole processes: drop application-group="
        if reason is not None:
            self.warnings.append(f"{directive.place}: {directive.name} is left out: {reason}")
        return reason is None

    def switch_interval(self, process_group: str) -> Value | None:
        """The interval of the GIL that the interpreters of a process share. Server scope applies to
        the default process group alone. WSGIDaemonProcess has an option of its own, which takes
        precedence over everything here."""
        value = self._of_process("wsgiswitchinterval", process_group)
        return value or (self._top.get("wsgiswitchinterval") if process_group == "" else None)

    def free_threading(self, process_group: str) -> Value | None:
        """Whether the process group runs without a GIL. Server scope applies to every process
        group."""
        key = "wsgifreethreading"
        return self._of_process(key, process_group) or self._top.get(key)

    def _of_process(self, key: str, process_group: str) -> Value | None:
        container = self._winner(key, process_group, None)
        return container.values[key] if container else None

    def python_path(self, process_group: str) -> list[Value]:
        """Directories for sys.path in all interpreters, the most specific first, without those of
        the daemon itself."""
        layers = [each.values["wsgipythonpath"] for each in self._paths(process_group, None)]
        has_base = process_group == "" and "wsgipythonpath" in self._top
        return [*layers, self._top["wsgipythonpath"]] if has_base else layers

    def of_application_group(self, process_group: str, name: str) -> dict[str, Value]:
        """The options of one application group's interpreters, without those that apply to the
        whole process."""
        given = dict(DEFAULTS)
        for key, option in OPTION_OF.items():
            container = self._winner(key, process_group, name)
            value = self._top.get(key) if container is None else container.values[key]
            if value is not None:
                given[option] = value
        container = self._winner("wsgiswitchinterval", process_group, name)
        if container is not None and container.application_group is not None:
            given["switch-interval"] = container.values["wsgiswitchinterval"]
        paths = self._paths(process_group, name)
        # The process's own paths come last anyway. They are listed only where a path of the group
        # follows.
        while paths and paths[-1].application_group is None:
            del paths[-1]
        if paths:
            layers = [each.values["wsgipythonpath"] for each in paths]
            directories = tuple(path for layer in layers for path in layer.value)
            origin = " and ".join(layer.origin for layer in layers)
            given["python-path"] = Value(directories, origin)
        return given

    def _winner(self, key: str, process_group: str, name: str | None) -> Container | None:
        return next(iter(self._fitting(key, process_group, name)), None)

    def _paths(self, process_group: str, name: str | None) -> list[Container]:
        return self._fitting("wsgipythonpath", process_group, name)

    def _fitting(self, key: str, process_group: str, name: str | None) -> list[Container]:
        """The containers that set `key`, in order of precedence."""
        fitting = [
            each
            for each in self._containers
            if key in each.values and each.matches(process_group, name)
        ]
        # A stable sort leaves the later of two equals last.
        return sorted(fitting, key=lambda each: each.specificity)[::-1]

    def top_switch_interval(self) -> Value | None:
        return self._top.get("wsgiswitchinterval")

    def groups_named(self) -> dict[str, Directive]:
        """The process groups that containers select, each with its section, so that a missing one
        is found."""
        return {each.process_group: each.section for each in self._containers if each.process_group}

    def application_groups_named(self) -> dict[str, Directive]:
        """The application groups that containers name, each with its section."""
        return {
            each.application_group: each.section
            for each in self._containers
            if each.application_group and each.values
        }


def parse_word(directive: Directive, kind: Kind) -> object:
    """The one word after a directive."""
    if len(directive.words) != 1:
        raise directive.refuse(directive.text or "nothing", "one word")
    return parse_text(directive, kind, directive.words[0])


def parse_text(directive: Directive, kind: Kind, text: str) -> object:
    try:
        return kind.parse(text)
    except ValueError:
        raise directive.refuse(text or '""', kind.allowed) from None
