"""The matrix of native ops: who reads, writes, runs and pads each, for docs/reference/ops.md.

Rules are read, not run: a rule makes an op if it names it, or a function that it calls does.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from pkgutil import walk_packages
from types import CodeType, FunctionType, ModuleType
from typing import Any

import capgraph.executors.cuda.kernels as cuda_kernels
from capgraph.executors.cuda import kernel_ir
from capgraph.executors.cuda.kernel_ir.expressions import EXPRESSIONS
from capgraph.executors.cuda.kernel_ir.pointwise import DRAWS
from capgraph.frontends.onnx import ops as onnx_ops
from capgraph.frontends.onnx.context.import_context import ImportContext
from capgraph.frontends.torch.call import Call
from capgraph.frontends.torch.ops import LOWERINGS as ATEN
from capgraph.ir.op import Op, Trait
from capgraph.ir.ops import OPS
from capgraph.passes.planning.padding import rules as padding_rules

NOT_THERE = "not there"
_SHOWN = 2
"""How many operators a cell names."""

COLUMNS = ("ONNX in", "ONNX out", "PyTorch in", "CUDA", "padding")

_BY_HAND = {
    ("constant", "ONNX in"): "initializers",
    ("constant", "ONNX out"): "initializers",
    ("if", "PyTorch in"): "`control_flow.py`",
    ("loop", "PyTorch in"): "`control_flow.py`",
    ("scan", "PyTorch in"): "`control_flow.py`",
}
"""What stands in no table."""


def rows() -> Iterator[tuple[str, ...]]:
    """The cells of each op: its name, then `COLUMNS`."""
    from_onnx, from_torch = _made_by(onnx_ops.IMPORTS, ImportContext), _made_by(ATEN, Call)
    kernels = {**_files(kernel_ir, "LOWERINGS"), **_files(cuda_kernels, "LOWERINGS")}
    pads, exports = _files(padding_rules, "RULES"), _files(onnx_ops, "EXPORTS")
    for name, op in sorted(OPS.items()):
        by_name = [f"aten.{name}"] if op.has(Trait.ELEMENTWISE) else []
        cells = (
            _operators(name, from_onnx.get(name, ())),
            _file(exports.get(name)) or ("composed" if op.scalar is not None else NOT_THERE),
            _operators(name, dict.fromkeys((*from_torch.get(name, ()), *by_name))),
            _kernel(op, kernels),
            _file(pads.get(name)) or ("elementwise" if op.has(Trait.ELEMENTWISE) else NOT_THERE),
        )
        by_hand = (_BY_HAND.get((name, column), cell) for column, cell in zip(COLUMNS, cells, strict=True))
        yield (f"`{name}`", *by_hand)


def _kernel(op: Op, kernels: Mapping[str, str]) -> str:
    if op.name in EXPRESSIONS or op.name in DRAWS:
        return "an expression"
    for twin in ("", "bounded_", "keyed_"):
        if f"{twin}{op.name}" in kernels:
            return f"{f'as `{twin}{op.name}`: ' if twin else ''}{_file(kernels[f'{twin}{op.name}'])}"
        if f"{twin}{op.name}" in DRAWS:
            return f"as `{twin}{op.name}`"
    if op.has(Trait.VIEW):
        return "a view"
    return "its bodies" if op.has(Trait.CONTROL_FLOW) else NOT_THERE


def _operators(op: str, found: Iterable[str]) -> str:
    """The operators that become an op, those of its name first."""
    same = op.replace("_", "")
    ordered = sorted(found, key=lambda name: (same not in name.lower().replace("_", ""), len(name), name))
    shown = ", ".join(f"`{name.removeprefix('aten.')}`" for name in ordered[:_SHOWN])
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return f"{shown}{more}" or NOT_THERE


def _file(name: str | None) -> str:
    return f"`{name}.py`" if name else ""


def _files(package: ModuleType, table: str) -> dict[str, str]:
    """The file of each op's row in the tables of a package; the least deep where there are several."""
    return dict(sorted(rows_of(package, table), key=lambda row: -row[1].count("/")))


def rows_of(package: ModuleType, table: str) -> Iterator[tuple[str, str]]:
    """The names in the tables of a package's modules, each with the path of its module in the package."""
    for each in walk_packages(package.__path__, f"{package.__name__}."):
        if not each.ispkg and not each.name.endswith(".tables"):
            path = each.name.removeprefix(f"{package.__name__}.").replace(".", "/")
            yield from ((name, path) for name in getattr(import_module(each.name), table, {}))


def _made_by(table: Mapping[str, Callable[..., Any]], context: type) -> dict[str, list[str]]:
    """The operators whose rules make each op; rules are given a `context`, whose methods make nodes as well."""
    found: dict[str, list[str]] = {}
    for operator, rule in table.items():
        texts = set(_texts(rule, context, set()))
        joined = {first + last for first in texts if first.endswith("_") for last in texts}  # f"reduce_{kind}"
        for name in (texts | {each for each in joined if _is_called(each, operator)}) & OPS.keys():
            found.setdefault(name, []).append(operator)
    return found


def _is_called(op: str, operator: str) -> bool:
    return op.removeprefix("dynamic_").replace("_", "") == operator.lower().removesuffix("like")


def _texts(thing: Any, context: type, seen: set[int]) -> Iterator[str]:
    """The texts and names of ops that a rule holds: in its code, in what it was made with, in functions of its file."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    match thing:
        case str():
            yield thing
        case Op():
            yield thing.name
        case tuple() | list() | frozenset():
            for each in thing:
                yield from _texts(each, context, seen)
        case Mapping():
            yield from _texts((*thing.keys(), *thing.values()), context, seen)
        case partial():
            yield from _texts((thing.func, *thing.args, *thing.keywords.values()), context, seen)
        case FunctionType():
            cells = [cell.cell_contents for cell in thing.__closure__ or ()]
            yield from _texts((*cells, *(thing.__defaults__ or ())), context, seen)
            for code in _codes(thing.__code__):
                used = [thing.__globals__.get(name, getattr(context, name, None)) for name in code.co_names]
                yield from _texts((*code.co_consts, *(each for each in used if _is_near(thing, each))), context, seen)
        case _:
            pass


def _is_near(function: FunctionType, other: Any) -> bool:
    """Whether what a function names is data, a function of its file, or a method of the context."""
    if isinstance(other, FunctionType):
        return other.__module__ == function.__module__ or "." in other.__qualname__
    return isinstance(other, Op | Mapping | tuple | str)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)
