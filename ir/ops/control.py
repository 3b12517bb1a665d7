"""Control flow and fusion: ops that own regions.

A region is an isolated graph: the outer values that it reads are further operands, which its last inputs stand for.
How its symbols relate to those outside is told in `ir.ops.regions`. Meanings follow ONNX's If, Loop and Scan.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..attrs import Attribute, AttrKind, Attrs
from ..constant import Array
from ..dims import Dim, Truth, compare, dim_max, product
from ..dims.constraints import require_equal
from ..errors import ExecutionError, TypeRuleError
from ..graph import Graph
from ..op import ANY, BOOLS, FRESH, I64, Op, Trait, op
from ..types import DType, TensorType, Type
from .regions import (
    Boundary,
    Carried,
    body_flops,
    bound_sizes,
    enter,
    free_symbols,
    outer_symbols,
    require_admitted,
    tensor_types,
)
from .rules import normal_axis, require_rank

_SCALAR_BOOL = TensorType(DType.BOOL, ())
_SCALAR_I64 = TensorType(DType.I64, ())


class Region(Protocol):
    """A body as a meaning sees it."""

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Runs the body."""
        ...

    def result_types(self, *arrays: Array) -> tuple[Type, ...]:
        """The types of the results for inputs like `arrays`; a size that only a run tells stays symbolic."""
        ...


# ---- if


def if_type(cond: TensorType, *captured: TensorType, then_body: Graph, else_body: Graph) -> tuple[TensorType, ...]:
    """The bodies agree in number, dtypes and ranks of results; a size in which they may differ is FRESH."""
    require_rank(cond, 0, "the condition of if")
    outer = outer_symbols((cond, *captured))
    then_types = _body_types(then_body, captured, outer, "then_body")
    else_types = _body_types(else_body, captured, outer, "else_body")
    if len(then_types) != len(else_types):
        raise TypeRuleError(f"then_body gives {len(then_types)} results, else_body {len(else_types)}")
    return tuple(_joined(index, *pair) for index, pair in enumerate(zip(then_types, else_types, strict=True)))


def _body_types(
    body: Graph, operands: Sequence[TensorType], outer: frozenset[str], what: str
) -> tuple[TensorType, ...]:
    boundary = enter(body, operands, outer, what)
    return tuple(boundary.type(ty) for ty in tensor_types(body.outputs, f"result of {what}"))


def _joined(index: int, left: TensorType, right: TensorType) -> TensorType:
    if left.dtype is not right.dtype or left.rank != right.rank:
        raise TypeRuleError(f"result {index} is {left} in then_body, but {right} in else_body")
    dims = (a if compare(a, b) is Truth.YES else FRESH for a, b in zip(left.dims, right.dims, strict=True))
    return left.with_shape(tuple(dims))


def run_if(cond: Array, *captured: Array, then_body: Region, else_body: Region) -> tuple[Array, ...]:
    """The results of `then_body` where the scalar `cond` is true, else those of `else_body`, on the captured values."""
    return then_body(*captured) if bool(cond) else else_body(*captured)


def _if_flops(inputs: Sequence[Type | None], _outputs: Sequence[Type], attrs: Attrs) -> Dim:
    outer, captured = outer_symbols(inputs), _tensors(inputs[1:])
    bodies = (attrs["then_body"], attrs["else_body"])
    return dim_max(*(body_flops(body, enter(body, captured, outer, "body")) for body in bodies))


# ---- loop


def loop_type(
    trip: TensorType | None, cond: TensorType | None, *values: TensorType, body: Graph, carried: int
) -> tuple[TensorType, ...]:
    """Carried values keep the sizes that no iteration changes; scanned results get the iterations as leading size."""
    if trip is None and cond is None:
        raise TypeRuleError("loop has neither a trip count nor a condition", remedy="give it one: it would never end")
    for ty, what in ((trip, "the trip count"), (cond, "the condition")):
        if ty is not None:
            require_rank(ty, 0, f"{what} of loop")
    boundary, carried_types = _loop_boundary(values, body, carried)
    scanned = tensor_types(body.outputs[1 + carried :], "result of the loop body")
    leading = [TensorType(ty.dtype, (FRESH, *boundary.type(ty).dims)) for ty in scanned]
    return (*(boundary.type(ty) for ty in carried_types), *leading)


def _loop_boundary(values: Sequence[TensorType], body: Graph, carried: int) -> tuple[Boundary, tuple[TensorType, ...]]:
    if not 0 <= carried <= len(values):
        raise TypeRuleError(f"loop carries {carried} values, but is given {len(values)}")
    declared = tensor_types(body.inputs, "input of the loop body")
    _require_count("loop body", "inputs", len(declared), 2 + len(values))
    if declared[:2] != (_SCALAR_I64, _SCALAR_BOOL):
        raise TypeRuleError(f"a loop body's first inputs are i64[] and bool[], not {declared[0]} and {declared[1]}")
    results = tensor_types(body.outputs, "result of the loop body")
    if len(results) < 1 + carried:
        raise TypeRuleError(f"a loop body that carries {carried} values gives at least {1 + carried} results")
    if results[0] != _SCALAR_BOOL:
        raise TypeRuleError(f"a loop body's first result is the condition, bool[], not {results[0]}")
    names = _names("the loop body", body, 2)
    handed = Carried(declared[2 : 2 + carried], tuple(values[:carried]), results[1 : 1 + carried], names[:carried])
    given, wanted = values[carried:], declared[2 + carried :]
    return _repeated(body, handed, wanted, given, names[carried:], outer_symbols(values)), handed.declared


def _repeated(
    body: Graph,
    handed: Carried,
    declared: Sequence[TensorType],
    given: Sequence[TensorType],
    names: Sequence[str],
    outer: frozenset[str],
) -> Boundary:
    """The boundary of a body whose inputs are carried values and values that are alike in every iteration."""
    allowed = outer | free_symbols(body)
    fixed = bound_sizes(declared, given, outer, names)
    require_admitted(declared, given, Boundary(fixed, allowed), names)
    return handed.boundary(fixed, allowed, outer)


def run_loop(trip: Array | None, cond: Array | None, *values: Array, body: Region, carried: int) -> tuple[Array, ...]:
    """Runs `body` on (iteration: i64[], cond: bool[], carried values, captured values) as often as told.

    The loop ends after `trip` iterations, if `trip` is given; if `cond` is given, also when it or the body's first
    result is false (without `cond` that result is ignored). The body gives (cond, carried values, scanned values).
    Results are the carried values after the last iteration, and every scanned value stacked along a new leading axis.
    """
    state, captured = values[:carried], values[carried:]
    gathered: list[tuple[Array, ...]] = []
    limit = None if trip is None else int(trip)
    goes_on = cond is None or bool(cond)
    while goes_on and (limit is None or len(gathered) < limit):
        results = body(np.asarray(len(gathered), np.int64), np.asarray(goes_on), *state, *captured)
        goes_on = cond is None or bool(results[0])
        state = results[1 : 1 + carried]
        gathered.append(results[1 + carried :])
    if gathered:
        return (*state, *(_stacked(parts, 0) for parts in zip(*gathered, strict=True)))
    types = body.result_types(np.asarray(0, np.int64), np.asarray(True), *state, *captured)
    return (*state, *(_nothing(ty, 0) for ty in types[1 + carried :]))


def _stacked(parts: Sequence[Array], axis: int) -> Array:
    if any(part.shape != parts[0].shape for part in parts):
        shapes = ", ".join(sorted({str(list(part.shape)) for part in parts}))
        raise ExecutionError(f"iterations gave scanned values of different shapes: {shapes}")
    return np.stack(parts, axis)


def _nothing(ty: Type, axis: int) -> Array:
    """The stack of no values of type `ty`; a size that no iteration has told is 0."""
    assert isinstance(ty, TensorType)  # the rules admit nothing else
    shape = [dim if isinstance(dim, int) else 0 for dim in ty.shape or ()]
    shape.insert(axis % (len(shape) + 1), 0)
    return np.zeros(shape, ty.dtype.numpy)


def _loop_flops(inputs: Sequence[Type | None], _outputs: Sequence[Type], attrs: Attrs) -> Dim:
    boundary, _ = _loop_boundary(_tensors(inputs[2:]), attrs["body"], attrs["carried"])
    return body_flops(attrs["body"], boundary)


# ---- scan


@dataclass(frozen=True)
class _ScanSplit:
    """A scan's operands (or their types) by role, and for each scanned one its axis and whether it runs backwards."""

    states: tuple[Any, ...]
    sequences: tuple[Any, ...]
    captured: tuple[Any, ...]
    axes: tuple[int, ...]
    reverse: tuple[bool, ...]

    @classmethod
    def of(
        cls, values: Sequence[Any], states: int, scan_inputs: int, axes: Sequence[int], reverse: Sequence[int]
    ) -> "_ScanSplit":
        sequences = tuple(values[states : states + scan_inputs])
        ranks = [len(value.shape) for value in sequences]
        normal = tuple(normal_axis(axis, rank) for axis, rank in zip(_each(axes, scan_inputs), ranks, strict=True))
        backwards = tuple(bool(flag) for flag in _each(reverse, scan_inputs))
        return cls(tuple(values[:states]), sequences, tuple(values[states + scan_inputs :]), normal, backwards)


def _each(given: Sequence[int], count: int) -> tuple[int, ...]:
    return tuple(given) or (0,) * count


def scan_type(
    *values: TensorType,
    body: Graph,
    states: int,
    scan_inputs: int,
    input_axes: tuple[int, ...],
    output_axes: tuple[int, ...],
    input_reverse: tuple[int, ...],
    output_reverse: tuple[int, ...],
) -> tuple[TensorType, ...]:
    """States keep the sizes that no iteration changes; a scanned result has the sequence length at its output axis."""
    scanned = len(body.outputs) - states
    if states < 0 or scan_inputs < 1 or states + scan_inputs > len(values):
        raise TypeRuleError(f"scan cannot split {len(values)} operands into {states} states and {scan_inputs} inputs")
    if scanned < 0:
        raise TypeRuleError(f"a scan body with {states} states gives at least as many results")
    for name, given, count in (
        ("input_axes", input_axes, scan_inputs),
        ("input_reverse", input_reverse, scan_inputs),
        ("output_axes", output_axes, scanned),
        ("output_reverse", output_reverse, scanned),
    ):
        if given and len(given) != count:
            raise TypeRuleError(f"scan: {name} has {len(given)} entries instead of {count}")
    boundary, state_types, length = _scan_boundary(_ScanSplit.of(values, states, scan_inputs, input_axes, ()), body)
    results = tensor_types(body.outputs[states:], "result of the scan body")
    stacked = [
        _with_axis(boundary.type(ty), axis, length)
        for ty, axis in zip(results, _each(output_axes, scanned), strict=True)
    ]
    return (*(boundary.type(ty) for ty in state_types), *stacked)


def _scan_boundary(split: _ScanSplit, body: Graph) -> tuple[Boundary, tuple[TensorType, ...], Dim]:
    """The boundary of a scan's body, the declared types of its states, and the number of iterations."""
    count, declared = len(split.states), tensor_types(body.inputs, "input of the scan body")
    _require_count("scan body", "inputs", len(declared), count + len(split.sequences) + len(split.captured))
    lengths = [ty.dims[axis] for ty, axis in zip(split.sequences, split.axes, strict=True)]
    length = lengths[0]
    for other in lengths[1:]:
        length = require_equal(length, other, "the inputs that scan runs over must have one length")
    slices = [
        ty.with_shape((*ty.dims[:axis], *ty.dims[axis + 1 :]))
        for ty, axis in zip(split.sequences, split.axes, strict=True)
    ]
    results = tensor_types(body.outputs[:count], "result of the scan body")
    names = _names("the scan body", body, 0)
    handed = Carried(declared[:count], split.states, results, names[:count])
    outer = outer_symbols((*split.states, *split.sequences, *split.captured))
    alike = (*slices, *split.captured)
    return _repeated(body, handed, declared[count:], alike, names[count:], outer), handed.declared, length


def _with_axis(ty: TensorType, axis: int, length: Dim) -> TensorType:
    at = normal_axis(axis, ty.rank + 1)
    return ty.with_shape((*ty.dims[:at], length, *ty.dims[at:]))


def run_scan(
    *values: Array,
    body: Region,
    states: int,
    scan_inputs: int,
    input_axes: tuple[int, ...],
    output_axes: tuple[int, ...],
    input_reverse: tuple[int, ...],
    output_reverse: tuple[int, ...],
) -> tuple[Array, ...]:
    """Runs `body` on (states, one slice of each scanned input, captured values) for each position of the inputs' axes.

    Operands are the `states`, the `scan_inputs`, then captured values. The body gives (states, one slice of each
    scanned result). Results are the last states, and the slices stacked along `output_axes`. An input or result whose
    reverse flag is 1 runs backwards. Empty axes and flags are all 0.
    """
    split = _ScanSplit.of(values, states, scan_inputs, input_axes, input_reverse)
    state, captured = split.states, split.captured
    fronted = [np.moveaxis(x, axis, 0) for x, axis in zip(split.sequences, split.axes, strict=True)]
    ordered = [x[::-1] if backwards else x for x, backwards in zip(fronted, split.reverse, strict=True)]
    if len({len(x) for x in ordered}) > 1:
        raise ExecutionError(
            f"the inputs that scan runs over have other lengths: {', '.join(str(len(x)) for x in ordered)}"
        )
    gathered: list[tuple[Array, ...]] = []
    for position in range(len(ordered[0])):
        results = body(*state, *(x[position, ...] for x in ordered), *captured)
        state = results[:states]
        gathered.append(results[states:])
    if gathered:
        columns = list(zip(*gathered, strict=True))
        flags = _each(output_reverse, len(columns))
        parts = [column[::-1] if flag else column for column, flag in zip(columns, flags, strict=True)]
        axes = _each(output_axes, len(columns))
        return (*state, *(_stacked(part, axis) for part, axis in zip(parts, axes, strict=True)))
    samples = [np.zeros(x.shape[1:], x.dtype) for x in ordered]
    types = body.result_types(*state, *samples, *captured)[states:]
    return (*state, *(_nothing(ty, axis) for ty, axis in zip(types, _each(output_axes, len(types)), strict=True)))


def _scan_flops(inputs: Sequence[Type | None], _outputs: Sequence[Type], attrs: Attrs) -> Dim:
    split = _ScanSplit.of(_tensors(inputs), attrs["states"], attrs["scan_inputs"], attrs["input_axes"], ())
    boundary, _, length = _scan_boundary(split, attrs["body"])
    return product((length, body_flops(attrs["body"], boundary)))


# ---- fused


def fused_type(*inputs: TensorType, body: Graph) -> tuple[TensorType, ...]:
    """The types of the body's results, its symbols bound to the sizes of the inputs."""
    return _body_types(body, inputs, outer_symbols(inputs), "the fused body")


def run_fused(*inputs: Array, body: Region) -> tuple[Array, ...]:
    """A group of nodes that an executor may run as one kernel. The results of the body on the inputs."""
    return body(*inputs)


def _fused_flops(inputs: Sequence[Type | None], _outputs: Sequence[Type], attrs: Attrs) -> Dim:
    boundary = enter(attrs["body"], _tensors(inputs), outer_symbols(inputs), "the fused body")
    return body_flops(attrs["body"], boundary)


# ----


def _tensors(types: Sequence[Type | None]) -> tuple[TensorType, ...]:
    return tuple(ty for ty in types if isinstance(ty, TensorType))


def _names(what: str, body: Graph, start: int) -> tuple[str, ...]:
    return tuple(f"input %{value.name} of {what}" for value in body.inputs[start:])


def _require_count(what: str, of: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise TypeRuleError(f"the {what} has {found} {of}, but the operands call for {wanted}")


_HOST = Trait.CONTROL_FLOW | Trait.READS_HOST | Trait.DATA_DEPENDENT
_INTS = AttrKind.INTS

OPS: tuple[Op, ...] = (
    op(
        "if",
        "cond: B!, *captured: _A",
        B=BOOLS,
        _A=ANY,
        attrs=(Attribute("then_body", AttrKind.GRAPH), Attribute("else_body", AttrKind.GRAPH)),
        infer=if_type,
        meaning=run_if,
        traits=_HOST,
        flops=_if_flops,
    ),
    op(
        "loop",
        "trip: N!?, cond: B!?, *values: _A",
        N=I64,
        B=BOOLS,
        _A=ANY,
        attrs=(Attribute("body", AttrKind.GRAPH), Attribute("carried", AttrKind.INT)),
        infer=loop_type,
        meaning=run_loop,
        traits=_HOST | Trait.SEQUENTIAL,
        flops=_loop_flops,
    ),
    op(
        "scan",
        "*values: _A",
        _A=ANY,
        attrs=(
            Attribute("body", AttrKind.GRAPH),
            Attribute("states", AttrKind.INT),
            Attribute("scan_inputs", AttrKind.INT),
            Attribute("input_axes", _INTS, ()),
            Attribute("output_axes", _INTS, ()),
            Attribute("input_reverse", _INTS, ()),
            Attribute("output_reverse", _INTS, ()),
        ),
        infer=scan_type,
        meaning=run_scan,
        traits=Trait.CONTROL_FLOW | Trait.SEQUENTIAL,
        flops=_scan_flops,
    ),
    op(
        "fused",
        "*inputs: _A",
        _A=ANY,
        attrs=(Attribute("body", AttrKind.GRAPH),),
        infer=fused_type,
        meaning=run_fused,
        flops=_fused_flops,
    ),
)
