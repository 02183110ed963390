"""Formats numbers for people: three digits and a suitable unit."""

from __future__ import annotations


def seconds(value: float | None) -> str:
    """A time in s, ms or us (written with the micro sign); "-" if unknown."""
    if value is None:
        return "-"
    if value == 0:
        return "0 s"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        scaled = value / scale
        if scaled >= 0.9995 or unit == "µs":
            break
    decimals = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2
    text = f"{scaled:.{decimals}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"


def number(count: int, noun: str) -> str:
    """A count and what it counts: "1 wait", "12,345 waits"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def share(part: float, whole: float) -> str:
    """`part` in percent of `whole`, to a tenth; "-" if `whole` is 0."""
    return f"{100 * part / whole:.1f} %" if whole else "-"
