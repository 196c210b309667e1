"""Circles of imports: modules that cannot be understood, or moved, one without the other."""

from collections.abc import Iterator, Mapping, Sequence

from tests.structure.importers import imported_names
from tests.structure.source_tree import SourceTree


def circles(tree: SourceTree) -> Sequence[Sequence[str]]:
    """Return the groups of modules that import one another, in a function or for type checkers alone too."""
    names = {file.name for file in tree.modules}
    imports = {
        file.name: sorted(names & set(imported_names(file)) - {file.name}) for file in tree.modules
    }
    return sorted(sorted(group) for group in _strong_components(imports) if group[1:])


def _strong_components(graph: Mapping[str, Sequence[str]]) -> Iterator[Sequence[str]]:
    """Yield the strongly connected components of a graph (Kosaraju)."""
    order: list[str] = []
    seen: set[str] = set()
    for start in graph:
        _visit(start, graph, seen, order)
    reverse: dict[str, list[str]] = {name: [] for name in graph}
    for name, found in graph.items():
        for other in found:
            reverse[other].append(name)
    seen = set()
    for start in reversed(order):
        group: list[str] = []
        _visit(start, reverse, seen, group)
        if group:
            yield group


def _visit(
    start: str, graph: Mapping[str, Sequence[str]], seen: set[str], order: list[str]
) -> None:
    """Append all that can be reached from a node and was not seen, each after what it leads to."""
    if start in seen:
        return
    seen.add(start)
    stack = [(start, iter(graph[start]))]
    while stack:
        name, rest = stack[-1]
        following = next((one for one in rest if one not in seen), None)
        if following is None:
            order.append(name)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(graph[following])))
