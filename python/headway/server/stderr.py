"""What a server tells people on stderr, in whatever interpreter an application runs."""

from __future__ import annotations

import contextlib
import sys
import traceback


def report_exception(exception: BaseException, request: str) -> None:
    """Tells stderr what an application raised."""
    lines = traceback.format_exception(type(exception), exception, exception.__traceback__)
    tell(f"headway serve: in {request}\n{''.join(lines)}")


def tell(text: str) -> None:
    """To stderr, in one write so that threads do not mix. An application may have closed it, or put
    anything in its place: what cannot be told is lost."""
    with contextlib.suppress(Exception):
        sys.stderr.write(text)
        sys.stderr.flush()
