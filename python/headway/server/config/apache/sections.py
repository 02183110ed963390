"""Sections of an Apache configuration: which requests of an alias each covers, and the order in
which httpd merges them.

httpd matches `<Directory>` and `<Files>` with the script, and `<Location>` with the URL path of
each request. So the first two cover all requests of an alias or none, and the third may cover a
part of them. Where this module cannot tell, the answer is a part.
"""

from __future__ import annotations

import enum
import fnmatch
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from headway.server.config.apache.syntax import Directive

# Sections whose contents apply to a part of the URLs or files.
SCOPES = ("directory", "directorymatch", "files", "filesmatch", "location", "locationmatch")


class Coverage(enum.IntEnum):
    """Which of an alias's requests a section covers."""

    NONE = 0
    PART = 1
    ALL = 2


class Scoped(NamedTuple):
    """A directive that applies where all of `sections`, the outermost first, match."""

    directive: Directive
    sections: tuple[Directive, ...]


def coverage(sections: tuple[Directive, ...], path: str, script: str) -> Coverage:
    """Which of the requests for `script` below the URL path `path` all of `sections` cover."""
    return min((_coverage(each, path, script) for each in sections), default=Coverage.ALL)


def covers_path(wanted: str, path: str) -> Coverage:
    """Which of the requests below `path` are for the URL path `wanted` or one below it."""
    if not wanted.startswith("/"):
        return Coverage.PART
    bare = wanted.rstrip("/")
    if f"{path}/".startswith(f"{bare}/"):
        # `/x/` does not cover a request for `/x` itself.
        return Coverage.PART if bare == path and bare != wanted and bare else Coverage.ALL
    return Coverage.PART if bare.startswith(f"{path}/") else Coverage.NONE


def may_match(pattern: str, path: str) -> bool:
    """Whether the regular expression may match a URL path at or below `path`."""
    literal = _literal_beginning(pattern)
    return literal is None or _may_begin(literal, path)


def applies_at(section: Directive, path: str, script: str) -> bool:
    """Whether the section covers a request for the alias's own URL path."""
    if section.key in ("location", "locationmatch"):
        subject = path or "/"
        wanted = _wanted(section)
        if _is_regex(section):
            return _compiled(section).search(subject) is not None
        if set("*?[") & set(wanted):
            return _glob(section, wanted).fullmatch(subject) is not None
        return f"{subject.rstrip('/')}/".startswith(f"{wanted.rstrip('/')}/")
    return _coverage(section, path, script) is not Coverage.NONE


def merge_order(scoped: Scoped, host_order: int) -> tuple[int, ...]:
    """The place of a directive among those that httpd merges, of which the last one wins: directly
    in a host, in `<Directory>` with fewer before more components, in a `<Directory>` with a regular
    expression, in `<Files>`, in `<Location>`. Among equals, the main server's come before a virtual
    host's."""
    ranks = [_rank(section) for section in scoped.sections]
    around, last = [(-1, 0), (-1, 0), *ranks][-2:]
    return (*last, *around, host_order)


def find_last(
    keys: Sequence[str], scoped: Sequence[tuple[int, Scoped]], path: str, script: str
) -> Scoped | None:
    """The directive of `keys` that httpd merges last for requests of the alias, or for a part of
    them. `scoped` has each directive with the order of its host."""
    fitting = [
        (merge_order(each, host), each)
        for host, each in scoped
        if each.directive.key in keys and coverage(each.sections, path, script) is not Coverage.NONE
    ]
    # A stable sort leaves the later of two equal directives last.
    return sorted(fitting, key=lambda each: each[0])[-1][1] if fitting else None


def _rank(section: Directive) -> tuple[int, int]:
    if section.key.startswith("files"):
        return 2, 0
    if section.key.startswith("location"):
        return 3, 0
    if _is_regex(section):
        return 1, 0
    return 0, len([name for name in _wanted(section).split("/") if name])


def _coverage(section: Directive, path: str, script: str) -> Coverage:
    if section.key.startswith("location"):
        return _of_location(section, path)
    if section.key.startswith("files"):
        found = _matches(section, os.path.basename(script))
    elif _is_regex(section):
        return _of_directory_pattern(section, script)
    else:
        found = _is_below(section, os.path.dirname(os.path.normpath(script)))
    return Coverage.ALL if found else Coverage.NONE


def _of_location(section: Directive, path: str) -> Coverage:
    wanted = _wanted(section)
    if _is_regex(section):
        _compiled(section)
        return Coverage.PART if may_match(wanted, path) else Coverage.NONE
    if found := re.search(r"[*?\[]", wanted):
        begins = _may_begin(wanted[: found.start()], path)
        return Coverage.PART if begins else Coverage.NONE
    return covers_path(wanted, path)


def _of_directory_pattern(section: Directive, script: str) -> Coverage:
    """httpd's versions differ in whether the name of the directory has a slash at its end."""
    pattern = _compiled(section)
    folder = os.path.dirname(os.path.normpath(script))
    if pattern.search(folder) and pattern.search(f"{folder}/"):
        return Coverage.ALL
    above = [script, folder]
    while above[-1] != os.path.dirname(above[-1]):
        above.append(os.path.dirname(above[-1]))
    found = any(pattern.search(each) or pattern.search(f"{each}/") for each in above)
    return Coverage.PART if found else Coverage.NONE


def _is_below(section: Directive, folder: str) -> bool:
    wanted = _wanted(section).rstrip("/")
    if not set("*?[") & set(wanted):
        return f"{folder}/".startswith(f"{wanted}/")
    pattern, names = _glob(section, wanted), folder.split("/")
    return any(pattern.fullmatch("/".join(names[: end + 1])) for end in range(len(names)))


def _matches(section: Directive, name: str) -> bool:
    if _is_regex(section):
        return _compiled(section).search(name) is not None
    return fnmatch.fnmatchcase(name, _wanted(section))


def _is_regex(section: Directive) -> bool:
    return section.key.endswith("match") or section.words[:1] == ["~"]


def _wanted(section: Directive) -> str:
    words = section.words[1:] if section.words[:1] == ["~"] else section.words
    if not words:
        raise section.refuse("nothing", "a path")
    return words[-1] if _is_regex(section) else words[0]


def _compiled(section: Directive) -> re.Pattern[str]:
    try:
        return re.compile(_wanted(section))
    except re.error as error:
        raise section.refuse(_wanted(section), f"a regular expression ({error})") from None


def _glob(section: Directive, pattern: str) -> re.Pattern[str]:
    """The pattern of a path. As in httpd, `*` and `?` match no slash."""
    text = ""
    for part in re.split(r"(\[[^\]]+\])", pattern):
        if part.startswith("[") and len(part) > 2:
            text += part.replace("[!", "[^").replace("\\", "\\\\")
        else:
            text += re.escape(part).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    try:
        return re.compile(text)
    except re.error as error:
        raise section.refuse(pattern, f"a path with *, ? and sets ({error})") from None


def _may_begin(literal: str, path: str) -> bool:
    """Whether a URL path at or below `path` may begin with `literal`."""
    return f"{path}/".startswith(literal) or literal.startswith(f"{path}/")


def _literal_beginning(pattern: str) -> str | None:
    """The text with which every match of the pattern begins at the begin of the subject; `None` if
    there is none."""
    if not pattern.startswith("^") or "|" in pattern:
        return None
    found = re.match(r"(?:[\w/~,@%-]|\\[./_-])*", pattern[1:], re.ASCII)
    assert found is not None, "the pattern matches the empty text"
    literal = found[0]
    if pattern[1 + found.end() : 2 + found.end()] in ("?", "*", "{", "+"):
        literal = re.sub(r"\\?.\Z", "", literal)
    return literal.replace("\\", "")
