"""What a link of the repository's Markdown names exists, and no page needs more than Markdown:
people read the pages where the repository lies, not only in the site."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r" *(```+|~~~+)")
LINK = re.compile(r"\[(?:[^][]|\[[^][]*\])*\]\(([^)\s]+)\)|<img [^>]*src=\"([^\"]+)\"")
ELSEWHERE = ("http://", "https://", "mailto:")


def pages() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    found = listed.stdout.split() if listed.returncode == 0 else []
    return [ROOT / each for each in found] or sorted((ROOT / "docs").rglob("*.md"))


def outside_fences(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are no code, with their numbers."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        opened = FENCE.match(line)
        if opened and (not fence or line.strip() == fence):
            fence = "" if fence else opened[1]
        elif not fence:
            yield number, line


def anchors(page: Path) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    found: set[str] = set()
    for _, line in outside_fences(page.read_text()):
        if heading := re.match(r"#+ +(.*)", line):
            text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1])
            anchor = re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")
            again = sum(each.rpartition("-")[0] == anchor for each in found if each != anchor)
            found.add(f"{anchor}-{again + 1}" if anchor in found else anchor)
    return found


def dead_links(page: Path) -> Iterator[str]:
    # A link may be broken over two lines.
    text = "\n".join(line for _, line in outside_fences(page.read_text()))
    for link in LINK.finditer(re.sub(r"`[^`\n]*`", "", text)):
        target = link[1] or link[2]
        if target.startswith(ELSEWHERE):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"{target}: there is no such file"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            yield f"{target}: there is no such heading"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_is_dead(page: Path) -> None:
    assert list(dead_links(page)) == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_needs_a_directive(page: Path) -> None:
    assert re.findall(r"^ *(?:```+|:::+)\{.*", page.read_text(), re.M) == []


def test_dead_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A `title`, twice\n\n# A title twice\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md#a-title-twice) [b](there.md#a-title-twice-1) [c](https://x.invalid/)\n"
        "`[d](gone.md)` [e\nf](gone.md) ![g](there.md#gone)\n```\n[h](gone.md)\n```\n"
    )
    assert list(dead_links(page)) == [
        "gone.md: there is no such file",
        "there.md#gone: there is no such heading",
    ]
