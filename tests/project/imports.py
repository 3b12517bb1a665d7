"""Reads the imports of the package's source files and says which of them break the layering of docs/architecture.md."""

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

# A layer (the first part of a module's name below `capgraph`; `api` is `capgraph` itself) -> the layers it may import.
ALLOWED_LAYERS = {
    "ir": {"ir"},
    "passes": {"ir", "passes"},
    "frontends": {"ir", "frontends"},
    "executors": {"ir", "passes", "executors"},
    "api": {"ir", "passes", "frontends", "executors", "api"},
}
# The one executor that exports: (importing module, imported module), each with all below it.
ALLOWED_EXCEPTIONS = [("capgraph.executors.ort", "capgraph.frontends.onnx")]
# What the two inner layers may import from outside at all, and what everything loaded by `import capgraph` may import.
BASE_PACKAGES = {"numpy", "ml_dtypes"}
INNER_LAYERS = {"ir", "passes"}


@dataclass(frozen=True)
class Import:
    """One imported module.

    `from x import y` counts as both x and x.y: only the file system knows whether y is a module.
    """

    target: str
    line: int
    is_relative: bool
    runs_on_import: bool  # neither inside a function nor for type checkers only


@dataclass(frozen=True)
class Module:
    """A source file of the package, its dotted name, and what it imports."""

    name: str
    is_package: bool
    imports: tuple[Import, ...]

    @property
    def layer(self) -> str:
        return layer_of(self.name)


def package_folders() -> dict[str, Path]:
    """Import package -> folder, for the five layers, from pyproject.toml."""
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    return {package: ROOT / folder for package, folder in setuptools["package-dir"].items()}


def layer_of(module: str) -> str:
    """The layer of a module of the package: the layers below it are named in its second part, all else is the api."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ALLOWED_LAYERS else "api"


@cache
def read_package() -> Mapping[str, Module]:
    """All modules of the package by name, read once."""
    return {
        name: _module(name, syntax_of(path), is_package=path.stem == "__init__")
        for name, path in module_files().items()
    }


@cache
def syntax_of(path: Path) -> ast.Module:
    """The syntax tree of a source file, read once."""
    return ast.parse(path.read_text())


def module_files() -> dict[str, Path]:
    """Module -> file, for all of the package."""
    files = {}
    for package, folder in package_folders().items():
        for path in sorted(folder.rglob("*.py")):
            inner = path.relative_to(folder).with_suffix("").parts
            files[".".join([package, *(inner[:-1] if inner[-1] == "__init__" else inner)])] = path
    return files


def read_module(name: str, source: str, *, is_package: bool = False) -> Module:
    """The module `name` with the imports of its source text."""
    return _module(name, ast.parse(source), is_package=is_package)


def _module(name: str, tree: ast.Module, *, is_package: bool) -> Module:
    package = name if is_package else name.rpartition(".")[0]
    return Module(name, is_package, tuple(_imports(tree, package, runs_on_import=True)))


def _imports(node: ast.AST, package: str, *, runs_on_import: bool) -> Iterator[Import]:
    match node:
        case ast.Import():
            for alias in node.names:
                yield Import(alias.name, node.lineno, False, runs_on_import)
        case ast.ImportFrom():
            base = _resolved(node, package)
            for target in (base, *(f"{base}.{alias.name}" for alias in node.names)):
                yield Import(target, node.lineno, node.level > 0, runs_on_import)
        case ast.If() if "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                yield from _imports(child, package, runs_on_import=False)
            for child in node.orelse:
                yield from _imports(child, package, runs_on_import=runs_on_import)
        case _:
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                yield from _imports(child, package, runs_on_import=runs_on_import and not is_function)


def _resolved(node: ast.ImportFrom, package: str) -> str:
    if node.level == 0:
        return node.module or ""
    parts = package.split(".")
    if node.level > len(parts):
        return ".".join(["beyond_the_package", node.module or ""])
    return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])


def layering_faults(module: Module) -> list[str]:
    """What the imports of one module break, one sentence each."""
    faults = []
    for imported in module.imports:
        fault = _fault(module, imported)
        if fault:
            faults.append(f"{module.name}, line {imported.line}: {fault}")
    return faults


def _fault(module: Module, imported: Import) -> str | None:
    root = imported.target.split(".")[0]
    if root == "beyond_the_package":
        return "a relative import leaves the package"
    if root != "capgraph":
        is_outside = root not in BASE_PACKAGES and root not in sys.stdlib_module_names
        return f"{module.layer} may not import {root}" if is_outside and module.layer in INNER_LAYERS else None
    if not imported.is_relative:
        return f"{imported.target} is imported by its full name; inside the package imports are relative"
    if imported.target == "capgraph":  # `from .. import ir`: the second form of the import names the layer
        return None
    if any(_is_below(module.name, a) and _is_below(imported.target, b) for a, b in ALLOWED_EXCEPTIONS):
        return None
    layer = layer_of(imported.target)
    if layer in ALLOWED_LAYERS[module.layer]:
        return None
    return None if _leads_to_exception(module, imported) else f"{module.layer} may not import {layer}"


def _is_below(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _leads_to_exception(module: Module, imported: Import) -> bool:
    """`from ..frontends import onnx` names `capgraph.frontends` on the way to what is allowed."""
    is_on_the_way = any(_is_below(module.name, a) and _is_below(b, imported.target) for a, b in ALLOWED_EXCEPTIONS)
    same_line = [other.target for other in module.imports if other.line == imported.line and other != imported]
    return is_on_the_way and any(_is_below(other, b) for other in same_line for _, b in ALLOWED_EXCEPTIONS)


def loaded_by(start: str, modules: Mapping[str, Module]) -> set[str]:
    """The modules of the package that run when `start` is imported, their parent packages included."""
    loaded: set[str] = set()
    pending = [start]
    while pending:
        name = pending.pop()
        if name not in modules or name in loaded:
            continue
        loaded.add(name)
        pending.append(name.rpartition(".")[0])
        pending.extend(imported.target for imported in modules[name].imports if imported.runs_on_import)
    return loaded


def heavy_imports(module: Module) -> list[str]:
    """The packages outside the standard library, numpy and ml_dtypes that importing the module loads at once."""
    roots = {imported.target.split(".")[0] for imported in module.imports if imported.runs_on_import}
    return sorted(roots - BASE_PACKAGES - set(sys.stdlib_module_names) - {"capgraph"})


def circles(modules: Mapping[str, Module]) -> list[list[str]]:
    """Modules of several folders that import each other in circles, whenever that runs: each circle with all on it."""
    folders = _folders(modules)
    found = _circles({name: _imported(module, modules) for name, module in modules.items()})
    return [circle for circle in found if len({folders[name] for name in circle}) > 1]


def circles_of_rooms(modules: Mapping[str, Module]) -> list[list[str]]:
    """Folders side by side that import each other in circles, with all below them: each circle with all on it."""
    folders = _folders(modules)
    targets: dict[str, set[str]] = {}
    for name, module in modules.items():
        for target in _imported(module, modules):
            one, other = folders[name].split("."), folders[target].split(".")
            shared = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
            if shared is not None:  # else one folder lies in the other
                rooms = [".".join(parts[: shared + 1]) for parts in (one, other)]
                targets.setdefault(rooms[0], set()).add(rooms[1])
                targets.setdefault(rooms[1], set())
    return _circles(targets)


def _folders(modules: Mapping[str, Module]) -> dict[str, str]:
    return {name: name if module.is_package else name.rpartition(".")[0] for name, module in modules.items()}


def _circles(targets: dict[str, set[str]]) -> list[list[str]]:
    """The sets of several names of which each leads to each other."""
    reached = {name: _reached(name, targets) for name in targets}
    found = {tuple(sorted({name, *(other for other in reached[name] if name in reached[other])})) for name in targets}
    return [list(circle) for circle in sorted(found) if len(circle) > 1]


def _imported(module: Module, modules: Mapping[str, Module]) -> set[str]:
    """What a module imports: of `from x import y` the module y where there is one, else x."""
    by_line: dict[int, list[str]] = {}
    for imported in module.imports:
        by_line.setdefault(imported.line, []).append(imported.target)
    found: set[str] = set()
    for base, *names in by_line.values():
        inner = [name for name in names if name in modules]
        found.update(inner)
        if len(inner) < len(names) or not names:
            found.add(base)
    return found & modules.keys() - {module.name}


def _reached(start: str, targets: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    pending = [start]
    while pending:
        for name in targets[pending.pop()] - found:
            found.add(name)
            pending.append(name)
    return found
