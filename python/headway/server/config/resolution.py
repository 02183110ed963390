"""Resolves a draft: fills in defaults, checks values that depend on each other, and returns a
`ServerSettings` together with the origin of every value.

Raises `CommandError` with exit code 2 for an impossible configuration. `check` examines the files
that it names; this module does not. With `free-threading`, it runs the group's own Python, if that
is another one, to find out whether it supports free-threading.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from headway.address import Address
from headway.errors import CommandError
from headway.server import descriptors, free_threading
from headway.server.config.application_groups import (
    ResolvedApplicationGroup,
    resolve_application_groups,
)
from headway.server.config.configuration import (
    DEFAULT,
    TABLES,
    Draft,
    GroupDraft,
    MountDraft,
    Value,
    merge,
)
from headway.server.config.options import GROUP_OPTIONS, OPTIONS, SERVER_OPTIONS
from headway.server.settings import (
    MAX_LISTENERS,
    HttpLimits,
    Mount,
    ProcessGroup,
    ServerSettings,
    Tls,
)

NOTHING = Value(None, DEFAULT)
# The origin of the addresses that a service manager passes.
PASSED = "LISTEN_FDS"
EVERY_HOST = {"0.0.0.0", "::"}
# Options that share a field with others, or whose field has another form.
NO_FIELD_OF_THEIR_OWN = {"app", "mount", "bind", "access-log", "app-dir", *TABLES}


class ResolvedGroup(NamedTuple):
    """One process group. `values` has every option of a group except applications and addresses,
    and each mount has its application group."""

    settings: ProcessGroup
    place: str
    mounts: list[MountDraft]
    application_groups: list[ResolvedApplicationGroup]
    binds: list[Value]
    values: dict[str, Value]


class Resolution(NamedTuple):
    """The settings of a server and the origin of each value."""

    settings: ServerSettings
    groups: list[ResolvedGroup]
    server: dict[str, Value]
    warnings: list[str]


def resolve(draft: Draft, passed: Sequence[Address] = ()) -> Resolution:
    """Resolves the draft. `passed` are the inherited addresses, which a process group without
    addresses gets if it is the only group."""
    if not draft.groups:
        raise CommandError("there is no process group to serve", exit_code=2)
    warnings = list(draft.warnings)
    if len(draft.groups) == 1 and not draft.groups[0].binds:
        draft.groups[0].binds = [Value(address, PASSED) for address in passed]
    groups = [_resolve_group(group, draft.defaults, warnings) for group in draft.groups]
    _refuse_shared_addresses(groups)
    _refuse_background_names(groups)
    server = {
        name: draft.server.get(name, Value(option.default(), DEFAULT))
        for name, option in SERVER_OPTIONS.items()
    }
    settings = ServerSettings(
        groups=tuple(group.settings for group in groups),
        **{SERVER_OPTIONS[name].field: value.value for name, value in server.items()},
    )
    warnings.extend(_server_without_effect(server))
    return Resolution(settings, groups, server, list(dict.fromkeys(warnings)))


def _refuse_background_names(groups: list[ResolvedGroup]) -> None:
    """The group of a background process must not have the name of another group."""
    places = {group.settings.name: group.place for group in groups}
    for group in groups:
        name = group.settings.of_background().name
        if group.settings.background and name in places:
            origin = group.values["background"].origin
            raise CommandError(
                f"{places[name]}: found a process group {name}, which is the name of the "
                f"background process of {group.settings.name} ({origin}); allowed: another name",
                exit_code=2,
            )


def _resolve_group(
    draft: GroupDraft, defaults: dict[str, Value], warnings: list[str]
) -> ResolvedGroup:
    given = merge(defaults, draft.given)
    values = {
        name: given.get(name) or Value(option.default(), DEFAULT)
        for name, option in GROUP_OPTIONS.items()
        if name not in ("app", "mount", "bind")
    }
    if values["app-dir"].value is None:
        home = values["home"]
        values["app-dir"] = home if home.value is not None else Value(draft.folder, DEFAULT)
    binds = draft.binds or [Value(address, DEFAULT) for address in OPTIONS["bind"].default()]
    if len(binds) > MAX_LISTENERS:
        raise CommandError(
            f"{binds[MAX_LISTENERS].origin}: bind: found {len(binds)} addresses; "
            f"allowed: up to {MAX_LISTENERS} in a process group",
            exit_code=2,
        )
    _refuse_repeated_mounts(draft)
    _refuse_free_threading(values)
    warnings.extend(_without_effect(draft.name, values, binds))
    mounts, groups = resolve_application_groups(draft, values, gil_enabled(values), warnings)
    settings = replace(
        _settings(draft, binds, values),
        mounts=tuple(
            Mount(each.path, each.application, each.application_group.value) for each in mounts
        ),
        application_groups=tuple(group.settings for group in groups),
    )
    return ResolvedGroup(settings, draft.place, mounts, groups, binds, values)


def _settings(draft: GroupDraft, binds: list[Value], values: dict[str, Value]) -> ProcessGroup:
    fields: dict[str, Any] = {}
    http: dict[str, Any] = {}
    for name, value in values.items():
        part, _, field = OPTIONS[name].field.rpartition(".")
        if name in NO_FIELD_OF_THEIR_OWN or part in ("tls", "application_group"):
            continue
        (http if part == "http" else fields)[field] = value.value
    fields["app_dir"] = values["app-dir"].value or None
    for name in TABLES:
        fields[name] = {key: value.value for key, value in values[name].value.items()}
    fields["access_log"], fields["access_log_path"] = values["access-log"].value
    return ProcessGroup(
        name=draft.name,
        binds=tuple(bind.value for bind in binds),
        tls=_tls(draft, values),
        http=HttpLimits(**http),
        **fields,
    )


def _tls(draft: GroupDraft, values: dict[str, Value]) -> Tls | None:
    certificate, key = values["tls-certificate"], values["tls-key"]
    if certificate.value and key.value:
        return Tls(certificate.value, key.value)
    for given, missing in ((certificate, "tls-key"), (key, "tls-certificate")):
        if given.value:
            name = f"--{missing}" if given.origin.startswith("--") else missing
            raise CommandError(f"{given.origin}: {name} is missing: TLS needs both", exit_code=2)
    return None


def _refuse_repeated_mounts(draft: GroupDraft) -> None:
    if not draft.mounts:
        raise CommandError(
            f"{draft.place}: process group {draft.name} has no application; "
            "allowed: app, or mount with a URL path for each",
            exit_code=2,
        )
    first: dict[str, MountDraft] = {}
    for mount in draft.mounts:
        other = first.setdefault(mount.path, mount)
        if other is not mount:
            raise CommandError(
                f"{mount.origin}: mount: found {mount.path or '/'} a second time "
                f"(first: {other.origin}); allowed: one application for each URL path",
                exit_code=2,
            )


def _refuse_shared_addresses(groups: list[ResolvedGroup]) -> None:
    seen: list[tuple[Value, str]] = []
    for group in groups:
        for bind in group.binds:
            for other, name in seen:
                # Each group gets its own socket for port 0.
                if _overlap(bind.value, other.value) and not (
                    bind.value.is_any_port and name != group.settings.name
                ):
                    raise CommandError(
                        f"{bind.origin}: bind: process group {group.settings.name} is to listen on "
                        f"{bind.value}, and {name} on {other.value} ({other.origin}); "
                        "allowed: an address is given once, to one process group",
                        exit_code=2,
                    )
            seen.append((bind, group.settings.name))


def _overlap(one: Address, other: Address) -> bool:
    if one.path is not None or other.path is not None:
        return one.path == other.path
    if one == other:
        return True
    any_host = {one.host, other.host} & EVERY_HOST
    return one.port == other.port != 0 and (one.host == other.host or bool(any_host))


def _without_effect(name: str, values: dict[str, Value], binds: list[Value]) -> Iterator[str]:
    """Warnings about values that have no effect, or only part of their effect."""
    interval = values["switch-interval"]
    if interval.value is not None and not gil_enabled(values):
        yield (
            f"{interval.origin}: switch-interval of process group {name} has no effect: "
            "free-threading is active, and there is no GIL to yield"
        )
    connections, within_reach = values["max-connections"], descriptors.within_reach()
    if connections.origin != DEFAULT and connections.value > within_reach:
        yield (
            f"{connections.origin}: max-connections of process group {name} is out of reach: the "
            f"hard limit of open files (ulimit -Hn) leaves {within_reach} connections"
        )
    background = values["background"]
    has_tls = values["tls-certificate"].value and any(each.value.path is None for each in binds)
    if background.value and has_tls:
        yield (
            f"{background.origin}: background of process group {name} has no effect over TLS: "
            "such a connection stays where it is"
        )
    for option, needed in (
        ("maximum-requests-jitter", "maximum-requests"),
        ("interrupt-timeout", "request-timeout"),
    ):
        if values[option].value and not values[needed].value:
            yield f"{values[option].origin}: {option} has no effect without {needed}"


def _server_without_effect(values: dict[str, Value]) -> Iterator[str]:
    # With a dashboard, the processes report to it.
    reports = values["telemetry"].value or values["dashboard"].value
    for option, needed, is_there in (
        ("telemetry-interval", "telemetry", reports),
        ("slow-requests", "telemetry", reports),
        ("capture-user-agent", "slow-requests", values["slow-requests"].value),
    ):
        value = values[option]
        if value.value and value.origin != DEFAULT and not is_there:
            yield f"{value.origin}: {option} has no effect without {needed}"


def _refuse_free_threading(values: dict[str, Value]) -> None:
    wanted, home = values["free-threading"], values["python-home"].value
    if wanted.value and free_threading.is_free_threaded(home) is False:
        name = "" if wanted.origin.startswith("--") else "free-threading: "
        raise CommandError(
            f"{wanted.origin}: {name}{free_threading.interpreter(home)} cannot run without a GIL; "
            f"allowed: {free_threading.ALLOWED}",
            exit_code=2,
        )


def gil_enabled(values: Mapping[str, Value]) -> bool:
    """Whether the processes of a group with these options will have a GIL. Options may be
    missing."""
    home, wanted = (values.get(name, NOTHING).value for name in ("python-home", "free-threading"))
    return free_threading.will_have_gil(home, bool(wanted))
