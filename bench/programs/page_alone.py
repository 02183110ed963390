"""The computation of `pages` for its page `fixed`, in one thread and without a server.

   page_alone.py LOOPS

Reports how often the thread computed the page and the CPU time for each: how fast one thread of
this build of CPython is at that work. The thread is not the main one, as in a server: free-threaded
builds count references differently for objects that another thread made.
"""

from __future__ import annotations

import sys
from functools import partial

import window
from computation import control
from pages import compute


def main() -> None:
    window.answer(**control(1, partial(compute, int(sys.argv[1]))))


if __name__ == "__main__":
    main()
