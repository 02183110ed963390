"""The crates compile with the `rust-version` of Cargo.toml, which is the Rust of Debian 13.

clippy compares the standard library's functions with that version, but not the syntax. Chains of
`let` came with Rust 1.88, and every compiler since then accepts them without a word.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

tree_sitter = pytest.importorskip(
    "tree_sitter", reason="tests/requirements-layers.txt is not installed"
)
tree_sitter_rust = pytest.importorskip("tree_sitter_rust")

pytestmark = pytest.mark.slow("make lint runs it")

ROOT = Path(__file__).resolve().parent.parent


def let_chains(source: bytes) -> Iterator[int]:
    """The lines on which a chain of conditions with a `let` begins."""
    language = tree_sitter.Language(tree_sitter_rust.language())
    tree = tree_sitter.Parser(language).parse(source)
    nodes = [tree.root_node]
    while nodes:
        node = nodes.pop()
        if node.type == "let_chain":
            yield node.start_point[0] + 1
        nodes += node.children


def test_no_crate_has_a_chain_of_let() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for folder in ("crates", "lab/crates", "fuzz")
        for file in sorted((ROOT / folder).rglob("*.rs"))
        if "target" not in file.relative_to(ROOT).parts
        for line in let_chains(file.read_bytes())
    ]
    assert found == [], "needs Rust 1.88: nest the conditions"


@pytest.mark.parametrize(
    "condition",
    ["if let Some(a) = b && a", "if a\n && let Some(b) = c", "while let Some(a) = b && a"],
)
def test_a_chain_of_let_is_found(condition: str) -> None:
    assert list(let_chains(f"fn f() {{\n {condition} {{}} }}".encode())) == [2]


@pytest.mark.parametrize("condition", ["if let Some(a) = b", "if let Some(a) = (b && c)"])
def test_one_let_is_allowed(condition: str) -> None:
    assert list(let_chains(f"fn f() {{ {condition} {{}} }}".encode())) == []
