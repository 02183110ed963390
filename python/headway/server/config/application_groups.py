"""The application groups of a process group: which applications each contains, and the options of
its interpreters.

This module checks the options against the limits of CPython and of the processes: a GIL for each
interpreter, at most as many interpreters as threads, a switch interval for an interpreter that
shares its GIL. An impossible option is refused, or left out with mod_wsgi's warning if the draft
has `leaves_out`.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from headway.errors import CommandError
from headway.server.config.application_group_options import INTERPRETER_OPTIONS, OF_SUB_INTERPRETERS
from headway.server.config.configuration import DEFAULT, GroupDraft, MountDraft, Value, refuse
from headway.server.config.option_types import show_application_group
from headway.server.config.options import MAX_INTERPRETERS, OPTIONS
from headway.server.settings import DEFAULT_POLICY, ApplicationGroup

# Why the main interpreter, alone in its group, cannot have these options of a sub-interpreter.
OF_THE_MAIN_INTERPRETER = {
    "per-interpreter-gil": "whose GIL is that of the process",
    "maximum-requests": "which lives as long as its process",
    "on-demand": "which is there from the start",
}


class ResolvedApplicationGroup(NamedTuple):
    """One application group. `values` has every option of `INTERPRETER_OPTIONS`."""

    settings: ApplicationGroup
    place: str
    values: dict[str, Value]

    @property
    def shown(self) -> str:
        return show_application_group(self.settings.name)


def resolve_application_groups(
    draft: GroupDraft, values: dict[str, Value], has_gil: bool, warnings: list[str]
) -> tuple[list[MountDraft], list[ResolvedApplicationGroup]]:
    """Returns the mounts, each with its application group, and these groups in the order of the
    mounts. `values` are the process group's options; sets its `application-group`."""
    values["application-group"] = _of_process_group(draft, values)
    mounts = [
        mount._replace(application_group=values["application-group"])
        if mount.application_group.origin == DEFAULT
        else mount
        for mount in draft.mounts
    ]
    named: dict[str, Value] = {}
    for mount in mounts:
        named.setdefault(mount.application_group.value, mount.application_group)
    _refuse_unknown(draft, named)
    is_all_in_main = not any(named)
    several_in_main = is_all_in_main and values["interpreters"].value > 1
    if is_all_in_main and not several_in_main:
        _refuse_of_main(draft, named[""])
    resolver = _Resolver(draft, values, has_gil, several_in_main, warnings)
    groups = [resolver.resolve(name, value.origin) for name, value in named.items()]
    _check_processes(draft, values, groups)
    return mounts, groups


def _of_process_group(draft: GroupDraft, values: dict[str, Value]) -> Value:
    """The application group of applications for which none is configured. If the process group has
    `per-interpreter-gil` and one interpreter, that group is named after the first of these
    applications."""
    given, own_gil = values["application-group"], values["per-interpreter-gil"]
    unsaid = [mount for mount in draft.mounts if mount.application_group.origin == DEFAULT]
    is_wanted = own_gil.value and values["interpreters"].value == 1
    if given.origin != DEFAULT or not unsaid or not is_wanted:
        return given
    return Value(unsaid[0].application, f"{unsaid[0].origin}, for {own_gil.origin}")


def _refuse_unknown(draft: GroupDraft, named: dict[str, Value]) -> None:
    for name, group in draft.application_groups.items():
        if name not in named:
            known = ", ".join(map(show_application_group, named))
            raise refuse(
                group.place,
                "application-groups",
                f"{show_application_group(name)}, and no application of process group "
                f"{draft.name} in it",
                known,
            )


def _refuse_of_main(draft: GroupDraft, group: Value) -> None:
    """Refuses options of sub-interpreters in a process group that has none."""
    for name in OF_THE_MAIN_INTERPRETER:
        of_group = OF_SUB_INTERPRETERS[name]
        value = draft.given.get(of_group)
        if value is not None and value.value != OPTIONS[of_group].default():
            raise _of_main(value, name, of_group, group.origin)


def _of_main(value: Value, name: str, key: str, why: str) -> CommandError:
    shown = OPTIONS[OF_SUB_INTERPRETERS[name]].show(value.value)
    return refuse(
        value.origin,
        key,
        f"{shown} for %{{GLOBAL}} ({why}), the main interpreter, {OF_THE_MAIN_INTERPRETER[name]}",
        "in an application group of another name",
    )


class _Resolver:
    """Completes and checks the options of each application group of one process group."""

    def __init__(
        self,
        draft: GroupDraft,
        values: dict[str, Value],
        has_gil: bool,
        several_in_main: bool,
        warnings: list[str],
    ) -> None:
        self._draft = draft
        self._of_process_group = values
        self._has_gil = has_gil
        self._several_in_main = several_in_main
        self._warnings = warnings

    def resolve(self, name: str, named_by: str) -> ResolvedApplicationGroup:
        said = self._draft.application_groups.get(name)
        given = said.given if said is not None else {}
        values = {
            option: given.get(option) or self._inherited(option, name)
            for option in INTERPRETER_OPTIONS
        }
        if name == "" and values["interpreters"].value == 1:
            self._check_main(values, named_by)
        else:
            self._check_own_gil(name, values)
            self._check_count(name, values)
        self._check_switch_interval(name, values)
        fields = {
            INTERPRETER_OPTIONS[option].field.rpartition(".")[2]: value.value
            for option, value in values.items()
        }
        place = said.place if said is not None else named_by
        return ResolvedApplicationGroup(ApplicationGroup(name, **fields), place, values)

    def _inherited(self, option: str, name: str) -> Value:
        """The value of an option that the application group does not set. The process group's
        options for sub-interpreters do not apply to the main interpreter, unless its group has
        several interpreters."""
        if option in OF_SUB_INTERPRETERS and (name or self._several_in_main):
            return self._of_process_group[OF_SUB_INTERPRETERS[option]]
        return Value(INTERPRETER_OPTIONS[option].default(), DEFAULT)

    def _check_main(self, values: dict[str, Value], named_by: str) -> None:
        for option in OF_THE_MAIN_INTERPRETER:
            value, default = values[option], INTERPRETER_OPTIONS[option].default()
            if value.value == default:
                continue
            if not self._draft.leaves_out:
                raise _of_main(value, option, option, named_by)
            self._warnings.append(
                f"{value.origin}: WSGIPerInterpreterGIL has no effect on the application group "
                "%{GLOBAL}: it is the main interpreter, whose GIL is that of the process"
            )
            values[option] = Value(default, f"{value.origin}, left out")

    def _check_own_gil(self, name: str, values: dict[str, Value]) -> None:
        own, shown = values["per-interpreter-gil"], show_application_group(name)
        if not own.value:
            return
        if not self._has_gil:
            self._warnings.append(
                f"{own.origin}: {self._named('per-interpreter-gil', own)} of application group "
                f"{shown} has no effect: free-threading is active, and there is no GIL to have"
            )
            values["per-interpreter-gil"] = Value(False, f"{own.origin}, left out")
        elif sys.version_info < (3, 12):
            version = f"{sys.version_info[0]}.{sys.version_info[1]}"
            raise refuse(
                own.origin,
                "per-interpreter-gil",
                f"true on Python {version}",
                "from Python 3.12 on",
            )

    def _check_count(self, name: str, values: dict[str, Value]) -> None:
        count, threads = values["interpreters"], self._of_process_group["threads"]
        shown = show_application_group(name)
        if count.value > threads.value:
            raise refuse(
                count.origin,
                "interpreters",
                f"{count.value} for application group {shown} in processes of {threads.value} "
                f"threads ({threads.origin})",
                "up to one for each thread",
            )
        if count.value > 1 and self._has_gil and not values["per-interpreter-gil"].value:
            self._warnings.append(
                f"{count.origin}: the {count.value} interpreters of application group "
                f"{shown} share one GIL, and so one core; per-interpreter-gil gives each its own"
            )

    def _check_switch_interval(self, name: str, values: dict[str, Value]) -> None:
        """Refuses or leaves out a switch interval that cannot take effect. CPython has one switch
        interval for each GIL; a policy that schedules threads has one for each thread."""
        interval, policy = values["switch-interval"], self._of_process_group["policy"]
        if interval.value is None:
            return
        shown = show_application_group(name)
        what = f"{self._named('switch-interval', interval)} of application group {shown}"
        if not self._has_gil:
            self._warnings.append(
                f"{interval.origin}: {what} has no effect: free-threading is active, and there is "
                "no GIL to yield"
            )
        elif values["per-interpreter-gil"].value or (policy.value or DEFAULT_POLICY) != "interval":
            return
        elif self._draft.leaves_out:
            way_out = ", or give it WSGIPerInterpreterGIL" if name else ""
            self._warnings.append(
                f"{interval.origin}: {what} is left out: its interpreter shares the GIL of the "
                f"process, and so would the value under policy interval ({policy.origin}); select "
                f"on process-group= alone{way_out}"
            )
        else:
            found = INTERPRETER_OPTIONS["switch-interval"].show(interval.value)
            raise refuse(
                interval.origin,
                "switch-interval",
                f"{found} for application group {shown}, which shares the process's GIL, under "
                f"policy interval ({policy.origin})",
                "with per-interpreter-gil, or under another policy",
            )
        values["switch-interval"] = Value(None, f"{interval.origin}, left out")

    def _named(self, option: str, value: Value) -> str:
        """The option's name in the source that set the value."""
        if not self._draft.leaves_out or value.origin.startswith("--"):
            return option
        return {
            "per-interpreter-gil": "WSGIPerInterpreterGIL",
            "switch-interval": "WSGISwitchInterval",
        }[option]


def _check_processes(
    draft: GroupDraft, values: dict[str, Value], groups: list[ResolvedApplicationGroup]
) -> None:
    subs = [group for group in groups if group.settings.name]
    # The first interpreter of the group "" is the main interpreter.
    total = sum(group.settings.interpreters - (not group.settings.name) for group in groups)
    if total > MAX_INTERPRETERS:
        raise refuse(
            draft.place,
            "interpreters",
            f"{total} sub-interpreters in process group {draft.name}",
            f"up to {MAX_INTERPRETERS} in a process",
        )
    preload = values["preload"]
    if preload.value and subs:
        raise refuse(
            preload.origin,
            "preload",
            f"application group {subs[0].shown} ({subs[0].place}), which is a sub-interpreter",
            "%{GLOBAL} alone, since fork() ends all others",
        )
