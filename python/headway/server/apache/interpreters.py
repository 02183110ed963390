"""<WSGIInterpreterOptions>: settings for the interpreters that its selectors match, and who wins.

The rules are mod_wsgi's as its documentation has them: for each directive the container with more
selectors goes first, then the later one, then server scope; WSGIPythonPath adds up, the most
specific directories first. Every application runs in the main interpreter so far and shares its
GIL, so a switch interval for one application group is refused with a warning.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.server.apache.syntax import Directive
from headway.server.configuration import Value
from headway.server.kinds import Kind, Several, Switch, Text
from headway.server.options import DAEMON_SWITCH_INTERVAL

GLOBAL = "%{GLOBAL}"
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

    def matches(self, process_group: str, application_groups: set[str]) -> bool:
        """`process_group` is "" for the default one."""
        return self.process_group in (None, process_group) and (
            self.application_group is None or self.application_group in application_groups
        )


class Interpreters:
    """What server scope and the containers say of interpreters."""

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
        """Whether it is heeded; if not, a warning says so, unless it asks for what is so anyway."""
        reason = None
        if directive.key == "wsgiswitchinterval":
            if container is not None and container.application_group is not None:
                reason = (
                    "its interpreter shares the GIL of the process, and so would the value; "
                    "select on process-group= alone (WSGI0199)"
                )
        elif directive.key == "wsgiperinterpretergil" and value.value:
            reason = "own-GIL interpreters are not available yet: the process's GIL is shared"
        elif directive.key == "wsgifreethreading":
            if container is not None and container.application_group is not None:
                reason = "free-threading is for whole processes: drop application-group= (WSGI0201)"
        elif directive.key.startswith("wsgirestrict") and value.value:
            reason = "applications may use it"
        if reason is not None:
            self.warnings.append(f"{directive.place}: {directive.name} is left out: {reason}")
        kept = ("wsgiswitchinterval", "wsgipythonpath", "wsgifreethreading")
        return reason is None and directive.key in kept

    def switch_interval(self, process_group: str) -> Value | None:
        """For the one GIL of a process. Server scope is for the default process group alone: a
        WSGIDaemonProcess has an option of its own, which goes before all of this."""
        value = self._of_process("wsgiswitchinterval", process_group)
        return value or (self._top.get("wsgiswitchinterval") if process_group == "" else None)

    def free_threading(self, process_group: str) -> Value | None:
        """Server scope is for every process group."""
        key = "wsgifreethreading"
        return self._of_process(key, process_group) or self._top.get(key)

    def _of_process(self, key: str, process_group: str) -> Value | None:
        """What the containers say that select no application group: the most specific, the last."""
        for container in sorted(self._containers, key=lambda each: each.specificity)[::-1]:
            value = container.values.get(key)
            if value is not None and container.matches(process_group, set()):
                return value
        return None

    def python_path(self, process_group: str, application_groups: set[str]) -> list[Value]:
        """Directories for sys.path, the most specific first, without the base of a daemon."""
        layers = [self._top["wsgipythonpath"]] if self._has_base(process_group) else []
        for container in sorted(self._containers, key=lambda each: each.specificity):
            value = container.values.get("wsgipythonpath")
            if value is not None and container.matches(process_group, application_groups):
                layers.append(value)
        return layers[::-1]

    def _has_base(self, process_group: str) -> bool:
        return process_group == "" and "wsgipythonpath" in self._top

    def top_switch_interval(self) -> Value | None:
        return self._top.get("wsgiswitchinterval")

    def groups_named(self) -> dict[str, Directive]:
        """The process groups that containers select, for a look at whether they exist."""
        return {each.process_group: each.section for each in self._containers if each.process_group}


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
