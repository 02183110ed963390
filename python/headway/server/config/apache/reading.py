"""Reads an Apache file as httpd does, with includes, variables and conditional sections. The result
has only directives that apply.

Knows `Define`, `Include`, `LoadModule`, `ServerRoot` and `<If...>` by name, and returns all other
directives. Parses the files in the order in which httpd reads them.
"""

from __future__ import annotations

import fnmatch
import operator
import os
import re
from collections.abc import Iterator

from headway.errors import CommandError, reason_of
from headway.server.config.apache.syntax import Directive, parse_lines
from headway.server.config.files import ConfigurationFiles

MAX_INCLUDE_DEPTH = 32
# The modules that Headway replaces, and those that every httpd contains.
_BUILT_IN = ("log_config", "so", "unixd", "version", "wsgi")
MODULES = {
    *("core.c", "http_core.c", "core_module", "http_module"),
    *(f"mod_{name}.c" for name in _BUILT_IN),
    *(f"{name}_module" for name in _BUILT_IN),
}
# Those that every common configuration loads. One of the first kind, or a module for the processes,
# shows that a file is whole.
_USUAL = ("authz_core", "authz_host")
_SIGNS_OF_A_WHOLE = re.compile(r"authz_core_module|mpm_\w+_module")
# Modules that may be compiled in, and names that do not follow from those in LoadModule.
_MAY_BE_BUILT_IN = re.compile(
    r"(?:mod_)?(?:watchdog|logio|authz_core|authz_host)(?:\.c|_module)|(?!mod_)\w+\.c|mod_mpm_\w+\.c"
)
CONDITIONS = ("ifmodule", "ifdefine", "ifversion", "iffile")
_COMPARISONS = {
    "=": operator.eq,
    "==": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
# httpd 2.4, at any of its patch levels.
_RELEASE = (2, 4)
_PATCHES = range(1, 1000)


def read_file(path: str, files: ConfigurationFiles) -> tuple[ApacheReader, list[Directive]]:
    """The directives of a configuration, and its reader.

    A file is a part of a configuration if it loads none of the modules that each needs, such as
    that of a virtual host. httpd may then have any module or not, and sections for all but the
    usual ones are among the directives.
    """
    reader = ApacheReader(path, files)
    directives = reader.read(path)
    if not reader.is_whole and reader.asks_for_modules:
        reader = ApacheReader(path, files, is_part=True)
        directives = reader.read(path)
    return reader, directives


class ApacheReader:
    """One reading of a configuration. `server_root` and `is_whole` are known when it has ended.

    Sections whose condition cannot be known are among the directives. Those of a part for a module
    are evaluated, and nothing outside depends on what is in a section for the lack of one.
    """

    def __init__(self, path: str, files: ConfigurationFiles, *, is_part: bool = False) -> None:
        self._files = files
        self.is_part = is_part
        self._is_lack = False
        self._has_server_root = False
        self.server_root = os.path.dirname(os.path.abspath(path))
        self.is_whole = False
        self.asks_for_modules = False
        # The sections that are skipped because no LoadModule names their module.
        self.skipped: list[Directive] = []
        # Whether Define has made a name, or UnDefine removed it; and the values of variables, whose
        # names ignore case. A Define without a value leaves that of an earlier one.
        self._is_defined: dict[str, bool] = {}
        self._values: dict[str, str] = {}
        self._modules = set(MODULES)
        if is_part:
            self._modules |= {f"mod_{name}.c" for name in _USUAL}
            self._modules |= {f"{name}_module" for name in _USUAL}

    def read(self, path: str, depth: int = 0) -> list[Directive]:
        """The directives of the file that apply. Those of an included file take the place of the
        Include."""
        try:
            text = self._files.read(path, "surrogateescape")
        except OSError as error:
            raise CommandError(f"{path}: {reason_of(error)}", exit_code=2) from None
        return self._evaluate(parse_lines(path, text), depth)

    def _evaluate(self, directives: list[Directive], depth: int) -> list[Directive]:
        kept = []
        for directive in directives:
            key = directive.key
            if key in CONDITIONS:
                holds = self._holds(directive)
                if holds is None:
                    if key == "ifmodule" and self.is_part:
                        directive.children = self._evaluate_block(directive, depth)
                    kept.append(directive)
                elif holds:
                    kept += self._evaluate(directive.children or [], depth)
                continue
            directive.text = self._substitute(directive.text)
            if key in ("include", "includeoptional"):
                kept += self._include(directive, depth)
            elif directive.children is not None:
                directive.children = self._evaluate(directive.children, depth)
                kept.append(directive)
            elif key in ("define", "undefine", "loadmodule", "serverroot") and not self._is_lack:
                self._note(directive)
            else:
                kept.append(directive)
        return kept

    def _evaluate_block(self, block: Directive, depth: int) -> list[Directive]:
        former = self._is_lack
        self._is_lack |= block.text.startswith("!")
        try:
            return self._evaluate(block.children or [], depth)
        finally:
            self._is_lack = former

    def _substitute(self, text: str) -> str:
        """Replaces `${NAME}` by the value of `Define`, whose names ignore case, or of the
        environment. As in httpd, unknown names stay."""

        def value(found: re.Match[str]) -> str:
            value = self._values.get(found[1].lower())
            return os.environ.get(found[1], found[0]) if value is None else value

        return re.sub(r"\$\{([^}]*)\}", value, text)

    def _note(self, directive: Directive) -> None:
        words = directive.words
        if not words:
            raise directive.refuse("nothing", "a name")
        if directive.key == "define":
            self._is_defined[words[0]] = True
            if len(words) > 1:
                self._values[words[0].lower()] = words[1]
        elif directive.key == "undefine":
            self._is_defined[words[0]] = False
            self._values.pop(words[0].lower(), None)
        elif directive.key == "serverroot":
            self.server_root = words[0]
            self._has_server_root = True
        else:
            self.is_whole |= _SIGNS_OF_A_WHOLE.fullmatch(words[0]) is not None
            self._modules |= {words[0], f"mod_{words[0].removesuffix('_module')}.c"}
            if len(words) > 1:
                name, _ = os.path.splitext(os.path.basename(words[1]))
                self._modules.add(f"{name.removeprefix('mod_mpm_')}.c")

    def _holds(self, section: Directive) -> bool | None:
        """Whether the section's condition holds; `None` if that cannot be known."""
        if section.key == "ifversion":
            return _is_version(section)
        found = re.fullmatch(r"(!?)([^\s\"'!]+)", self._substitute(section.text))
        if not found or "${" in found[2]:
            raise section.refuse(
                section.text or "nothing", "NAME or !NAME, without spaces or quotes"
            )
        wanted, name = not found[1], found[2]
        if section.key == "iffile":
            holds: bool | None = self._has_file(section, name)
        elif section.key == "ifmodule":
            holds = self._has_module(section, name, wanted)
        else:
            # Without a Define it may be an option -D of httpd's command line.
            holds = self._is_defined.get(name)
        return None if holds is None else holds is wanted

    def _has_file(self, section: Directive, name: str) -> bool:
        if not os.path.isabs(name) and not self._has_server_root:
            raise section.refuse(name, "an absolute path, since there is no ServerRoot")
        return os.path.exists(os.path.join(self.server_root, name))

    def _has_module(self, section: Directive, name: str, wanted: bool) -> bool | None:
        if name in self._modules:
            return True
        self.asks_for_modules = True
        if self.is_part or _MAY_BE_BUILT_IN.fullmatch(name):
            return None
        if wanted:
            self.skipped.append(section)
        return False

    def _include(self, directive: Directive, depth: int) -> list[Directive]:
        if len(directive.words) != 1 or "${" in directive.text:
            raise directive.refuse(directive.text or "nothing", "the name of a file")
        if depth >= MAX_INCLUDE_DEPTH:
            raise directive.refuse(f"the {depth + 1}th file within another", "no circle of files")
        name = os.path.join(self.server_root, directive.words[0])
        if os.path.exists(name):
            paths = [name]
        elif set("[]\\") & set(directive.words[0]):
            raise directive.refuse(directive.words[0], "a path with the wildcards * and ? alone")
        else:
            paths = list(_matching("/", [part for part in name.split("/") if part]))
        if not paths and directive.key == "include":
            raise directive.refuse(name, "a file that exists, or IncludeOptional")
        if not paths and not os.path.isabs(directive.words[0]) and not self._has_server_root:
            raise directive.refuse(
                directive.words[0], "an absolute path, since there is no ServerRoot"
            )
        kept = []
        for path in paths:
            for each in _files_below(path):
                kept += self.read(each, depth + 1)
        return kept


def _is_version(section: Directive) -> bool | None:
    """Whether httpd 2.4 has the version; `None` if that depends on its patch level."""
    found = re.fullmatch(r"(!?)\s*([<>]=?|==?)?\s*([0-9]+(?:\.[0-9]+){0,2})", section.text)
    if not found:
        raise section.refuse(section.text, "one of = > >= < <= and a version such as 2.4")
    version = (*map(int, found[3].split(".")), 0, 0)[:3]
    compare = _COMPARISONS[found[2] or "="]
    holds = {compare((*_RELEASE, patch), version) for patch in _PATCHES}
    return None if len(holds) > 1 else holds.pop() is not bool(found[1])


def _matching(folder: str, parts: list[str]) -> Iterator[str]:
    """The paths below `folder` that match, in httpd's order: sorted at each level by itself."""
    if not parts:
        yield folder
        return
    names = [parts[0]]
    if set("*?") & set(parts[0]):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            return
        # Only an explicit dot matches one at the beginning.
        names = [
            name
            for name in names
            if fnmatch.fnmatchcase(name, parts[0])
            and name.startswith(".") <= parts[0].startswith(".")
        ]
    for name in names:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            yield from _matching(path, parts[1:])


def _files_below(path: str) -> list[str]:
    """The file itself, or every file in the directory, in the order of their names."""
    if not os.path.isdir(path):
        return [path]
    return [file for name in sorted(os.listdir(path)) for file in _files_below(f"{path}/{name}")]
