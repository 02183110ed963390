"""The modules of a Rust crate and the arrows between them, read from its sources.

An arrow runs from a module to another whose items it names, in a `use` or in a path, through
re-exports to the module that defines the item. Arrows between a module and a module inside it are
left out, as is what is compiled for tests alone. Names that a macro makes are not seen.
"""

import graphlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tree_sitter_rust
from tree_sitter import Language, Node, Parser

Names = tuple[str, ...]

PATHS = {"scoped_identifier", "scoped_type_identifier"}
LEAVES = {"identifier", "type_identifier", "crate", "super", "self", "metavariable"}


@dataclass
class Module:
    """`imports` maps the names that `use` brings into the module to their paths."""

    path: Names
    imports: dict[str, Names] = field(default_factory=dict)
    named: set[Names] = field(default_factory=set)


def module_graph(source: Path) -> dict[Names, set[Names]]:
    """The arrows of the crate whose `lib.rs` or `main.rs` is `source`, as sets by module."""
    modules: dict[Names, Module] = {}
    _read_file(source, (), source.parent, modules)
    graph: dict[Names, set[Names]] = {}
    for module in modules.values():
        targets = (_defining_module(modules, module, names) for names in module.named)
        graph[module.path] = {
            target
            for target in targets
            if target is not None and not _is_inside(target, module.path)
        }
    return graph


def find_cycle(graph: dict[Names, set[Names]]) -> str | None:
    """A cycle of the graph in the form `a -> b::c -> a`; None if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        # A sorter's arrows run to what comes first.
        return " -> ".join("::".join(module) for module in reversed(error.args[1]))
    return None


def _is_inside(one: Names, other: Names) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _read_file(file: Path, path: Names, directory: Path, modules: dict[Names, Module]) -> None:
    """`directory` is where the files of the module's own modules are."""
    tree = Parser(Language(tree_sitter_rust.language())).parse(file.read_bytes())
    _read_items(tree.root_node, file, path, directory, modules)


def _read_items(
    items: Node, file: Path, path: Names, directory: Path, modules: dict[Names, Module]
) -> None:
    module = modules[path] = Module(path)
    attributes: list[str] = []
    for item in items.children:
        if item.type == "attribute_item":
            attributes.append(_text(item))
            continue
        if not any("cfg(test)" in attribute for attribute in attributes):
            if item.type == "mod_item":
                _read_module(item, attributes, file, path, directory, modules)
            else:
                _read_names(item, module)
        if "comment" not in item.type:
            attributes = []


def _read_module(
    item: Node,
    attributes: Sequence[str],
    file: Path,
    path: Names,
    directory: Path,
    modules: dict[Names, Module],
) -> None:
    name = _text(_child(item, "name"))
    stated = [text.split('"')[1] for text in attributes if text.startswith("#[path")]
    body = item.child_by_field_name("body")
    if body is not None:
        inside = directory / stated[0] if stated else directory / name
        _read_items(body, file, (*path, name), inside, modules)
        return
    candidates = [directory / f"{name}.rs", directory / name / "mod.rs"]
    if stated:
        candidates = [file.parent / stated[0]]
    found = next(candidate for candidate in candidates if candidate.exists())
    own = found.parent if found.name == "mod.rs" else found.parent / found.stem
    _read_file(found, (*path, name), own, modules)


def _read_names(node: Node, module: Module) -> None:
    if node.type == "use_declaration":
        for names, alias in _use_leaves(_child(node, "argument"), ()):
            module.imports[alias] = names
            module.named.add(names)
    elif node.type in PATHS:
        module.named.add(_names_of(node))
    elif node.type == "token_tree":
        module.named.update(_paths_in_tokens(node.children))
    if node.type != "use_declaration":
        for child in node.children:
            _read_names(child, module)


def _use_leaves(node: Node, prefix: Names) -> Iterator[tuple[Names, str]]:
    match node.type:
        case "use_list":
            for child in node.named_children:
                yield from _use_leaves(child, prefix)
        case "scoped_use_list":
            path = node.child_by_field_name("path")
            inside = prefix if path is None else (*prefix, *_names_of(path))
            yield from _use_leaves(_child(node, "list"), inside)
        case "use_as_clause":
            names = (*prefix, *_names_of(_child(node, "path")))
            yield names, _text(_child(node, "alias"))
        case "use_wildcard":
            yield (*prefix, *_names_of(node.named_children[0])), "*"
        case "self" if prefix:
            yield prefix, prefix[-1]
        case "line_comment" | "block_comment":
            pass
        case _:
            names = (*prefix, *_names_of(node))
            yield names, names[-1]


def _names_of(path: Node) -> Names:
    """`crate::a::B` of `crate::a::B` and of `crate::a::B::<T>`, without the types in brackets."""
    if path.type in LEAVES:
        return (_text(path),)
    parts = (path.child_by_field_name(name) for name in ("path", "type", "name"))
    return tuple(name for part in parts if part is not None for name in _names_of(part))


def _paths_in_tokens(tokens: Sequence[Node]) -> Iterator[Names]:
    """Paths in the arguments of a macro, which have no syntax of their own."""
    names: list[str] = []
    for token in tokens:
        if token.type in LEAVES:
            names = [*names, _text(token)] if names and names[-1] == "::" else [_text(token)]
        elif token.type == "::" and names:
            names.append("::")
        else:
            names = []
        if len(names) > 1 and names[-1] != "::":
            yield tuple(name for name in names if name != "::")


def _defining_module(
    modules: dict[Names, Module], module: Module, names: Names, depth: int = 0
) -> Names | None:
    """The module of this crate that defines what `names` means in `module`; None if none does."""
    absolute = _absolute(modules, module, names)
    if absolute is None or depth > 8:
        return None
    length = next(n for n in range(len(absolute), -1, -1) if absolute[:n] in modules)
    target, rest = modules[absolute[:length]], absolute[length:]
    if rest and rest[0] in target.imports and target.imports[rest[0]] != names:
        origin = (*target.imports[rest[0]], *rest[1:])
        return _defining_module(modules, target, origin, depth + 1)
    return target.path


def _absolute(modules: dict[Names, Module], module: Module, names: Names) -> Names | None:
    """`names` from the crate's root on; None if they begin in another crate, or with a type."""
    if names[0] == "crate":
        return names[1:]
    if names[0] == "self":
        return (*module.path, *names[1:])
    if names[0] == "super":
        parents = next((n for n, name in enumerate(names) if name != "super"), len(names))
        return (*module.path[: len(module.path) - parents], *names[parents:])
    if (*module.path, names[0]) in modules:
        return (*module.path, *names)
    imported = module.imports.get(names[0])
    if imported is None or imported[0] == names[0]:
        return None
    return _absolute(modules, module, (*imported, *names[1:]))


def _child(node: Node, name: str) -> Node:
    child = node.child_by_field_name(name)
    if child is None:
        raise ValueError(f"{node.type} without {name}: {_text(node)}")
    return child


def _text(node: Node) -> str:
    return (node.text or b"").decode()
