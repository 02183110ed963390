"""The page of the options of `headway serve`: flags, keys in TOML, names in WSGIDaemonProcess."""

from __future__ import annotations

import re

from generators.markdown import code, table
from headway.server.config.apache.daemon import RENAMED
from headway.server.config.application_group_options import INTERPRETER_OPTIONS
from headway.server.config.flags import flag
from headway.server.config.options import APP, SECTIONS, Option

INTRODUCTION = """\
# Options of headway serve

This page is generated from the table that flags, TOML files, Apache files and `--check` use. Below
each flag is its key in a TOML file, and below each meaning the values that are allowed. The column
*mod_wsgi* has the name of the option in `WSGIDaemonProcess`, and its default there if it differs.
The options of the sections *Telemetry* and *Server* belong to the whole server, all others to a
process group. [headway serve](../serve.md) describes the files and the units of seconds and bytes,
and [Policies](../policies.md) the values of `--policy`.
"""
GROUP_INTRODUCTION = """\
## Keys of an application group

These are the keys of `[process-group.NAME.application-groups.NAME]` in a TOML file.
"""
HEAD = ("flag, key in TOML", "default", "meaning, allowed values", "mod_wsgi")


def page() -> str:
    parts = [INTRODUCTION]
    for title, section in SECTIONS.items():
        options = [*([APP] if title == "application" else []), *section]
        parts += [f"## {title.capitalize()}\n", table(HEAD, map(_row, options))]
    keys = [
        [code(option.name), _default(option), _meaning(option)]
        for option in INTERPRETER_OPTIONS.values()
    ]
    parts += [GROUP_INTRODUCTION, table(("key", *HEAD[1:3]), keys)]
    return "\n".join(parts)


def _row(option: Option) -> list[str]:
    usage = f"{'' if option is APP else flag(option)} {option.kind.metavar}".strip()
    names = f"{code(usage)}<br>{code(option.name)}"
    return [names, _default(option), _meaning(option), _in_daemon(option)]


def _in_daemon(option: Option) -> str:
    if option.name == "multiprocess":
        return "`processes`, given at all"
    names = [code(name) for name, (target, _) in RENAMED.items() if target == option.name]
    if option.daemon is not None:
        names.insert(0, code(option.name))
    if option.name == "environment":
        return "`locale` sets LC_ALL"
    other = "" if option.daemon_default is None else f" ({option.daemon_default})"
    return ", else ".join(names) + other


def _default(option: Option) -> str:
    shown = option.show(option.default())
    return "" if shown == "-" else code(shown)


def _meaning(option: Option) -> str:
    """The help text, whose `%` is doubled for argparse, and the allowed values."""
    return f"{_as_code(option.help.replace('%%', '%'))}<br>*{_as_code(option.kind.allowed)}*"


def _as_code(text: str) -> str:
    """Sets flags and `%{GLOBAL}` in the text as code."""
    return re.sub(r"(--[a-z][a-z-]*|%\{\w+\})", r"`\1`", text)
