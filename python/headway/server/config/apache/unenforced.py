"""The directives of an Apache configuration that Headway would have to enforce, and cannot.

httpd may deny a request by them, answer it itself, or change it before the application sees it. A
configuration that has one is refused, unless it is accepted by name: then something else enforces
it, such as a proxy, and each start names it in a warning.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headway.errors import CommandError
from headway.server.config.apache.access import find_closing
from headway.server.config.apache.body_limit import read_body_limit
from headway.server.config.apache.contents import Contents
from headway.server.config.apache.groups import Group
from headway.server.config.apache.hosts import Alias, Host
from headway.server.config.apache.other_directives import HANDLERS, INSTEAD
from headway.server.config.apache.sections import (
    Coverage,
    Scoped,
    coverage,
    covers_path,
    find_possible,
    may_match,
    merge_order,
    normalized,
)
from headway.server.config.apache.syntax import Directive, list_by_name, split_words
from headway.server.config.configuration import cut

FLAG = "--accept-unenforced"
# Directives whose first word is the URL path for which httpd answers itself.
_OF_PATH = (
    *("alias", "scriptalias", "proxypass"),
    *("redirect", "redirectpermanent", "redirecttemp"),
)
# Directives whose first word is a regular expression for URL paths.
_OF_PATTERN = ("aliasmatch", "scriptaliasmatch", "proxypassmatch", "redirectmatch")
_STATUSES = ("permanent", "temp", "seeother", "gone")
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
    left = [
        each
        for each in found
        if not any(_is_named(each.scoped, words) for words in wanted.values())
    ]
    if left:
        raise _refuse(left)
    for name, words in wanted.items():
        if any(_is_named(each.scoped, words) for each in found):
            continue
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
    if directive.key in HANDLERS and directive.words[:1] != ["wsgi-script"]:
        instead = "a file without it"
    return directive.refuse(what, f"{instead}; or, where a proxy enforces it, {flags}")


def _suggested(scoped: Scoped) -> str:
    """The name that accepts the directive, quoted for a shell: its section's, or its own."""
    section = scoped.scopes[-1] if scoped.scopes else scoped.directive
    if section.children is None:
        return section.name
    text = f"{section.name} {section.text}".strip()
    return "'{}'".format(text.replace("'", "'\\''"))


def _listed(found: list[Unenforced]) -> str:
    return list_by_name((_name_of(each.scoped), each.scoped.directive) for each in found)


def _name_of(scoped: Scoped) -> str:
    name = scoped.directive.shown
    if scoped.scopes:
        name += f" in <{scoped.scopes[-1].name} {scoped.scopes[-1].text}>"
    return name


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
            for _, scoped in ordered:
                if _leads_elsewhere(scoped, alias):
                    yield Unenforced(scoped, scoped.directive.text)
            for scoped in find_closing(ordered, alias.path, alias.script):
                yield Unenforced(scoped, scoped.directive.text)
            yield from _by_files(contents, ordered, alias)
    for scoped in read_body_limit(contents, group).left_out:
        yield Unenforced(scoped, scoped.directive.text)


def _reaches(scoped: Scoped, alias: Alias) -> bool:
    """Whether the directive has an effect on a request for the alias."""
    directive, sections = scoped
    if directive.words[:1] == ["wsgi-script"] or "${" in directive.text:
        # The handler leads to scripts that have no alias, and only httpd knows the variable.
        return True
    if coverage(sections, alias.path, alias.script) is Coverage.NONE:
        return False
    target = _target(directive)
    if directive.key in _OF_PATH and not scoped.scopes and target is not None:
        return covers_path(re.sub("/+", "/", target), alias.path) is not Coverage.NONE
    if directive.key in _OF_PATTERN and target is not None:
        return may_match(target, alias.path)
    if directive.key == "userdir":
        return may_match("^/~", alias.path)
    if directive.key in _OF_EXTENSION:
        extensions = os.path.basename(alias.script).lower().split(".")[1:]
        return any(word.lower().lstrip(".") in extensions for word in directive.words[1:])
    return True


def _leads_elsewhere(scoped: Scoped, alias: Alias) -> bool:
    """Whether the directive gives a part of the alias to another application."""
    return (
        scoped.directive.key == "wsgicallableobject"
        and scoped.directive.words != ["application"]
        and coverage(scoped.sections, alias.path, alias.script) is Coverage.PART
    )


def _target(directive: Directive) -> str | None:
    """The URL path or the regular expression of the directive, by its position; `None` if there is
    none."""
    words = directive.words
    if directive.key in ("redirect", "redirectmatch") and words:
        is_status = words[0].isdecimal() or words[0].lower() in _STATUSES
        words = words[1:] if is_status else words
    return words[0] if words and words[0] != "~" else None


def _by_files(
    contents: Contents, ordered: list[tuple[int, Scoped]], alias: Alias
) -> Iterator[Unenforced]:
    """The directives that deny because of files above and beside the script."""
    # httpd has walked the directories before it looks at other sections.
    walked = [(host, each) for host, each in ordered if _is_of_directory(each)]
    for path in _paths_to(normalized(alias.script)):
        if os.path.islink(path) and (options := _forbids_link(walked, alias, path)):
            found = f"{options.directive.text}, and {path} is a symbolic link"
            yield Unenforced(options, found)
        for name in contents.access_file_names:
            file = os.path.join(os.path.dirname(path), name)
            if not os.path.exists(file):
                continue
            for override in _overrides(walked, alias, file):
                if _says(override.directive) != "none":
                    found = f"{override.directive.text}, and {file} is there"
                    yield Unenforced(override, found)


def _overrides(walked: list[tuple[int, Scoped]], alias: Alias, file: str) -> Iterator[Scoped]:
    """The AllowOverride and the AllowOverrideList that hold for the file, or may hold."""
    for key in ("allowoverride", "allowoverridelist"):
        yield from find_possible(key, walked, alias.path, file)


def _says(directive: Directive) -> str:
    return " ".join(directive.words).lower()


def _is_of_directory(scoped: Scoped) -> bool:
    sections = scoped.scopes
    return not sections or (
        len(sections) == 1 and sections[0].key == "directory" and sections[0].words[:1] != ["~"]
    )


def _paths_to(script: str) -> Iterator[str]:
    """The script and each directory above it, except the root."""
    while script != os.path.dirname(script):
        yield script
        script = os.path.dirname(script)


def _forbids_link(walked: list[tuple[int, Scoped]], alias: Alias, path: str) -> Scoped | None:
    """The Options by which httpd does not follow the symbolic link, or may not."""
    is_same_owner = os.path.exists(path) and os.lstat(path).st_uid == os.stat(path).st_uid
    # The options that may hold, each with the directive that made them. httpd begins with this one.
    states: dict[frozenset[str], Scoped | None] = {frozenset({_FOLLOW}): None}
    options = [(host, each) for host, each in walked if each.directive.key == "options"]
    for _, scoped in sorted(options, key=lambda each: merge_order(each[1], each[0])):
        covered = coverage(scoped.sections, alias.path, path)
        former = {} if covered is Coverage.ALL else states
        if covered is not Coverage.NONE:
            after = [_with_options(state, scoped.directive) for state in states]
            states = {**former, **dict.fromkeys(after, scoped)}
    for state, cause in states.items():
        follows = is_same_owner if _IF_OWNER in state else _FOLLOW in state
        if not follows:
            return cause
    return None


_FOLLOW, _IF_OWNER = "followsymlinks", "symlinksifownermatch"


def _with_options(state: frozenset[str], options: Directive) -> frozenset[str]:
    words = [word.lower() for word in options.words if word]
    links = set(state) if any(word[0] in "+-" for word in words) else set()
    for word in words:
        names = (
            {_FOLLOW} if word.lstrip("+-") == "all" else {word.lstrip("+-")} & {_FOLLOW, _IF_OWNER}
        )
        links = links - names if word[0] == "-" else links | names
    return frozenset(links)
