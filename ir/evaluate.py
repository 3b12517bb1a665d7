"""The reference evaluator: what a graph means, node by node, in NumPy.

Executors are tested against it and passes are checked with it, so it is plain: no plan, no reuse of buffers. It runs
nodes in order, drops a value after its last use, checks every result against its declared type, and names the node and
its origin when something fails.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .attrs import is_tuple
from .binding import inside
from .constant import is_array
from .dims import SymDim, Truth, compare, evaluate, solve
from .errors import CapgraphError, ExecutionError, InputError, cause_of, out_of_memory
from .foreign import meaning_of
from .graph import Graph, Node, Value
from .types import DType, OpaqueType, OptionalType, SequenceType, TensorType, Type, bind_type

Sizes = dict[str, int]


def evaluate_graph(graph: Graph, inputs: Sequence[Any], sizes: Mapping[str, int] | None = None) -> tuple[Any, ...]:
    """Runs `graph` on `inputs` (arrays, in the order of its inputs) and gives its outputs, in order.

    `sizes` binds symbols beforehand; the rest are bound from the inputs' shapes. Raises `InputError` when an input does
    not fit, `ExecutionError` when a node fails, `ResourceError` when memory runs out.
    """
    env: Sizes = dict(sizes or {})
    bind_inputs(graph, inputs, env)
    with np.errstate(all="ignore"):  # infinities and NaN are results like any other
        return _run_nodes(graph, inputs, env)


def _run_nodes(graph: Graph, inputs: Sequence[Any], env: Sizes) -> tuple[Any, ...]:
    values: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))
    remaining = {value: len(value.uses) for value in graph.values}
    for node in graph.nodes:
        operands = [values[value] if value is not None else None for value in node.inputs]
        for value, result in zip(node.outputs, evaluate_node(node, operands, env), strict=True):
            if remaining[value]:
                values[value] = result
        for value in node.operands:
            remaining[value] -= 1
            if not remaining[value]:
                del values[value]
    return tuple(values[value] for value in graph.outputs)


def bind_inputs(graph: Graph, inputs: Sequence[Any], env: Sizes) -> None:
    """Checks `inputs` against the graph's input types and adds the symbols that they determine to `env`."""
    if len(inputs) != len(graph.inputs):
        names = ", ".join(value.name for value in graph.inputs) or "none"
        raise InputError(f"graph {graph.name} takes {len(graph.inputs)} inputs ({names}), not {len(inputs)}")
    for _ in range(2):  # a size like 2*T may stand before the T that determines it
        for value, given in zip(graph.inputs, inputs, strict=True):
            problem = match_type(value.type, given, env)
            if problem:
                raise InputError(f"input {value.name}: {problem}", remedy=f"pass a value of type {value.type}")


FAILURES = (
    CapgraphError,
    MemoryError,
    ValueError,
    TypeError,
    IndexError,
    ArithmeticError,
    KeyError,
    NotImplementedError,
    RuntimeError,
)
"""What a meaning may raise for operands that it cannot take; anything else is a fault of the program around it."""


def failure(node: Node, error: BaseException) -> CapgraphError:
    """One of FAILURES, raised by the meaning of `node`, as the error for users: it names the node and its origin.

    To be raised from `cause_of(error)`, as it may be `error` itself.
    """
    if isinstance(error, CapgraphError):
        return error.located(node.where())
    if isinstance(error, MemoryError):
        wanted = ", ".join(str(value.type) for value in node.outputs)
        return out_of_memory(wanted, where=node.where())
    return ExecutionError(f"{node.op.name} failed: {error}", where=node.where())


def evaluate_node(node: Node, operands: Sequence[Any], env: Sizes) -> tuple[Any, ...]:
    """The results of one node. Adds symbols first seen in its results (data-dependent sizes) to `env`."""
    try:
        results = run_meaning(node, operands, env)
    except FAILURES as error:
        raise failure(node, error) from cause_of(error)
    return tuple(checked(value, result, env) for value, result in zip(node.outputs, results, strict=True))


def run_meaning(node: Node, operands: Sequence[Any], env: Sizes) -> tuple[Any, ...]:
    """The raw results of a node's meaning, with attributes bound to `env`; exceptions pass through."""
    if node.op.is_foreign:
        return as_results(node, meaning_of(node)(node, operands))
    return as_results(node, node.op.meaning(*operands, **bound_attrs(node, env)))


def as_results(node: Node, given: Any) -> tuple[Any, ...]:
    """What a meaning gave, as one entry per result of `node`. Raises `ExecutionError` for another number."""
    results = tuple(given) if is_tuple(given) or node.op.is_foreign else (given,)
    if len(results) != len(node.outputs):
        raise ExecutionError(f"{node.op.name} gave {len(results)} results instead of {len(node.outputs)}")
    return results


def bound_attrs(
    node: Node, env: Sizes, region: "Callable[[Graph, Sizes], BoundRegion] | None" = None
) -> dict[str, Any]:
    """The attributes for a meaning: symbolic dims as integers, regions as callables on arrays (`BoundRegion` else)."""
    attrs = node.attrs.as_kwargs()
    if not node.op.bound_attrs:
        return attrs
    bound: dict[str, Any] = {}
    for name in node.op.bound_attrs:
        value = attrs[name]
        if isinstance(value, Graph):
            outside = inside(env, (v.type for v in value.inputs), (v.type for v in node.operands))
            bound[name] = (region or BoundRegion)(value, outside)
        else:
            bound[name] = _bound(value, env)
    return {**attrs, **bound}


def _bound(value: Any, env: Sizes) -> Any:
    if isinstance(value, SymDim):
        return evaluate(value, env)
    return tuple(_bound(item, env) for item in value) if is_tuple(value) else value


class BoundRegion:
    """A body as the meaning of its node sees it: a function on arrays that knows the sizes of the call around it.

    These are without the body's own symbols, and each run gets a copy, so that the body's own are bound anew.
    """

    __slots__ = ("body", "sizes")

    def __init__(self, body: Graph, sizes: Sizes) -> None:
        self.body = body
        self.sizes = sizes

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """The results of the body."""
        return evaluate_graph(self.body, arrays, self.sizes)

    def result_types(self, *arrays: Any) -> tuple[Type, ...]:
        """The types of the results for inputs like `arrays`; a size that only a run tells stays symbolic."""
        sizes = dict(self.sizes)
        bind_inputs(self.body, arrays, sizes)
        return tuple(bind_type(value.type, sizes) for value in self.body.outputs)


def checked(value: Value, result: Any, env: Sizes) -> Any:
    """`result` as `value` holds it: a tensor is an array of the declared type. Raises `ExecutionError` when it is not.

    Symbols that the result determines are added to `env`.
    """
    if isinstance(value.type, TensorType) and not is_array(result):
        result = np.asarray(result, dtype=value.type.dtype.numpy)
    problem = match_type(value.type, result, env)
    if problem:
        assert value.producer is not None  # graph inputs are checked by bind_inputs
        raise ExecutionError(f"%{value.name} is declared as {value.type}, but {problem}", where=value.producer.where())
    return result


def match_type(ty: Type, value: Any, env: Sizes) -> str:
    """Why `value` is not of type `ty` with the sizes in `env` (empty when it is); binds symbols that it determines."""
    if isinstance(ty, TensorType):
        return _match_tensor(ty, value, env)
    if isinstance(ty, SequenceType) and not isinstance(value, list | tuple):
        return f"got {type(value).__name__} instead of a sequence"
    if isinstance(ty, OptionalType | SequenceType | OpaqueType):
        return ""
    return ""


def _match_tensor(ty: TensorType, value: object, env: Sizes) -> str:
    if not is_array(value):
        return f"got {type(value).__name__} instead of an array"
    if value.dtype != ty.dtype.numpy and DType.of(value.dtype) is not ty.dtype:
        return f"got {value.dtype} instead of {ty.dtype}"
    if ty.shape is None:
        return ""
    if len(ty.shape) != value.ndim:
        return f"got shape {list(value.shape)} instead of {ty}"
    for dim, size in zip(ty.shape, value.shape, strict=True):
        if isinstance(dim, int):
            if dim != size:
                return f"got shape {list(value.shape)} instead of {ty}"
        elif not _match_dim(dim, size, env):
            known = ", ".join(f"{name}={env[name]}" for name in sorted(dim.symbols) if name in env)
            return f"got shape {list(value.shape)} instead of {ty}" + (f" with {known}" if known else "")
    return ""


def _match_dim(dim: SymDim, size: int, env: Sizes) -> bool:
    missing = [name for name in dim.symbols if name not in env]
    if not missing:
        return evaluate(dim, env) == size
    solved = solve(dim, size, env)
    if solved is None:  # undecided yet, or impossible
        return compare(dim.bind(env), size) is not Truth.NO
    env[solved[0]] = solved[1]
    return True
