"""Fits text from outside, such as a thread's name, into the columns of a terminal.

Pure, and without `unicodedata`: this runs at the end of the user's program, which may have left the
file system that a module would be loaded from.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Names are cut to this length even if there is room.
MAX_NAME = 40

# First and last of the blocks whose characters take two columns (Unicode Standard Annex 11: wide
# and full-width), and of the combining marks, which take none. Rare blocks are left out.
WIDE = (
    (0x1100, 0x115F),
    (0x2E80, 0x303E),
    (0x3041, 0xA4CF),
    (0xA960, 0xA97F),
    (0xAC00, 0xD7A3),
    (0xF900, 0xFAFF),
    (0xFE30, 0xFE6F),
    (0xFF00, 0xFF60),
    (0xFFE0, 0xFFE6),
    (0x1F300, 0x1F64F),
    (0x1F680, 0x1F6FF),
    (0x1F900, 0x1F9FF),
    (0x20000, 0x3FFFD),
)
COMBINING = ((0x0300, 0x036F), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x20D0, 0x20FF))


def name(text: object, limit: int = MAX_NAME) -> str:
    """`text` on one line of at most `limit` columns. Characters that are not printable are escaped
    as in a Python string, so that no name moves the cursor or colours the screen."""
    said = str(text)
    if len(said) > 8 * limit:
        # A long name is cut before it is escaped, to save work.
        said = said[: 4 * limit] + said[-4 * limit :]
    return shorten(printable(said), limit)


def printable(text: str) -> str:
    """`text` with each character that is not printable escaped as in a Python string."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def width(text: str) -> int:
    """The columns that a terminal needs for printable `text`."""
    return len(text) if text.isascii() else sum(map(_width, text))


def cut(text: str, limit: int) -> str:
    """As much of printable `text` as fits in `limit` columns, with "~" in place of the rest."""
    if width(text) <= limit:
        return text
    used, kept = 1, ""
    for each in text:
        used += _width(each)
        if used > limit:
            break
        kept += each
    return f"{kept}~"


def shorten(text: str, limit: int, end: int | None = None) -> str:
    """As much of printable `text` as fits in `limit` columns, with "~" in place of its middle: the
    last characters often tell names apart. `end` is the columns of the end, a third by default."""
    if width(text) <= limit:
        return text
    end = (limit - 1) // 3 if end is None else end
    used, at = 0, len(text)
    while at and used + _width(text[at - 1]) <= end:
        at -= 1
        used += _width(text[at])
    # A combining mark stays with its character.
    while at < len(text) and not _width(text[at]):
        at += 1
    # A text that was shortened before has one "~".
    rest = text[at:].lstrip("~")
    return cut(text, limit - width(rest)).rstrip("~") + "~" + rest


def apart(texts: Iterable[str], limit: int) -> dict[str, str]:
    """Each of the printable `texts` in at most `limit` columns, cut in such a place that different
    texts stay different, if there is one."""
    known = list(dict.fromkeys(texts))
    usual = (limit - 1) // 3
    made: dict[str, str] = {}
    for end in (usual, *(each for each in range(limit) if each != usual)):
        cuts = {text: shorten(text, limit, end) for text in known}
        if len(set(cuts.values())) == len(known):
            return cuts
        if len(set(cuts.values())) > len(set(made.values())):
            made = cuts
    return made


def pad(text: str, columns: int) -> str:
    """`text` shortened or filled up with spaces to exactly `columns`."""
    text = shorten(text, columns)
    return text + " " * (columns - width(text))


def aligned(rows: Sequence[Sequence[str]], texts: int = 1) -> list[str]:
    """The rows of printable cells as lines: the first `texts` columns begin below each other, the
    other columns end below each other."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        spaces = [" " * (columns - width(cell)) for cell, columns in zip(row, widths, strict=True)]
        cells = [
            cell + space if index < texts else space + cell
            for index, (cell, space) in enumerate(zip(row, spaces, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _width(character: str) -> int:
    code = ord(character)
    if any(first <= code <= last for first, last in WIDE):
        return 2
    return 0 if any(first <= code <= last for first, last in COMBINING) else 1
