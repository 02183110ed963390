"""A profile as a drawing: a self-contained SVG file with a light and a dark theme.

The drawing has one icicle graph for the holders, if there are any, and one for the waiters: the
outermost call is at the top, and the width of a call is the time that was waited. In a browser a
script zooms and searches; the drawing is complete without it. Pure: the same profile gives the same
bytes.
"""

from __future__ import annotations

import os

from headway.profile import sides
from headway.profile.flame_tree import LEAST_SHARE, Node, grow, walk
from headway.profile.model import Frame
from headway.report import columns, units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from headway.profile.model import Profile
    from headway.profile.sides import Charge


def _read(name: str) -> str:
    """A file beside this one. `importlib.resources` would import many modules into the program."""
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return file.read()


STYLE = _read("flame_graph.css")
# The dashboard imports the functions; a drawing has one script.
SCRIPT = _read("flame_graph.js").replace(
    "  // FUNCTIONS of flame_calls.js\n", _read("flame_calls.js").replace("export ", "")
)

NS = 1e9
WIDTH, MARGIN = 1200, 14
INNER = WIDTH - 2 * MARGIN
# The height of a call and of a line of text in px, and the width of a character in a call.
CALL, LINE, CHARACTER = 19, 21, 7.3
BASELINE = 13.5
LEAST_LABEL = 3
# The number of files that have a colour of their own and a place in the legend. The others share
# one.
COLOURS = 8
TITLES = {
    sides.HOLDERS: "Holders of the GIL while others waited",
    sides.WAITERS: "Waiters for the GIL",
}
TITLE_WITHOUT_GIL = "Waits for locks and events, and for a stopped world"
EXPLAINED = {
    sides.HOLDERS: "A call is as wide as the time that other threads waited while it held the GIL.",
    sides.WAITERS: "A call is as wide as the time that it waited itself.",
}


def draw(profile: Profile) -> str:
    """Returns the file's text."""
    reason, none = ("the GIL", "a GIL") if profile.has_holders else ("locks and events", "a lock")
    title = f"Waits for {reason} of {columns.name(profile.program, 60) or 'a program'}"
    waited = units.seconds(profile.waited_ns / NS)
    watched = units.seconds(profile.wall_ns / NS)
    facts = f"pid {profile.pid}, {watched} watched, {waited} waited by all threads"
    both = sides.present(profile)
    roots = {side: grow(charges, Frame("all", "", 0)) for side, charges in both.items()}
    first, root = next(iter(both.values())), next(iter(roots.values()))
    colours, legend = _colours(first, list(roots.values()))
    parts = [_text("title", MARGIN, 32, title), _text("muted", MARGIN, 55, facts)]
    y = 72.0
    if profile.waited_ns:
        drawn, y = _legend(legend, y)
        parts += drawn
        for side, tree in roots.items():
            heading = TITLES[side] if profile.has_holders else TITLE_WITHOUT_GIL
            section, y = _section(side, heading, tree, colours, y + 14)
            parts += section
    else:
        parts.append(_text("", MARGIN, y + 14, f"No thread waited for {none}."))
        y += LINE
    told = f"{facts}. {_most(root)}"
    return _file(title, told, parts, y + 8)


def _file(title: str, told: str, parts: list[str], height: float) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="profile" role="group" '
            f'viewBox="0 0 {WIDTH} {_n(height)}" width="{WIDTH}" height="{_n(height)}" '
            f'data-left="{MARGIN}" data-width="{INNER}" data-character="{CHARACTER}" '
            f'data-baseline="{BASELINE}" '
            'aria-labelledby="profile-title" aria-describedby="profile-description">',
            f'<title id="profile-title">{_escaped(title)}</title>',
            f'<desc id="profile-description">{_escaped(told)}</desc>',
            f"<style>\n{STYLE}</style>",
            f'<rect class="page" width="{WIDTH}" height="{_n(height)}"/>',
            *parts,
            f"<script><![CDATA[\n{SCRIPT}]]></script>",
            "</svg>\n",
        ]
    )


def _most(root: Node) -> str:
    """The largest charges to calls themselves, as a sentence for readers who do not see."""
    nodes = sorted(walk(root), key=lambda node: -node.self_ns)
    named = [
        f"{_label(node.frame)} {units.share(node.self_ns, root.waited_ns)}"
        for node in nodes[:5]
        if node.self_ns and node is not root
    ]
    return f"Waits are charged most to {', '.join(named)}." if named else ""


def _colours(
    charges: list[Charge], roots: list[Node]
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The class of each file that is drawn, and a legend of classes and texts. The files that most
    of `charges` is charged to come first."""
    sums = dict.fromkeys((node.frame.file for root in roots for node in walk(root)), 0)
    for charge in charges:
        file = charge.stack[-1].file
        if file in sums:
            sums[file] += charge.waited_ns
    sums.pop("", None)
    ranked = sorted(sums, key=lambda file: (-sums[file], file))
    colours = {file: f"file-{min(place, COLOURS)}" for place, file in enumerate(ranked)}
    legend = [(colours[file], columns.name(_base(file, 2))) for file in ranked[:COLOURS]]
    if len(ranked) > COLOURS:
        legend.append((f"file-{COLOURS}", units.number(len(ranked) - COLOURS, "other file")))
    return colours, legend


def _legend(legend: list[tuple[str, str]], y: float) -> tuple[list[str], float]:
    """Returns the legend, and the y coordinate below it."""
    parts, x = [], float(MARGIN)
    for kind, said in legend:
        width = 42 + 7.4 * columns.width(said)
        if x + width > WIDTH - MARGIN and x > MARGIN:
            x, y = float(MARGIN), y + LINE
        parts.append(
            f'<rect class="swatch {kind}" x="{_n(x)}" y="{_n(y)}" width="16" height="13"/>'
        )
        parts.append(_text("", x + 22, y + 11, said))
        x += width
    return parts, y + LINE if legend else y


def _section(
    side: str, heading: str, root: Node, colours: dict[str, str], y: float
) -> tuple[list[str], float]:
    parts = [
        f'<g class="side" data-side="{side}">',
        _text("section", MARGIN, y + 14, heading),
        _text("muted", MARGIN, y + 33, EXPLAINED[side]),
    ]
    calls = list(_calls(root, colours, y + 42))
    parts += calls
    parts.append("</g>")
    deepest = max(
        node.depth + (node.small_ns >= LEAST_SHARE * root.waited_ns) for node in walk(root)
    )
    return parts, y + 42 + (deepest + 1) * CALL + 10


def _calls(root: Node, colours: dict[str, str], y: float) -> Iterator[str]:
    """The rectangles, each after that of its caller, whose number it names."""
    scale = INNER / root.waited_ns
    number = -1
    waiting = [(root, float(MARGIN), "")]
    while waiting:
        node, x, caller = waiting.pop()
        number += 1
        kind = colours.get(node.frame.file, "none") if node.depth else "root"
        label = sides.label(node.frame, _module(node.frame.file))
        if node is root:
            label += f": {units.seconds(node.waited_ns / NS)}"
        box = (x, y + node.depth * CALL, node.waited_ns * scale)
        yield _call(kind, box, label, _title(node, root), node.waited_ns, caller)
        children = []
        for child in node.children:
            children.append((child, x, str(number)))
            x += child.waited_ns * scale
        waiting += reversed(children)
        if node.small_ns >= LEAST_SHARE * root.waited_ns:
            label = f"({units.number(node.small, 'small call')})"
            title = f"{label}\n{_figures(node.small_ns, root)} of all waiting"
            box = (x, y + (node.depth + 1) * CALL, node.small_ns * scale)
            yield _call("rest", box, label, title, node.small_ns, str(number))
            number += 1


def _call(
    kind: str, box: tuple[float, float, float], label: str, title: str, waited_ns: int, caller: str
) -> str:
    x, y, width = box
    label = columns.printable(label)
    room = int((width - 6) // CHARACTER)
    text = ""
    if room >= LEAST_LABEL:
        cut = _escaped(columns.cut(label, room))
        text = f'<text x="{_n(x + 3)}" y="{_n(y + BASELINE)}">{cut}</text>'
    parent = f' data-parent="{caller}"' if caller else ""
    return (
        f'<g class="call" data-ns="{waited_ns}" data-label="{_escaped(label)}"{parent}>'
        f"<title>{_escaped(title)}</title>"
        f'<rect class="{kind}" x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{CALL}"/>'
        f"{text}</g>"
    )


def _title(node: Node, root: Node) -> str:
    title = f"{_label(node.frame)}\n{_figures(node.waited_ns, root)} of all waiting"
    if node.self_ns and node.self_ns != node.waited_ns:
        title += f"\nwithout its callees: {_figures(node.self_ns, root)}"
    return title


def _figures(waited_ns: int, root: Node) -> str:
    return f"{units.seconds(waited_ns / NS)}, {units.share(waited_ns, root.waited_ns)}"


def _label(frame: Frame) -> str:
    return columns.printable(sides.label(frame))


def _base(file: str, parts: int = 1) -> str:
    """The last parts of the file's path."""
    return "/".join(file.rsplit("/", parts)[-parts:])


def _module(file: str) -> str:
    """The file's name, with its folder where packages share the name."""
    return _base(file, 2 if file.endswith(("/__init__.py", "/__main__.py")) else 1)


def _text(kind: str, x: float, y: float, said: str) -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{_n(x)}" y="{_n(y)}">{_escaped(said)}</text>'


def _escaped(text: str) -> str:
    for sign, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(sign, written)
    return text


def _n(value: float) -> str:
    """A coordinate, to a hundredth."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
