"""The unresolved configuration of flags and files: values with their origins, for each group.

Also merges flags into the configuration of a file. `resolution` checks how values depend on each
other; this module does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headway.address import Address
from headway.errors import CommandError
from headway.server.application_name import parse_object_name
from headway.server.config.application_group_options import OF_SUB_INTERPRETERS
from headway.server.config.options import Option


class Value(NamedTuple):
    """A value and its origin, such as "default", "--threads" or "serve.toml:7"."""

    value: Any
    origin: str


DEFAULT = "default"
UNSAID = Value("", DEFAULT)
# Options that are tables: the value is a dict, and each variable in it a `Value`.
TABLES = ("environment", "environ")


class MountDraft(NamedTuple):
    """An application and the URL path at which it is mounted. If `application_group` is `UNSAID`,
    the process group's one applies."""

    path: str
    application: str
    origin: str
    application_group: Value = UNSAID


@dataclass
class ApplicationGroupDraft:
    """The configuration of one application group. `given` is keyed by the names of options."""

    place: str
    given: dict[str, Value] = field(default_factory=dict)


@dataclass
class GroupDraft:
    """The configuration of one process group. `given` is keyed by the names of options,
    `application_groups` by the names of the groups, with "" for the main interpreter. With
    `leaves_out`, an impossible option is left out with a warning, as in mod_wsgi, and not
    refused."""

    name: str
    place: str
    # The default of `app-dir`.
    folder: str
    mounts: list[MountDraft] = field(default_factory=list)
    binds: list[Value] = field(default_factory=list)  # of Address
    given: dict[str, Value] = field(default_factory=dict)
    application_groups: dict[str, ApplicationGroupDraft] = field(default_factory=dict)
    leaves_out: bool = False


@dataclass
class Draft:
    """The configuration of one source. `defaults` apply to groups that do not set the option."""

    groups: list[GroupDraft] = field(default_factory=list)
    server: dict[str, Value] = field(default_factory=dict)
    defaults: dict[str, Value] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def refuse(place: str, key: str, found: str, allowed: str) -> CommandError:
    """The one-line error about an invalid value. If `place` is a flag, it leaves out the key."""
    what = place if place.startswith("--") else f"{place}: {key}"
    return CommandError(f"{what}: found {found}; allowed: {allowed}", exit_code=2)


def table(variables: Iterable[tuple[str, str]], origin: str) -> Value:
    """The value of an option in `TABLES` whose variables all have the same origin."""
    return Value({name: Value(value, origin) for name, value in variables}, origin)


def merge(below: Mapping[str, Value], above: Mapping[str, Value]) -> dict[str, Value]:
    """Merges options by name; `above` takes precedence. Tables are merged variable by variable."""
    merged = {**below, **above}
    for name in TABLES:
        if name in below and name in above:
            both = {**below[name].value, **above[name].value}
            merged[name] = above[name]._replace(value=both)
    return merged


def cut(text: str) -> str:
    """`text` on one line of at most 60 characters, for a message."""
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."


def absolute(option: Option, value: Any, folder: str) -> Any:
    """`value` with its file names made absolute, relative to `folder`."""
    if option.path is None and option.name != "access-log":
        return value
    if isinstance(value, tuple):
        if option.name == "access-log":
            form, path = value
            return form, path and os.path.join(folder, path)
        return tuple(os.path.join(folder, each) for each in value)
    return os.path.join(folder, value)


def absolute_application(application: str, folder: str) -> str:
    """The absolute path of a script file, relative to `folder`; `module:callable` unchanged."""
    return application if is_object(application) else os.path.join(folder, application)


def is_object(application: str) -> bool:
    """Whether the application is an object of a module and not a script file."""
    return parse_object_name(application) is not None


def absolute_address(address: Address, folder: str) -> Address:
    if address.path is None:
        return address
    return address._replace(path=os.path.join(folder, address.path))


def put_over(flags: Draft, file: Draft, file_name: str) -> Draft:
    """The file's draft with the flags' values, which apply to its only process group.

    Raises `CommandError` if the file has several groups, since it is unclear which one is meant.
    """
    file.server.update(flags.server)
    group = flags.groups[0]
    values = (*group.binds, *group.given.values())
    origins = [mount.origin for mount in group.mounts] + [value.origin for value in values]
    if not origins:
        return file
    if len(file.groups) != 1:
        names = ", ".join(each.name for each in file.groups)
        raise CommandError(
            f"{origins[0]} with --config: it would be for one process group, and {file_name} has "
            f"{len(file.groups)} ({names}); set it there",
            exit_code=2,
        )
    target = file.groups[0]
    if target.leaves_out and "application-group" in group.given:
        raise CommandError(
            f"--application-group with --config: {file_name} has an application group for each "
            "alias; set WSGIApplicationGroup there",
            exit_code=2,
        )
    target.given = merge(target.given, group.given)
    for name, of_group in OF_SUB_INTERPRETERS.items():
        if of_group in group.given:
            for each in target.application_groups.values():
                each.given.pop(name, None)
    target.binds = group.binds or target.binds
    # An application replaces the file's one at the same path and keeps its application group.
    named = {mount.path: mount.application_group for mount in target.mounts}
    mounts = [
        mount._replace(application_group=named.get(mount.path, mount.application_group))
        for mount in group.mounts
    ]
    paths = {mount.path for mount in mounts}
    target.mounts = [*mounts, *(mount for mount in target.mounts if mount.path not in paths)]
    return file


def mount(
    path: str,
    application: str,
    folder: str,
    origin: str,
    application_group: Value = UNSAID,
) -> MountDraft:
    return MountDraft(path, absolute_application(application, folder), origin, application_group)
