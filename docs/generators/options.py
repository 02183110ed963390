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

This page is generated from the table that flags, TOML files, Apache files and `--check` use.
[headway serve](../serve.md) describes the files, and the units of seconds and bytes. The column
*WSGIDaemonProcess* has the name of the option in that directive, and mod_wsgi's default if it
differs. The options of the sections *Telemetry* and *Server* belong to the whole server, all others
to a process group. [Policies](../policies.md) describes the values of `--policy`.
"""
GROUP_INTRODUCTION = """\
## Keys of an application group

These are the keys of `[process-group.NAME.application-groups.NAME]` in a TOML file.
"""
HEAD = ("flag", "in TOML", "WSGIDaemonProcess", "default", "allowed", "meaning")


def page() -> str:
    parts = [INTRODUCTION]
    for title, section in SECTIONS.items():
        options = [*([APP] if title == "application" else []), *section]
        parts += [f"## {title.capitalize()}\n", table(HEAD, map(_row, options))]
    keys = [
        [code(option.name), _default(option), option.kind.allowed, _meaning(option)]
        for option in INTERPRETER_OPTIONS.values()
    ]
    parts += [GROUP_INTRODUCTION, table(("in TOML", "default", "allowed", "meaning"), keys)]
    return "\n".join(parts)


def _row(option: Option) -> list[str]:
    usage = f"{'' if option is APP else flag(option)} {option.kind.metavar}".strip()
    return [
        code(usage),
        code(option.name),
        _in_daemon(option),
        _default(option),
        option.kind.allowed,
        _meaning(option),
    ]


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
    """The help text, whose `%` is doubled for argparse, with flags and names as code."""
    return re.sub(r"(--[a-z][a-z-]*|%\{\w+\})", r"`\1`", option.help.replace("%%", "%"))
