"""The calls of one side as a tree, as far as they are large enough to be drawn."""

from __future__ import annotations

from heapq import heappop, heappush

from headway.profile import sides

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.profile.model import Frame
    from headway.profile.sides import Charge, Stack

# A call with less of the whole is not drawn on its own, nor more calls than MOST_NODES.
LEAST_SHARE, MOST_NODES = 0.001, 1000


class Node:
    """A call with the charges of all stacks that begin with it and what called it.

    `children` come with the largest first. `small` are callees too small to be nodes, which
    have `small_ns` together. `self_ns` is what was charged while the call itself ran.
    """

    __slots__ = ("children", "depth", "frame", "self_ns", "small", "small_ns", "waited_ns")

    def __init__(self, frame: Frame, depth: int, waited_ns: int) -> None:
        self.frame = frame
        self.depth = depth
        self.waited_ns = waited_ns
        self.self_ns = 0
        self.small = 0
        self.small_ns = 0
        self.children: list[Node] = []


def grow(charges: Sequence[Charge], title: Frame) -> Node:
    """Returns the root, which has the name `title`, all charges, and depth 0.

    The largest node is divided first, so the nodes are the largest that there are, and a profile of
    any size takes the same room.
    """
    stacks = sides.by_stack(charges)
    root = Node(title, 0, sum(waited_ns for _, waited_ns in stacks))
    least_ns = max(LEAST_SHARE * root.waited_ns, 1)
    # The serial number is unique, so that nodes are never compared.
    serial = nodes = 1
    waiting: list[tuple[int, int, int, Node, list[tuple[Stack, int]]]] = []
    heappush(waiting, (-root.waited_ns, 0, serial, root, stacks))
    while waiting:
        _, depth, _, node, through = heappop(waiting)
        callees: dict[Frame, list[tuple[Stack, int]]] = {}
        for item in through:
            stack, waited_ns = item
            if len(stack) == depth:
                node.self_ns += waited_ns
            else:
                callees.setdefault(stack[depth], []).append(item)
        sums = {frame: sum(ns for _, ns in items) for frame, items in callees.items()}
        for frame in sorted(callees, key=lambda frame: (-sums[frame], frame)):
            if sums[frame] < least_ns or nodes >= MOST_NODES:
                node.small += 1
                node.small_ns += sums[frame]
                continue
            nodes += 1
            serial += 1
            child = Node(frame, depth + 1, sums[frame])
            node.children.append(child)
            entry = (-child.waited_ns, depth + 1, serial, child, callees[frame])
            heappush(waiting, entry)
    return root


def walk(root: Node) -> list[Node]:
    """All nodes, each before its children."""
    nodes = [root]
    for node in nodes:
        nodes += node.children
    return nodes
