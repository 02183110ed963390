"""The frames of lines, and the stacks of events: texts with the most recent call first, each call
on a line as `function (file:line)`. Pure.
"""

from __future__ import annotations

import re

from headway.profile.model import Frame

CALL = re.compile(r"(?P<function>.+) \((?P<file>.+):(?P<line>\d{1,9})\)")
# The form of the reports of earlier versions, which is faulthandler's.
FORMER_CALL = re.compile(r'\s*File "(?P<file>.+)", line (?P<line>\d{1,9}) in (?P<function>.+)')


# The files of the standard library and of installed packages.
LIBRARY = re.compile(r"<.*|.*/(site-packages|dist-packages|python3(\.\d+t?)?)/.*")


def calls(stack: str) -> list[Frame]:
    """The calls of the stack that have a file, the innermost first."""
    found = (CALL.fullmatch(text) or FORMER_CALL.fullmatch(text) for text in stack.splitlines())
    return [Frame(each["function"], each["file"], int(each["line"])) for each in found if each]


def is_library(frame: Frame) -> bool:
    """Whether the code is the standard library's or an installed package's, by its path."""
    return LIBRARY.fullmatch(frame.file) is not None


def frame_of(function: str, place: str) -> Frame:
    """The frame of a function and its place, which is FILE:LINE or FILE."""
    file, colon, line = place.rpartition(":")
    if colon and line.isascii() and line.isdigit():
        return Frame(function, file, int(line))
    return Frame(function, place, 0)
