"""Operands and bodies of control flow. A body is drawn like a graph; what it captures becomes operands of its node."""

from collections.abc import Sequence

from capgraph.ir.graph import Value
from capgraph.ir.op import Op
from capgraph.ir.types import DType, TensorType

from tests.strategies.draw import BodyDraw, GraphDraw, Sample, Sampler, sample
from tests.strategies.sizes import is_sized

SCALAR_I64, SCALAR_BOOL = TensorType(DType.I64, ()), TensorType(DType.BOOL, ())


def _body(d: GraphDraw, name: str, parameters: Sequence[TensorType]) -> BodyDraw:
    body = BodyDraw(d, name)
    for ty in parameters:
        body.parameter(ty)
    return body


def _fill(body: BodyDraw) -> None:
    for _ in range(body.choose.integer(1, 3)):
        body.grow()


def _any_results(body: BodyDraw, count: int) -> list[Value]:
    """Values of the body whose sizes are known outside."""
    known = [value for value in body.values if is_sized(value.shape)]
    return [body.choose.pick(known) if known else body.shaped(DType.F32, ()) for _ in range(count)]


def _like(body: BodyDraw, ty: TensorType) -> Value:
    """A value of exactly this type, made by the body where it can be."""
    found = [value for value in body.values if value.type == ty]
    made = [value for value in found if value.producer is not None]
    if found and body.choose.chance(80):
        return body.choose.pick(made or found)
    return body.shaped(ty.dtype, ty.dims)


def if_(d: GraphDraw, op: Op) -> Sample:
    """Results of equal dtype and rank, sometimes of different sizes."""
    dtypes = d.dtypes(op)
    then_body, else_body = _body(d, "then", ()), _body(d, "else", ())
    then_body.input(TensorType(dtypes["captured"], d.shape(d.choose.integer(0, 2))))
    _fill(then_body)
    results = _any_results(then_body, d.choose.integer(1, 2))
    for value in then_body.captured:
        else_body.capture(value)
    _fill(else_body)
    others = [_like(else_body, _perhaps_resized(d, value.tensor)) for value in results]
    for value in else_body.captured[len(then_body.captured) :]:
        then_body.capture(value)
    then_body.graph.set_outputs(results)
    else_body.graph.set_outputs(others)
    cond = d.shaped(DType.BOOL, ())
    return sample(cond, *then_body.captured, then_body=then_body.graph, else_body=else_body.graph)


def _perhaps_resized(d: GraphDraw, ty: TensorType) -> TensorType:
    if not ty.dims or not d.choose.chance(20):
        return ty
    return ty.with_shape((d.choose.integer(0, 3), *ty.dims[1:]))


def loop(d: GraphDraw, op: Op) -> Sample:
    """A few iterations: a trip count, a condition that ends it, or both."""
    carried = _states(d, d.dtypes(op)["values"])
    body = _body(d, "body", (SCALAR_I64, SCALAR_BOOL, *(value.tensor for value in carried)))
    iteration, _, *state = body.graph.inputs
    _fill(body)
    has_trip = d.choose.chance(70)
    if has_trip:
        condition = _like(body, SCALAR_BOOL)
    else:
        condition = body.emit("less", iteration, body.scalar(DType.I64, d.choose.integer(0, 2)))
    updated = [_like(body, value.tensor) for value in state]
    body.graph.set_outputs([condition, *updated, *_any_results(body, d.choose.integer(0, 2))])
    trip = d.steering(DType.I64, (), 0, 4) if has_trip else None
    cond = d.shaped(DType.BOOL, ()) if not has_trip or d.choose.chance(40) else None
    return sample(trip, cond, *carried, *body.captured, body=body.graph, carried=len(carried))


def _states(d: GraphDraw, dtype: DType) -> list[Value]:
    """Values that a body hands on from one iteration to the next."""
    dtypes = [dtype if d.choose.chance(60) else DType.F32 for _ in range(d.choose.integer(0, 2))]
    return [d.value(dtype, (1, 0, 2), is_sized) for dtype in dtypes]


def scan(d: GraphDraw, op: Op) -> Sample:
    """Some states, one or two inputs of equal length to run over, and scanned results along any axis."""
    dtype = d.dtypes(op)["values"]
    states = _states(d, dtype)
    length = d.known_dim()
    count = d.choose.integer(1, 2)
    axes = d.ints(count, 0, 1)
    slices = [d.shape(d.choose.integer(axis, 2)) for axis in axes]
    sequences = [d.shaped(dtype, (*s[:axis], length, *s[axis:])) for s, axis in zip(slices, axes, strict=True)]
    parameters = [value.tensor for value in states] + [TensorType(dtype, shape) for shape in slices]
    body = _body(d, "body", parameters)
    _fill(body)
    updated = [_like(body, value.tensor) for value in states]
    scanned = _any_results(body, d.choose.integer(0, 2))
    body.graph.set_outputs([*updated, *scanned])
    return sample(
        *states,
        *sequences,
        *body.captured,
        body=body.graph,
        states=len(states),
        scan_inputs=count,
        input_axes=axes if any(axes) or d.choose.chance(50) else (),
        output_axes=tuple(d.choose.integer(-len(v.shape) - 1, len(v.shape)) for v in scanned),
        input_reverse=d.choose.pick(((), d.ints(count, 0, 1))),
        output_reverse=d.choose.pick(((), d.ints(len(scanned), 0, 1))),
    )


def fused(d: GraphDraw, op: Op) -> Sample:
    body = _body(d, "kernel", ())
    captured = d.value(d.dtypes(op)["inputs"], fits=is_sized)
    body.capture(captured)
    _fill(body)
    body.graph.set_outputs(_any_results(body, d.choose.integer(1, 2)))
    return sample(*body.captured, body=body.graph)


SAMPLERS: dict[str, Sampler] = {"if": if_, "loop": loop, "scan": scan, "fused": fused}
