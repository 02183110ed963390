"""The addresses of repository, site and issue tracker are one setting, `project.urls`: what is set
there is on every page and in the help, and nothing else is."""

from __future__ import annotations

import re
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest
from launch import execute

import headway

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))

from generators import addresses  # noqa: E402

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python reads no TOML")

URLS = {
    "Repository": "https://code.invalid/headway",
    "Documentation": "https://headway-docs.invalid/",
    "Issues": "https://code.invalid/headway/issues",
    "Security": "mailto:security@headway.invalid",
}


@pytest.mark.parametrize("page", addresses.PAGES)
@pytest.mark.parametrize("names", [(), ("Issues",), tuple(URLS)])
def test_a_page_has_the_addresses_that_are_set(page: str, names: tuple[str, ...]) -> None:
    text = addresses.fill((ROOT / page).read_text(), {name: URLS[name] for name in names})
    links = re.findall(r"\[(\w+)\]\(([^)\s]*\.invalid[^)]*)\)", text)
    assert dict(links) == {name: URLS[name] for name in names}
    without = addresses.fill(text, {})
    assert not any(url in without for url in URLS.values())
    assert "<!-- addresses --><!-- end -->" in without


@pytest.mark.parametrize("page", addresses.PAGES)
def test_the_committed_page_has_the_addresses_of_the_setting(page: str) -> None:
    text = (ROOT / page).read_text()
    assert addresses.fill(text, addresses.addresses()) == text


def test_the_package_has_the_addresses_of_the_setting() -> None:
    found = metadata("headway").get_all("Project-URL") or []
    assert dict(each.split(", ") for each in found) == addresses.addresses()


def help_of(folder: Path, urls: dict[str, str]) -> str:
    """`headway --help` of a package that was built with these addresses."""
    (folder / "headway").symlink_to(Path(headway.__file__).parent)
    described = folder / "headway-1.dist-info"
    described.mkdir()
    lines = ["Metadata-Version: 2.1", "Name: headway", "Version: 1"]
    lines += [f"Project-URL: {name}, {url}" for name, url in urls.items()]
    (described / "METADATA").write_text("\n".join([*lines, ""]))
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); sys.argv[0] = 'headway';"
        "from headway.cli import main; sys.exit(main())"
    )
    shown = execute([sys.executable, "-I", "-S", "-c", code, "--help"])
    assert shown.returncode == 0, shown.stderr
    return str(shown.stdout)


def test_the_help_has_the_addresses_of_the_package(tmp_path: Path) -> None:
    lines = [line for line in help_of(tmp_path, URLS).splitlines() if ".invalid" in line]
    assert lines == [f"{name}: {url}" for name, url in URLS.items()]


def test_the_help_of_a_package_without_addresses_has_none(tmp_path: Path) -> None:
    text = help_of(tmp_path, {})
    assert "://" not in text
    assert not any(f"{name}:" in text for name in URLS)


def test_a_page_without_a_place_is_an_error() -> None:
    with pytest.raises(ValueError, match="no place"):
        addresses.fill("# A page\n\n<!-- addresses --><!-- end -->\n", URLS)
