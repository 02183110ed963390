"""The stacks of events: texts with the most recent call first, each call on a line as
`function (file:line)`. Pure.
"""

from __future__ import annotations

import re

from headway.profile.model import Frame

CALL = re.compile(r"(?P<function>.+) \((?P<file>.+):(?P<line>\d{1,9})\)")
# The form of the reports of earlier versions, which is faulthandler's.
FORMER_CALL = re.compile(r'\s*File "(?P<file>.+)", line (?P<line>\d{1,9}) in (?P<function>.+)')


def innermost(stack: str) -> Frame | None:
    """The first call of the stack that has a file; `None` if there is none."""
    for text in stack.splitlines():
        found = CALL.fullmatch(text) or FORMER_CALL.fullmatch(text)
        if found:
            return Frame(found["function"], found["file"], int(found["line"]))
    return None
