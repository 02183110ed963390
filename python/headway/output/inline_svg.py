"""An SVG file of matplotlib made fit to stand in an HTML page. Pure.

HTML needs no namespaces, and fetches nothing for an element without them. The page has a font and
colours of its own, and other charts, so only such ids are left as something refers to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}"


def element(svg: str, name: str, title: str, description: str, colours: Mapping[str, str]) -> str:
    """The file `svg` as an `svg` element. `name` begins the ids of `title` and `description`;
    `colours` has what stands in the page for each of the file's."""
    root = ElementTree.fromstring(svg)
    for child in [*root.findall(f"{SVG}metadata"), *root.findall(f"{SVG}defs")]:
        if child.find(f"{SVG}clipPath") is None:
            root.remove(child)
    for part in root.iter():
        part.tag = part.tag.removeprefix(SVG)
        attributes = dict(part.attrib)
        part.attrib.clear()
        for key, value in attributes.items():
            part.set(key.removeprefix(XLINK), _attribute(key, value, colours))
    text = ElementTree.tostring(root, encoding="unicode")
    used = set(re.findall(r"#([\w-]+)", text))
    for part in root.iter():
        if part.get("id") not in used:
            part.attrib.pop("id", None)
    for key in ("width", "height", "version"):
        root.attrib.pop(key)
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-description")
    for place, (tag, role, words) in enumerate(
        (("title", "title", title), ("desc", "description", description))
    ):
        part = ElementTree.Element(tag, {"id": f"{name}-{role}"})
        part.text = words
        root.insert(place, part)
    _drop_blanks(root)
    return ElementTree.tostring(root, encoding="unicode")


def _attribute(key: str, value: str, colours: Mapping[str, str]) -> str:
    """In as few characters as do, with the page's colours."""
    if key == "style":
        parts = [part.strip() for part in value.split(";")]
        value = ";".join(part for part in parts if not part.startswith("font-family"))
        return re.sub("#[0-9a-f]{6}", lambda found: colours.get(found[0], found[0]), value)
    if key in ("d", "x", "y", "transform", "width", "height"):
        value = re.sub(r"\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", value)
    return " ".join(value.split())


def _drop_blanks(root: ElementTree.Element) -> None:
    """Between elements; not in texts."""
    for part in root.iter():
        if part.text and not part.text.strip():
            part.text = None
        part.tail = None
