"""Warnings about an Apache configuration that was read successfully: settings with another meaning
in Headway, and directives that were left out."""

from __future__ import annotations

from collections.abc import Iterator

from headway.server.config.apache import core
from headway.server.config.apache.contents import Contents
from headway.server.config.apache.groups import Group
from headway.server.config.apache.syntax import Directive, places
from headway.server.config.configuration import Draft
from headway.server.config.option_types import GLOBAL, show_application_group


def remarks(contents: Contents, groups: list[Group], draft: Draft) -> Iterator[str]:
    """Warnings, one line each."""
    yield from _unused(contents, groups)
    yield from contents.interpreters.warnings
    yield from _top_switch_interval(contents, draft)
    for group in groups:
        yield from _parts(contents, group)
    yield from _import_scripts(contents, groups)
    if logs := list(_logs_not_taken(contents)):
        yield (
            f"{contents.path}: CustomLog is left out where it is no known file in the common or "
            f"combined format: {places(logs)}"
        )


def _unused(contents: Contents, groups: list[Group]) -> Iterator[str]:
    served = {group.name for group in groups}
    for name, daemon in contents.daemons.items():
        if name not in served:
            yield (
                f"{daemon.directive.place}: process group {name} is left out: no WSGIScriptAlias "
                "that is served leads to it"
            )
    for name, section in contents.interpreters.groups_named().items():
        if name not in contents.daemons:
            yield f"{section.place}: there is no process group {name}"
    named = {name.value for group in groups for name in group.application_groups.values()}
    for name, section in contents.interpreters.application_groups_named().items():
        if name not in named:
            known = ", ".join(show_application_group(each) for each in sorted(named))
            yield f"{section.place}: no application is in application group {name}, but in {known}"


def _top_switch_interval(contents: Contents, draft: Draft) -> Iterator[str]:
    top = contents.interpreters.top_switch_interval()
    without = [
        group.name
        for group in draft.groups
        if group.name in contents.daemons and "switch-interval" not in group.given
    ]
    if top is not None and without:
        yield (
            f"{top.origin}: WSGISwitchInterval is for the default process group alone, and not for "
            f"{', '.join(without)}: that takes switch-interval= of WSGIDaemonProcess"
        )


def _parts(contents: Contents, group: Group) -> Iterator[str]:
    """Warns about a <Location> below an alias for which httpd would choose another interpreter or
    process."""
    for host in (contents.main, *(host for host in group.hosts if host is not contents.main)):
        for directive, sections in host.scoped:
            section = sections[-1] if sections else directive
            if section.key != "location" or len(section.words) != 1:
                continue
            path = section.words[0].rstrip("/")
            above = [each for each in group.aliases if f"{path}/".startswith(f"{each}/")]
            if not above or path in above:
                continue
            alias = group.aliases[max(above, key=len)]
            in_alias = {
                "wsgiapplicationgroup": alias.application_group.value,
                "wsgiprocessgroup": alias.process_group or GLOBAL,
            }
            said = in_alias.get(directive.key)
            if said is not None and " ".join(directive.words) != said:
                yield (
                    f"{directive.place}: {directive.name} is left out: {path} is a part of what "
                    f"WSGIScriptAlias {alias.path or '/'} serves; give it an alias of its own"
                )


def _import_scripts(contents: Contents, groups: list[Group]) -> Iterator[str]:
    scripts = {alias.script for group in groups for alias in group.aliases.values()}
    for host in contents.hosts:
        for directive in host.directives:
            if directive.key == "wsgiimportscript" and not scripts & set(directive.words):
                yield (
                    f"{directive.place}: WSGIImportScript is left out: what aliases lead to is "
                    "loaded at the start, and nothing else"
                )


def _logs_not_taken(contents: Contents) -> Iterator[Directive]:
    for host in contents.hosts:
        for directive in host.directives:
            if directive.key == "customlog" and (
                core.read_log(directive, contents.formats, contents.server_root) is None
            ):
                yield directive
