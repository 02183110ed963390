"""SetEnv, PassEnv and UnsetEnv: variables that mod_wsgi puts into the environ of each request, and
not into os.environ."""

from __future__ import annotations

import os

from headway.errors import CommandError
from headway.server.config.apache.hosts import Host
from headway.server.config.apache.syntax import Directive
from headway.server.config.configuration import Value
from headway.server.config.option_types import is_set_by_server

KEYS = ("setenv", "passenv", "unsetenv")


def read_variables(main: Host, hosts: list[Host], warnings: list[str]) -> dict[str, Value]:
    """The variables of a process group that serves `hosts`: those of server scope, changed by the
    virtual host. Raises `CommandError` if the hosts' variables differ, because Headway does not
    distinguish the hosts of an address."""
    found: dict[str, Value] = {}
    for number, host in enumerate(hosts):
        variables = _read(main, {}, warnings)
        if host is not main:
            of_main = {
                name: value._replace(origin=f"{value.origin}, inherited from server scope")
                for name, value in variables.items()
            }
            variables = _read(host, of_main, warnings)
        if number == 0:
            found = variables
        for name in found.keys() | variables.keys():
            one, other = found.get(name), variables.get(name)
            if one is None or other is None or one.value != other.value:
                there = one or other
                assert there is not None
                raise CommandError(
                    f"{there.origin}: found {name} for one of the virtual hosts of a process "
                    "group; allowed: the same for all of them",
                    exit_code=2,
                )
    return found


def _read(host: Host, inherited: dict[str, Value], warnings: list[str]) -> dict[str, Value]:
    variables = dict(inherited)
    for directive in host.directives:
        if directive.key in KEYS:
            _apply(directive, variables, warnings)
    return variables


def _apply(directive: Directive, variables: dict[str, Value], warnings: list[str]) -> None:
    words = directive.words
    if not words:
        raise directive.refuse("nothing", "the name of a variable")
    if directive.key == "setenv":
        if len(words) > 2:
            raise directive.refuse(directive.text, "NAME, and a value in quotes if it has spaces")
        if is_set_by_server(words[0]):
            warnings.append(_overwritten(directive, words[0]))
        else:
            variables[words[0]] = Value("".join(words[1:]), directive.place)
        return
    for name in words:
        if directive.key == "unsetenv":
            variables.pop(name, None)
        elif is_set_by_server(name):
            warnings.append(_overwritten(directive, name))
        elif name in os.environ:
            variables[name] = Value(os.environ[name], directive.place)
        else:
            warnings.append(
                f"{directive.place}: PassEnv: {name} is not in the environment of headway serve"
            )


def _overwritten(directive: Directive, name: str) -> str:
    """httpd overwrites these variables too."""
    return f"{directive.place}: {directive.name} {name} has no effect: the server sets it itself"
