"""`dynamic_shapes` of torch.export, in which a name may stand for a dim, and the names that it gives to sizes."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.export import graph_signature

from ...ir.errors import InputError


def with_dims(spec: Any) -> Any:
    """`dynamic_shapes` with a dynamic dim for each name: its range comes from the module."""
    if isinstance(spec, str):
        return torch.export.Dim.DYNAMIC
    if isinstance(spec, Mapping):
        return {key: with_dims(item) for key, item in spec.items()}
    if isinstance(spec, list | tuple):
        return type(spec)(with_dims(item) for item in spec)
    return spec


def by_signature(signature: inspect.Signature, count: int, spec: Any) -> Any:
    """`dynamic_shapes` by position with what is for `*xs` as one item, as torch.export has it.

    `count` is how many arguments there are by position.
    """
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    if not isinstance(spec, list | tuple) or inspect.Parameter.VAR_POSITIONAL not in kinds:
        return spec
    first = kinds.index(inspect.Parameter.VAR_POSITIONAL)
    rest = spec[first:]
    is_one = len(rest) == 1 and isinstance(rest[0], list | tuple) and len(rest[0]) == count - first
    if is_one and all(each is None or isinstance(each, Mapping | list | tuple) for each in rest[0]):
        return spec
    return (*spec[:first], tuple(rest))


def symbol_names(program: Any, signature: inspect.Signature, spec: Any) -> dict[str, str]:
    """What the user calls PyTorch's symbols, from the dims of `dynamic_shapes` as torch.export takes it.

    `signature` is that of the module. Raises `InputError` for an axis that a tensor does not have, for what is no name,
    and for one name of sizes that differ in the examples.
    """
    names: dict[str, str] = {}
    examples: dict[str, int] = {}
    for size, given in _stated(program, signature, spec):
        root = getattr(given, "root", given)  # of 2*Dim("b") the dim b
        name = root if isinstance(root, str) else getattr(root, "__name__", None)
        if not name:
            continue
        if root is given:
            _check_name(name, size.node.hint, examples)
        names.setdefault(_symbol_of(size), name)
    return names


def stated_least(program: Any, signature: inspect.Signature, spec: Any) -> dict[str, int]:
    """The minimum of PyTorch's symbols where the dims of `dynamic_shapes` state one."""
    stated = (
        (_symbol_of(size), getattr(getattr(dim, "root", dim), "min", None))
        for size, dim in _stated(program, signature, spec)
    )
    return {symbol: least for symbol, least in stated if least}


def _stated(program: Any, signature: inspect.Signature, spec: Any) -> Iterator[tuple[Any, Any]]:
    """The sizes that vary by a symbol, of tensors and as arguments, and what `dynamic_shapes` has for each."""
    if spec is None:
        return
    arguments = [node.meta.get("val") for node in _user_placeholders(program)]
    for argument, dims in zip(arguments, _leaf_specs(program, signature, spec), strict=False):
        for size, dim in _sizes_of(argument, dims):
            if dim is not None and isinstance(size, torch.SymInt) and _tells_symbol(size.node.expr, dim):
                yield size, dim


def _tells_symbol(expr: Any, dim: Any) -> bool:
    """Whether a size is a symbol, or made of one by a dim that is made of another."""
    return bool(expr.is_Symbol) or (hasattr(dim, "root") and len(expr.free_symbols) == 1)


def _sizes_of(argument: Any, dims: Any) -> list[tuple[Any, Any]]:
    if isinstance(argument, torch.SymInt):
        return [(argument, dims)]
    if not isinstance(argument, torch.Tensor) or not dims:
        return []
    named = dims.items() if isinstance(dims, Mapping) else enumerate(dims)
    return [(_size_at(argument, axis), dim) for axis, dim in named]


def _symbol_of(size: Any) -> str:
    (found,) = size.node.expr.free_symbols
    return str(found)


def _size_at(tensor: Any, axis: int) -> Any:
    if not 0 <= axis < tensor.dim():  # PyTorch ignores it
        raise InputError(
            f"dynamic_shapes speaks of axis {axis} of a tensor of rank {tensor.dim()}",
            remedy=f"count axes from 0 to {tensor.dim() - 1}",
        )
    return tensor.shape[axis]


def _check_name(name: str, example: int, examples: dict[str, int]) -> None:
    """Refuses what is no name, and a name for sizes that differ already in the examples."""
    if not name.isidentifier():
        raise InputError(f"dynamic_shapes calls a size {name!r}, which is no name", remedy='such as "batch"')
    if examples.setdefault(name, example) != example:
        raise InputError(
            f"dynamic_shapes calls sizes {name!r} of which one is {examples[name]} in the examples, another {example}",
            remedy="sizes with one name are equal in every call: use two names, or other examples",
        )


def _leaf_specs(program: Any, signature: inspect.Signature, spec: Any) -> list[Any]:
    """The dims of each leaf of (args, kwargs), as `dynamic_shapes` gives them."""
    args, kwargs = program.example_inputs or ((), {})
    combined = signature.bind(*args, **kwargs).arguments
    given = spec if isinstance(spec, Mapping) else dict(zip(combined, spec, strict=False))
    rest = next((each.name for each in signature.parameters.values() if each.kind is each.VAR_KEYWORD), "")
    others = given.get(rest)
    by_name = {**(others if isinstance(others, Mapping) else {}), **given}
    return [*_leaves(signature.bind_partial(*args).arguments, given), *_leaves(kwargs, by_name)]


def _leaves(tree: Any, spec: Any) -> Iterator[Any]:
    """For every leaf of `tree` what `spec` has for it, None where it has nothing."""
    if isinstance(tree, Mapping):
        for key, item in tree.items():
            yield from _leaves(item, spec.get(key) if isinstance(spec, Mapping) else None)
    elif isinstance(tree, list | tuple):
        listed = spec if isinstance(spec, list | tuple) else [None] * len(tree)
        for item, dims in zip(tree, listed, strict=True):
            yield from _leaves(item, dims)
    else:
        yield spec


def _user_placeholders(program: Any) -> list[Any]:
    kinds = {spec.arg.name: spec.kind for spec in program.graph_signature.input_specs}
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    return [node for node in nodes if kinds[node.name] is graph_signature.InputKind.USER_INPUT]
