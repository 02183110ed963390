"""The syntax of Apache's configuration files: lines, words, sections, and the place of a directive.

Turns text into directives: joins continued lines, drops comments, nests sections. Knows no
directive by name and reads no file; `reading` does both. Pure.

This lexer is Headway's own, because no available parser keeps line numbers and follows httpd's
rules: see docs/design/configuration.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from headway.errors import CommandError

# The blanks of httpd (`apr_isspace`). Python has more.
BLANKS = " \t\n\v\f\r"
_WORD = re.compile(rf"[^{BLANKS}]*")
# The depth of nested sections and includes, which are read by recursive functions.
MAX_DEPTH = 20


@dataclass
class Directive:
    """One directive, or a section with its contents. `text` is the rest of the line."""

    name: str
    text: str
    file: str
    line: int
    children: list[Directive] | None = None
    _words: list[str] | None = field(default=None, repr=False)

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def key(self) -> str:
        """The name for comparisons: httpd ignores case."""
        return self.name.lower()

    @property
    def shown(self) -> str:
        """The name as messages show it."""
        return self.name if self.children is None else f"<{self.name}>"

    @property
    def words(self) -> list[str]:
        if self._words is None:
            self._words = list(split_words(self.text))
        return self._words

    def refuse(self, found: str, allowed: str) -> CommandError:
        return CommandError(
            f"{self.place}: {self.shown}: found {found}; allowed: {allowed}", exit_code=2
        )

    def options(self, start: int) -> list[tuple[str, str]]:
        """The words after the first `start` ones, as pairs of `option=value`; a value is one word,
        possibly in quotes."""
        rest, options = self.text, []
        for _ in range(start):
            _, rest = next_word(rest)
        while rest := rest.lstrip(BLANKS):
            found = re.match(rf"([^{BLANKS}=]+)=", rest)
            if not found:
                word, _ = next_word(rest)
                raise self.refuse(repr(word), "option=value, without spaces around the =")
            value, rest = ("", rest[found.end() :])
            if rest and rest[0] not in BLANKS:
                value, rest = next_word(rest)
            options.append((found[1], value))
        return options


def split_words(text: str) -> Iterator[str]:
    while text := text.lstrip(BLANKS):
        word, text = next_word(text)
        yield word


def next_word(text: str) -> tuple[str, str]:
    """The first word of `text` and the rest, by the rules of httpd's `ap_getword_conf`: a word in
    quotes of either kind may contain spaces, and a backslash escapes the quote or backslash after
    it. Elsewhere a backslash escapes a backslash."""
    text = text.lstrip(BLANKS)
    if text[:1] in ("'", '"'):
        quote = text[0]
        body = re.compile(rf"((?:\\[\\{quote}]|[^{quote}])*){quote}?").match(text, 1)
        assert body is not None, "the pattern matches the empty text"
        return re.sub(rf"\\([\\{quote}])", r"\1", body[1]), text[body.end() :]
    word = _WORD.match(text)
    assert word is not None, "the pattern matches the empty text"
    return word[0].replace("\\\\", "\\"), text[word.end() :]


def parse_lines(file: str, text: str) -> list[Directive]:
    """The directives of one file, those in sections as their children."""
    if "\0" in text:
        raise CommandError(f"{file}: found a NUL character; allowed: text", exit_code=2)
    top: list[Directive] = []
    stack: list[Directive] = []
    for line, content in _joined_lines(text):
        children = top if not stack else stack[-1].children
        assert children is not None, "only sections are on the stack"
        if content.startswith("</"):
            _close(stack, file, line, content)
        elif content.startswith("<"):
            section = _open(file, line, content)
            if len(stack) == MAX_DEPTH:
                raise section.refuse(f"{MAX_DEPTH + 1} sections, one in another", str(MAX_DEPTH))
            children.append(section)
            stack.append(section)
        else:
            name, rest = next_word(content)
            children.append(Directive(name, rest.strip(BLANKS), file, line))
    if stack:
        raise CommandError(
            f"{stack[-1].place}: {stack[-1].shown} is not closed; "
            f"allowed: </{stack[-1].name}> in the same file",
            exit_code=2,
        )
    return top


def _joined_lines(text: str) -> Iterator[tuple[int, str]]:
    """Each logical line that is not empty, with the number of its first physical line. A backslash
    continues a line, even a comment."""
    whole, first = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        first = first or number
        line = line.removesuffix("\r")
        if line.endswith("\\"):
            whole += line[:-1]
            continue
        whole = (whole + line).strip(BLANKS)
        if whole and not whole.startswith("#"):
            yield first, whole
        whole, first = "", 0
    if (whole := whole.strip(BLANKS)) and not whole.startswith("#"):
        yield first, whole


def _open(file: str, line: int, content: str) -> Directive:
    found = re.fullmatch(r"<\s*([^\s>]+)\s*(.*?)\s*>", content, re.ASCII | re.DOTALL)
    if not found:
        raise CommandError(f"{file}:{line}: found {content}; allowed: <NAME ...>", exit_code=2)
    return Directive(found[1], found[2], file, line, children=[])


def _close(stack: list[Directive], file: str, line: int, content: str) -> None:
    name = content[2:].removesuffix(">").strip(BLANKS)
    expected = stack[-1].name if stack else None
    if expected is None or name.lower() != expected.lower() or not content.endswith(">"):
        allowed = f"</{expected}>, for line {stack[-1].line}" if expected else "no section is open"
        raise CommandError(f"{file}:{line}: found {content}; allowed: {allowed}", exit_code=2)
    stack.pop()


def list_by_name(named: Iterable[tuple[str, Directive]]) -> str:
    """Directives with what names them, and the places of those that have the same name."""
    by_name: dict[str, list[Directive]] = {}
    for name, directive in named:
        by_name.setdefault(name, []).append(directive)
    return ", ".join(f"{name} ({places(each)})" for name, each in by_name.items())


def places(directives: Sequence[Directive]) -> str:
    """The places of directives in a short form: `FILE:3,7, OTHER:1`."""
    by_file: dict[str, list[int]] = {}
    for directive in directives:
        lines = by_file.setdefault(directive.file, [])
        if directive.line not in lines:
            lines.append(directive.line)
    return ", ".join(f"{file}:{','.join(map(str, lines))}" for file, lines in by_file.items())
