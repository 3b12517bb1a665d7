"""Finds literal sets and comparisons of op names in the package's source: what is true of an op stands in its row."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from capgraph.ir.ops import OPS, PLANNED_OPS

from tests.project.imports import package_folders, syntax_of

NAMES = frozenset((*OPS, *PLANNED_OPS))
OWN_TABLES = (
    "ir/ops/",
    "frontends/",
    "executors/cuda/kernel_ir/",
    "executors/cuda/kernels/",
    "executors/cuda/libraries/",
    "executors/host/kernels",
    "executors/ort/faults.py",
)
"""Where ops are named by right: their rows, and the tables of who translates, runs, or is known to miscompute them."""

_KINDS = frozenset(("max", "min"))
"""Names that reductions and updates have as well: a list of nothing else says nothing of ops."""

_HOLDS = ast.Name | ast.Attribute | ast.Lambda | ast.Call


@dataclass(frozen=True)
class Finding:
    """A literal set or comparison of op names: its file, below the root, its line, and the names."""

    path: str
    line: int
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {' '.join(self.names)}"


def find_in_package() -> list[Finding]:
    """All findings outside `OWN_TABLES`."""
    found: list[Finding] = []
    for folder in package_folders().values():
        for file in sorted(folder.rglob("*.py")):
            path = f"{folder.name}/{file.relative_to(folder)}"
            if not path.startswith(OWN_TABLES):
                found += find_in(syntax_of(file), path)
    return found


def find(source: str) -> list[Finding]:
    """The findings of a source text: see `find_in`."""
    return find_in(ast.parse(source))


def find_in(tree: ast.Module, path: str = "") -> list[Finding]:
    """The findings of a source file.

    A finding is a comparison or a match of an op's name with literals, a question of how it begins or ends, or a set,
    tuple, list, text to be split, or dict of facts whose literals are all names of ops. A dict of functions is a table
    of rules, one for each op, and no finding.
    """
    held = {"op", "op_name", *(name for node in ast.walk(tree) for name in _assigned(node))}
    found: list[Finding] = []
    seen: set[ast.AST] = set()
    for node in ast.walk(tree):
        names = () if node in seen else _named(node, held)
        if names:
            found.append(Finding(path, getattr(node, "lineno", 0), names))
            seen |= set(ast.walk(node))
    return found


def _assigned(node: ast.AST) -> tuple[str, ...]:
    """The variable that is given the name of an op."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_name_of_op(value, set()):
            return (name,)
        case _:
            return ()


def _named(node: ast.AST, held: set[str]) -> tuple[str, ...]:
    match node:
        case ast.Compare():
            return _compared([node.left, *node.comparators], held)
        case ast.Match():
            values = [each.value for each in ast.walk(node) if isinstance(each, ast.MatchValue)]
            return _compared([node.subject, *values], held)
        case ast.Call(func=ast.Attribute(value=owner, attr="startswith" | "endswith" | "removeprefix")):
            parts = tuple(_strings(node.args)) if _is_name_of_op(owner, held) else ()
            return tuple(part for part in parts if any(part in name for name in NAMES))
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="split")):
            return _list_of_ops(text.split(), at_least=2)
        case ast.Dict():
            is_table_of_rules = any(isinstance(value, _HOLDS) for value in node.values)
            return () if is_table_of_rules else _literals([key for key in node.keys if key is not None], at_least=2)
        case ast.Set(elts=elements):
            return _literals(elements, at_least=1)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return _literals(elements, at_least=2)
        case _:
            return ()


def _compared(sides: Sequence[ast.expr], held: set[str]) -> tuple[str, ...]:
    is_of_op = any(_is_name_of_op(side, held) for side in sides)
    return tuple(name for name in _strings(sides) if name in NAMES) if is_of_op else ()


def _is_name_of_op(node: ast.expr, held: set[str]) -> bool:
    """Whether an expression is `op.name`, `node.op.name`, or one of the variables that hold such a name."""
    match node:
        case ast.Attribute(value=ast.Name(id="op") | ast.Attribute(attr="op"), attr="name"):
            return True
        case _:
            return isinstance(node, ast.Name) and node.id in held


def _literals(elements: Sequence[ast.expr], *, at_least: int) -> tuple[str, ...]:
    own = [each for each in elements if not isinstance(each, ast.Starred)]
    texts = [each.value for each in own if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return _list_of_ops(texts, at_least=at_least) if len(texts) == len(own) else ()


def _list_of_ops(texts: Sequence[str], *, at_least: int) -> tuple[str, ...]:
    are_ops = len(texts) >= at_least and NAMES.issuperset(texts) and not _KINDS.issuperset(texts)
    return tuple(texts) if are_ops else ()


def _strings(nodes: Sequence[ast.expr]) -> Iterator[str]:
    """The texts among expressions, and among the elements of collections and calls of them."""
    for node in nodes:
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements) | ast.Call(args=elements):
                yield from _strings(elements)
            case ast.JoinedStr(values=elements):
                yield from _strings(elements)
            case _:
                pass
