"""The marked parts of a document, which a benchmark writes: `<!-- KIND: NAME -->` opens a part, and
`<!-- KIND: end -->` ends it."""

from __future__ import annotations

from typing import NamedTuple

from headway.programs.processes import ProgramError


class Marks(NamedTuple):
    kind: str

    def find(self, text: str, name: str) -> tuple[int, int]:
        """From where to where a marked part goes. Raises ProgramError if there is none."""
        mark, closing = f"<!-- {self.kind}: {name} -->", f"<!-- {self.kind}: end -->"
        begin = text.find(mark)
        end = text.find(closing, begin)
        if begin < 0 or end < 0:
            raise ProgramError(f"no part is marked {mark} to {closing}", 2)
        return begin + len(mark), end

    def replace(self, text: str, name: str, part: str) -> str:
        begin, end = self.find(text, name)
        return f"{text[:begin]}\n\n{part.strip()}\n\n{text[end:]}"
