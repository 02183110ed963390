"""A profile for speedscope.app, in its own JSON format.

The schema is https://www.speedscope.app/file-format-schema.json. Each GIL has two sampled profiles,
its holders and its waiters, which share their frames; each kind of wait without a GIL has one.
"""

from __future__ import annotations

from headway import _native
from headway.json_file import to_json
from headway.profile import sides

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from headway.profile.model import Frame, Profile

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
TITLES = {sides.HOLDERS: "holders of the GIL", sides.WAITERS: "waiters for the GIL"}
TITLE_WITHOUT_GIL = "waits"


def encode(profile: Profile) -> Iterator[str]:
    """Yields the text in pieces of any size. It is plain ASCII."""
    numbers: dict[Frame, int] = {}
    head = {
        "$schema": SCHEMA,
        "exporter": _native.SERVER_SOFTWARE,
        "name": f"{_text(profile.program)} (pid {profile.pid})",
        "activeProfileIndex": 0,
    }
    yield f'{to_json(head)[:-1]},"profiles":[\n'
    between = ""
    both = sides.present(profile)
    # Several interpreters may have one name; their GILs are shown as one.
    gils = {total.gil: total.has_holders for total in profile.totals}
    for gil, has_holders in gils.items():
        for side, charges in both.items():
            if side == sides.HOLDERS and not has_holders:
                continue
            title = TITLES[side] if has_holders else TITLE_WITHOUT_GIL
            # In the order of the stacks, adjacent samples have as many calls in common as possible.
            merged = sorted(sides.by_stack(each for each in charges if each.gil == gil))
            named = f"{title} {_text(gil)}" if len(gils) > 1 else title
            ends = {"startValue": 0, "endValue": sum(waited_ns for _, waited_ns in merged)}
            kind = {"type": "sampled", "name": named, "unit": "nanoseconds", **ends}
            yield f'{between}{to_json(kind)[:-1]},"samples":[\n'
            for count, (stack, _) in enumerate(merged):
                sample = [numbers.setdefault(frame, len(numbers)) for frame in stack]
                yield f"{',' if count else ''}{to_json(sample)}\n"
            yield f'],"weights":{to_json([waited_ns for _, waited_ns in merged])}}}'
            between = ",\n"
    # The frames come last, when all are known.
    yield '],"shared":{"frames":[\n'
    for frame, number in numbers.items():
        yield f"{',' if number else ''}{to_json(_described(frame))}\n"
    yield "]}}\n"


def _described(frame: Frame) -> dict[str, str | int]:
    described: dict[str, str | int] = {"name": _text(frame.function)}
    if frame.file:
        described["file"] = _text(frame.file)
    if frame.line > 0:
        described["line"] = frame.line
    return described


def _text(text: str) -> str:
    """`text` with lone surrogates escaped: not every reader of JSON takes them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
