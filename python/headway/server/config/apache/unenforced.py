"""The directives of an Apache configuration that Headway would have to enforce, and cannot.

httpd may deny a request by them, answer it itself, or change it before the application sees it. A
configuration that has one is refused, unless it is accepted by name: then something else enforces
it, such as a proxy, and each start names it in a warning.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headway.errors import CommandError
from headway.server.config.apache.access import find_closing
from headway.server.config.apache.body_limit import read_body_limit
from headway.server.config.apache.contents import Contents
from headway.server.config.apache.groups import Group
from headway.server.config.apache.hosts import Alias, Host
from headway.server.config.apache.other_directives import INSTEAD
from headway.server.config.apache.sections import (
    Coverage,
    Scoped,
    coverage,
    covers_path,
    find_last,
    may_match,
)
from headway.server.config.apache.syntax import Directive, places, split_words
from headway.server.config.configuration import cut

FLAG = "--accept-unenforced"
# Directives whose first word is the URL path for which httpd answers itself.
_OF_PATH = (
    *("alias", "scriptalias", "proxypass"),
    *("redirect", "redirectpermanent", "redirecttemp"),
)
# Directives whose first word is a regular expression for URL paths.
_OF_PATTERN = ("aliasmatch", "scriptaliasmatch", "proxypassmatch", "redirectmatch")
# Directives for files whose names have one of the extensions after the first word.
_OF_EXTENSION = ("addhandler", "addinputfilter", "addoutputfilter")


class Unenforced(NamedTuple):
    """A directive, and what a message says was found."""

    scoped: Scoped
    found: str


def check_unenforced(
    contents: Contents, groups: list[Group], accepted: Sequence[str]
) -> Iterator[str]:
    """Yields warnings about the directives that `accepted` names. Raises `CommandError` for any
    other one, and for a name of `accepted` without a directive."""
    found = list(_find(contents, groups))
    wanted = {name: list(split_words(name.strip("<>"))) for name in accepted}
    used = {
        name
        for name, words in wanted.items()
        if any(_is_named(each.scoped, words) for each in found)
    }
    left = [
        each
        for each in found
        if not any(_is_named(each.scoped, words) for words in wanted.values())
    ]
    if left:
        raise _refuse(left)
    for name in wanted.keys() - used:
        known = ", ".join(dict.fromkeys(_suggested(each.scoped) for each in found))
        raise CommandError(
            f"{FLAG}: found {name!r}; allowed: what {contents.path} has and headway serve does not "
            f"enforce: {known or 'nothing'}",
            exit_code=2,
        )
    if found:
        yield f"{contents.path}: not enforced, as {FLAG} allows: {_listed(found)}"


def _is_named(scoped: Scoped, words: list[str]) -> bool:
    """Whether the words are the directive's name, or are a section that it is in."""
    if [word.lower() for word in words] == [scoped.directive.key]:
        return True
    sections = (*scoped.sections, scoped.directive)
    return any(
        words[:1] and words[0].lower() == each.key and words[1:] == each.words
        for each in sections
        if each.children is not None
    )


def _refuse(left: list[Unenforced]) -> CommandError:
    first, *others = left
    directive = first.scoped.directive
    what = f"{cut(first.found) or 'it'}, which headway serve does not enforce"
    if others:
        what += f" (nor {_listed(others)})"
    names = dict.fromkeys(_suggested(each.scoped) for each in left)
    flags = " ".join(f"{FLAG} {name}" for name in names)
    instead = INSTEAD.get(directive.key, "a file without it")
    return directive.refuse(what, f"{instead}; or, where a proxy enforces it, {flags}")


def _suggested(scoped: Scoped) -> str:
    """What accepts the directive: the section that it is in, or its name. As a shell takes it."""
    section = scoped.sections[-1] if scoped.sections else scoped.directive
    if section.children is None:
        return section.name
    text = f"{section.name} {section.text}".strip()
    return "'{}'".format(text.replace("'", "'\\''"))


def _listed(found: list[Unenforced]) -> str:
    by_name: dict[str, list[Directive]] = {}
    for scoped, _ in found:
        name = scoped.directive.shown
        if scoped.sections:
            name += f" in <{scoped.sections[-1].name} {scoped.sections[-1].text}>"
        by_name.setdefault(name, []).append(scoped.directive)
    return ", ".join(f"{name} ({places(each)})" for name, each in by_name.items())


def _find(contents: Contents, groups: list[Group]) -> Iterator[Unenforced]:
    seen: set[int] = set()
    for group in groups:
        hosts = [contents.main, *(host for host in group.hosts if host is not contents.main)]
        for found in _of_group(contents, group, hosts):
            if id(found.scoped.directive) not in seen:
                seen.add(id(found.scoped.directive))
                yield found


def _of_group(contents: Contents, group: Group, hosts: list[Host]) -> Iterator[Unenforced]:
    for host in hosts:
        ordered = contents.scoped_in(host)
        for alias in group.aliases.values():
            for scoped in host.unfollowed:
                if _reaches(scoped, alias):
                    yield Unenforced(scoped, scoped.directive.text)
            if host is contents.main and host not in group.hosts:
                continue
            for scoped in find_closing(ordered, alias.path, alias.script):
                yield Unenforced(scoped, scoped.directive.text)
            yield from _by_files(contents, ordered, alias)
    for scoped in read_body_limit(contents, group).left_out:
        yield Unenforced(scoped, scoped.directive.text)


def _reaches(scoped: Scoped, alias: Alias) -> bool:
    """Whether the directive has an effect on a request for the alias."""
    directive, sections = scoped
    if directive.words[:1] == ["wsgi-script"]:
        # The handler leads to scripts that have no alias.
        return True
    if coverage(sections, alias.path, alias.script) is Coverage.NONE:
        return False
    words = directive.words
    if directive.key in _OF_PATH and not sections:
        paths = [word for word in words[:2] if word.startswith("/")][:1]
        return not paths or covers_path(paths[0], alias.path) is not Coverage.NONE
    if directive.key in _OF_PATTERN and words:
        patterns = [word for word in words[:2] if word.startswith("^")][:1]
        return not patterns or may_match(patterns[0], alias.path)
    if directive.key == "userdir":
        return may_match("^/~", alias.path)
    if directive.key in _OF_EXTENSION:
        extensions = os.path.basename(alias.script).lower().split(".")[1:]
        return any(word.lower().lstrip(".") in extensions for word in words[1:])
    return True


def _by_files(
    contents: Contents, ordered: list[tuple[int, Scoped]], alias: Alias
) -> Iterator[Unenforced]:
    """What depends on the files above and beside the script."""
    for path in _paths_to(os.path.normpath(alias.script)):
        if os.path.islink(path):
            options = find_last(("options",), ordered, alias.path, path)
            if options is not None and not _follows_links(options.directive):
                found = f"{options.directive.text}, and {path} is a symbolic link"
                yield Unenforced(options, found)
        for name in contents.access_file_names:
            file = os.path.join(os.path.dirname(path), name)
            if not os.path.exists(file):
                continue
            override = find_last(("allowoverride", "allowoverridelist"), ordered, alias.path, file)
            if override is not None and override.directive.text.lower() != "none":
                found = f"{override.directive.text}, and {file} is there"
                yield Unenforced(override, found)


def _paths_to(script: str) -> Iterator[str]:
    """The script and each directory above it, except the root."""
    while script != os.path.dirname(script):
        yield script
        script = os.path.dirname(script)


def _follows_links(options: Directive) -> bool:
    words = {word.lower() for word in options.words}
    if any(word[0] in "+-" for word in words):
        return "-followsymlinks" not in words
    return bool(words & {"all", "followsymlinks", "symlinksifownermatch"})
