"""A configuration in TOML: `[server]`, and a table `[process-group.NAME]` for each process group.

    [server]
    switch-interval = 0.002             # for every group that does not set it

    [process-group.shop]
    app = "shop.wsgi:application"
    bind = "0.0.0.0:8000"               # or a list
    threads = 8

    [process-group.shop.mount]
    "/admin" = "admin:app"
    "/api" = { app = "api:app", application-group = "api" }

    [process-group.shop.application-groups.api]
    per-interpreter-gil = true

Keys are the names of the options. Every error is one line: FILE:LINE: key: found X; allowed: Y.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from headway import _native
from headway.errors import CommandError
from headway.options import Kind
from headway.server.config.application_group_options import INTERPRETER_OPTIONS
from headway.server.config.configuration import (
    TABLES,
    UNSAID,
    ApplicationGroupDraft,
    Draft,
    GroupDraft,
    MountDraft,
    Value,
    absolute,
    absolute_address,
    cut,
    mount,
    refuse,
)
from headway.server.config.option_types import (
    NOT_SET_BY_SERVER,
    Several,
    is_set_by_server,
    parse_application_group,
    parse_url_path,
)
from headway.server.config.options import APP, GROUP_OPTIONS, SERVER_OPTIONS, Option

GROUPS = "process-group"
APPLICATION_GROUPS = "application-groups"
# Options that each group sets for itself and that [server] cannot have.
OF_ONE_GROUP = {"app", "mount", "bind", "app-dir", APPLICATION_GROUPS}
GROUP_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.:-]*"


class Node(NamedTuple):
    """A value in the document: its line, its source text, and the parsed value."""

    line: int
    text: str
    value: Any

    def items(self) -> Iterable[tuple[str, Node]]:
        return [(key, Node(*node)) for key, node in self.value.items()]


def read_toml(path: str, text: str) -> Draft:
    """Returns the document as a draft. Raises `CommandError` with exit code 2."""
    try:
        document = Node(1, "", _native.parse_toml(text))
    except ValueError as error:
        line, found, message = error.args
        at = f" (at {cut(found)})" if found.strip() else ""
        raise CommandError(f"{path}:{line}: {message}{at}", exit_code=2) from None
    return _Reader(path).read(document)


class _Reader:
    def __init__(self, path: str) -> None:
        self._path = path
        self._folder = os.path.dirname(os.path.abspath(path))
        self._draft = Draft()

    def read(self, document: Node) -> Draft:
        for key, node in document.items():
            if key == "server":
                self._read_server(self._table(key, node))
            elif key == GROUPS:
                for name, group in self._table(key, node).items():
                    self._read_group(name, self._table(f"{GROUPS}.{name}", group))
            else:
                raise self._unknown(node, key, ("server", GROUPS))
        if not self._draft.groups:
            raise CommandError(
                f"{self._path}: there is no process group; allowed: [{GROUPS}.NAME] for each",
                exit_code=2,
            )
        return self._draft

    def _read_server(self, table: Node) -> None:
        known = {**SERVER_OPTIONS, **GROUP_OPTIONS}
        for key, node in table.items():
            if key in OF_ONE_GROUP:
                raise CommandError(
                    f"{self._place(node)}: server.{key}: found an option of one process group; "
                    f"allowed: in [{GROUPS}.NAME]",
                    exit_code=2,
                )
            option = known.get(key)
            if option is None:
                raise self._unknown(node, f"server.{key}", known)
            if option.of_server:
                self._draft.server[key] = self._value(f"server.{key}", option, node)
            else:
                value = self._value(f"server.{key}", option, node)
                self._draft.defaults[key] = _inherited(value)

    def _read_group(self, name: str, table: Node) -> None:
        path = f"{GROUPS}.{name}"
        if not re.fullmatch(GROUP_NAME, name):
            raise refuse(
                self._place(table), GROUPS, repr(name), "a name of letters, digits and _ . : -"
            )
        group = GroupDraft(name, self._place(table), self._folder)
        for key, node in table.items():
            if key == APPLICATION_GROUPS:
                self._read_application_groups(group, self._table(f"{path}.{key}", node))
                continue
            option = GROUP_OPTIONS.get(key)
            if option is None:
                raise self._unknown(node, f"{path}.{key}", (*GROUP_OPTIONS, APPLICATION_GROUPS))
            if key == "app":
                application = self._accept(f"{path}.app", option.kind, node)
                group.mounts.insert(0, mount("", application, self._folder, self._place(node)))
            elif key == "mount":
                group.mounts.extend(self._mounts(f"{path}.mount", node))
            elif key == "bind":
                if node.value == []:
                    raise refuse(self._place(node), f"{path}.bind", "[]", option.kind.allowed)
                for address in self._accept(f"{path}.bind", option.kind, node):
                    address = absolute_address(address, self._folder)
                    group.binds.append(Value(address, self._place(node)))
            else:
                group.given[key] = self._value(f"{path}.{key}", option, node)
        self._draft.groups.append(group)

    def _read_application_groups(self, group: GroupDraft, table: Node) -> None:
        path = f"{GROUPS}.{group.name}.{APPLICATION_GROUPS}"
        for name, node in table.items():
            try:
                parsed = parse_application_group(name)
            except ValueError:
                allowed = GROUP_OPTIONS["application-group"].kind.allowed
                raise refuse(self._place(node), path, repr(name), allowed) from None
            said = ApplicationGroupDraft(self._place(node))
            for key, each in self._table(f"{path}.{name}", node).items():
                option = INTERPRETER_OPTIONS.get(key)
                if option is None:
                    raise self._unknown(each, f"{path}.{name}.{key}", INTERPRETER_OPTIONS)
                said.given[key] = self._value(f"{path}.{name}.{key}", option, each)
            group.application_groups[parsed] = said

    def _mounts(self, path: str, table: Node) -> Iterable[MountDraft]:
        for url_path, node in self._table(path, table).items():
            try:
                parsed = parse_url_path(url_path)
            except ValueError:
                raise refuse(
                    self._place(node), path, f'"{url_path}"', 'a URL path, as "/admin"'
                ) from None
            yield self._mount(f"{path}.{url_path}", parsed, node)

    def _mount(self, path: str, url_path: str, node: Node) -> MountDraft:
        """Reads an application, or a table with an application and its application group."""
        application, group = node, UNSAID
        if isinstance(node.value, dict):
            given = dict(node.items())
            for key in given.keys() - {"app", "application-group"}:
                raise self._unknown(given[key], f"{path}.{key}", ("app", "application-group"))
            if "app" not in given:
                raise refuse(self._place(node), path, cut(node.text), "app, and application-group")
            application = given["app"]
            if "application-group" in given:
                key = f"{path}.application-group"
                option = GROUP_OPTIONS["application-group"]
                group = self._value(key, option, given["application-group"])
        name = self._accept(path, APP.kind, application)
        return mount(url_path, name, self._folder, self._place(application), group)

    def _value(self, path: str, option: Option, node: Node) -> Value:
        if option.name in TABLES:
            variables = {}
            for name, each in self._table(path, node).items():
                if not name or "=" in name or "\0" in name:
                    raise refuse(self._place(each), path, repr(name), "a name without =")
                if option.name == "environ" and is_set_by_server(name):
                    raise refuse(self._place(each), path, repr(name), NOT_SET_BY_SERVER)
                if not isinstance(each.value, str) or "\0" in each.value:
                    raise refuse(self._place(each), f"{path}.{name}", cut(each.text), "a string")
                variables[name] = Value(each.value, self._place(each))
            return Value(variables, self._place(node))
        value = self._accept(path, option.kind, node)
        return Value(absolute(option, value, self._folder), self._place(node))

    def _accept(self, path: str, kind: Kind, node: Node) -> Any:
        if isinstance(kind, Several):
            items = node.value if isinstance(node.value, list) else [node]
            return tuple(self._accept(path, kind.kind, Node(*item)) for item in items)
        try:
            return kind.accept(node.value)
        except ValueError:
            raise refuse(self._place(node), path, cut(node.text), kind.allowed) from None

    def _table(self, path: str, node: Node) -> Node:
        if not isinstance(node.value, dict):
            raise refuse(self._place(node), path, cut(node.text), f"a table: [{path}]")
        return node

    def _unknown(self, node: Node, path: str, known: Iterable[str]) -> CommandError:
        key = path.rpartition(".")[2]
        close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        allowed = f"{close[0]} is the closest" if close else ", ".join(known)
        return refuse(self._place(node), path, "an unknown key", allowed)

    def _place(self, node: Node) -> str:
        return f"{self._path}:{node.line}"


def _inherited(value: Value) -> Value:
    what = value.value
    if isinstance(what, dict):
        what = {name: _inherited(each) for name, each in what.items()}
    return Value(what, f"{value.origin}, inherited from [server]")
