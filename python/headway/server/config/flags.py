"""The flags of `headway serve`: adds them to a parser and reads their values.

The table in `options` defines the flags and their allowed values.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from headway.options import argument
from headway.server.config.configuration import (
    TABLES,
    Draft,
    GroupDraft,
    Value,
    absolute,
    mount,
    table,
)
from headway.server.config.option_types import Several, Switch
from headway.server.config.options import APP, OPTIONS, SECTIONS, Option

GROUP_NAME = "main"
PLACE = "the command line"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds every option to the parser. A flag that is not given is not in the namespace."""
    parser.add_argument(
        "application",
        metavar=APP.kind.metavar,
        nargs="?",
        type=_argument(APP),
        help="module:callable, the attribute dotted if need be, module:factory('argument') with "
        "literal arguments, or a script file such as shop.wsgi",
    )
    for title, options in SECTIONS.items():
        section = parser.add_argument_group(title)
        for option in options:
            _add_flag(section, option)


def _add_flag(section: argparse._ArgumentGroup, option: Option) -> None:
    kind = option.kind
    if isinstance(kind, Switch):
        section.add_argument(
            flag(option),
            dest=option.name,
            action="store_const",
            const=kind.meaning,
            default=argparse.SUPPRESS,
            help=option.help,
        )
        return
    default = option.default()
    shown = (
        "" if default is None or default == () else f" ({option.show(default)})".replace("%", "%%")
    )
    section.add_argument(
        flag(option),
        dest=option.name,
        metavar=kind.metavar,
        action="append" if _is_repeated(option) else "store",
        type=_argument(option),
        default=argparse.SUPPRESS,
        help=option.help + shown,
    )


def flag(option: Option) -> str:
    return option.flag or f"--{option.name}"


def _is_repeated(option: Option) -> bool:
    return isinstance(option.kind, Several) and option.kind.separator is None


def _argument(option: Option) -> Callable[[str], Any]:
    repeated = _is_repeated(option)
    kind = option.kind.kind if repeated and isinstance(option.kind, Several) else option.kind
    return argument(kind)


def read_flags(arguments: argparse.Namespace, folder: str) -> Draft:
    """The given flags as a draft with one process group. File names are relative to `folder`."""
    group = GroupDraft(GROUP_NAME, PLACE, folder)
    draft = Draft([group])
    given = vars(arguments)
    if given["application"] is not None:
        group.mounts.append(mount("", given["application"], folder, "APP"))
    for name in given.keys() & OPTIONS.keys():
        option, value = OPTIONS[name], given[name]
        origin = flag(option)
        if name == "mount":
            group.mounts.extend(mount(path, app, folder, origin) for path, app in value)
        elif name == "bind":
            group.binds.extend(Value(address, origin) for address in value)
        else:
            if name in TABLES:
                group.given[name] = table(value, origin)
                continue
            value = tuple(value) if _is_repeated(option) else value
            target = draft.server if option.of_server else group.given
            target[name] = Value(absolute(option, value, folder), origin)
    return draft
