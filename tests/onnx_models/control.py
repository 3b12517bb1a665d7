"""Nodes with bodies: branches, loops, scans; and functions of the model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, ValueInfoProto, helper

from tests.onnx_models.draw import Draw, Unrunnable, Value, tensor_proto
from tests.onnx_models.registry import ALONE, RECIPES, recipe

_SIMPLE = ("Add", "Mul", "Sub", "Relu", "Abs", "Identity", "Max", "Where", "Neg")


def draw_node(d: Draw, tries: int = 12, *, deep: bool = True) -> str:
    """A node of some operator of this opset that runs. Raises `Unrunnable` after so many tries."""
    names = [name for name in RECIPES if d.has(name) and name not in ALONE and (deep or name not in _NESTED)]
    for _ in range(tries):
        op = d.pick(*names)
        if attempt(d, op):
            return op
    raise Unrunnable("nothing that was drawn runs")


def attempt(d: Draw, op: str) -> bool:
    """Whether a node of that operator was made; nothing of it stays if not."""
    marks = []
    scope: Draw | None = d
    while scope is not None:
        marks.append((scope, len(scope.nodes), len(scope.sources), dict(scope.values)))
        scope = scope.outer
    functions = len(d.shared.functions)
    try:
        RECIPES[op](d, op)
    except (Unrunnable, IndexError, OverflowError, ValueError):
        for each, nodes, sources, values in marks:
            del each.nodes[nodes:], each.sources[sources:]
            each.values = values
        del d.shared.functions[functions:]
        return False
    return True


def body_of(d: Draw, inputs: Sequence[Value], count: int, wanted: int, results: Sequence[Value] = ()) -> GraphProto:
    """A body with these inputs; its outputs are `results`, made by its maker, and so many others."""
    inner = Draw(d.shared, d)
    inner.values |= {value.name: value for value in inputs}
    for _ in range(count):
        draw_node(inner, deep=False)
    made = [
        v for v in inner.values.values() if v.kind == "tensor" and any(v.name in node.output for node in inner.nodes)
    ]
    if not made:
        raise Unrunnable("an empty body")
    return closed(inner, inputs, [made[-1] if i == 0 else d.pick(*made) for i in range(wanted)])


def closed(inner: Draw, inputs: Sequence[Value], results: Sequence[Value]) -> GraphProto:
    """The body as a graph; a value that comes from outside or twice goes through an Identity."""
    own = {name for node in inner.nodes for name in node.output}
    outputs: list[Value] = []
    for value in results:
        is_new = value.name in own and all(value.name != other.name for other in outputs)
        outputs.append(value if is_new else inner.node("Identity", [value])[0])
    initializers = [tensor_proto(s.value.content, s.value.name, s.value.element) for s in inner.sources]
    return helper.make_graph(
        inner.nodes,
        inner.shared.name(),
        [ValueInfoProto(name=value.name, type=value.type_proto([None] * value.rank)) for value in inputs],
        [ValueInfoProto(name=value.name, type=value.type_proto()) for value in outputs],
        initializers,
    )


def _like(inner: Draw, value: Value) -> Value:
    """A value of the type and shape of another: through some nodes where they keep it."""
    for _ in range(4):
        if attempt(inner, inner.pick(*(op for op in _SIMPLE if inner.has(op)))):
            last = inner.values[inner.nodes[-1].output[0]]
            if last.kind == "tensor" and last.element == value.element and last.shape == value.shape:
                return last
    for op in ("Add", "Mul", "Identity"):
        operands = [value] if op == "Identity" else [value, inner.like(value.element, value.shape)]
        try:
            return inner.node(op, operands)[0]
        except Unrunnable:
            continue
    raise Unrunnable("no value of that type")


@recipe("If")
def branches(d: Draw, op: str) -> None:
    """Branches that read what is around them; of one shape or of others."""
    condition = d.given(d.array("bool", () if d.opset < 16 or d.chance(0.8) else (1,)), "bool")
    count = d.whole(1, 2)
    then = Draw(d.shared, d)
    first = []
    for _ in range(count):
        draw_node(then, deep=False)
        tensors = [v for v in then.values.values() if v.kind == "tensor"]
        if not tensors:
            raise Unrunnable("a branch without a tensor")
        first.append(tensors[-1])
    other = Draw(d.shared, d)
    second = [
        _like(other, other.like(v.element, v.shape if d.chance(0.75) else tuple(d.size() for _ in v.shape)))
        for v in first
    ]
    bodies = [closed(then, [], first), closed(other, [], second)]
    if d.chance(0.5):
        bodies.reverse()
    d.node(op, [condition], {"then_branch": bodies[0], "else_branch": bodies[1]}, (True,) * count)


@recipe("Loop")
def loop(d: Draw, op: str) -> None:
    """A count, a condition or both; carried values, and one output for each round."""
    trips = d.ints(d.whole(0 if d.chance(0.3) else 1, 3) if d.chance(0.8) else [d.whole(1, 3)])
    start = d.given(np.array(d.chance(0.9)), "bool") if d.chance(0.5) else None
    carried = [d.some("Add", "T", 0, 3) for _ in range(d.whole(0 if d.opset >= 13 else 1, 2))]
    inner = Draw(d.shared, d)
    step = Value(d.shared.name(), np.array(0, np.int64), "tensor", "int64")
    going = Value(d.shared.name(), np.array(True), "tensor", "bool")
    inside = [Value(d.shared.name(), v.content, "tensor", v.element) for v in carried]
    inputs = [step, going, *inside]
    inner.values |= {value.name: value for value in inputs}
    if d.chance(0.6):
        draw_node(inner, deep=False)
    results = [_like(inner, value) for value in inside]
    scans = []
    if not carried or d.chance(0.5):
        tensors = [v for v in inner.values.values() if v.kind == "tensor"]
        scans = [d.pick(*tensors)]
    if start is not None and d.chance(0.4):  # without a condition what the body says of it counts for nothing
        again = inner.node("Less", [step, inner.ints(d.whole(0, 2), role="fixed")])[0] if d.opset >= 9 else going
    else:
        again = going
    body = closed(inner, inputs, [again, *results, *scans])
    d.node(op, [trips, start, *carried], {"body": body}, (True,) * (len(carried) + len(scans)))


@recipe("Scan")
def scan(d: Draw, op: str) -> None:
    """States and slices, axes and directions."""
    if d.opset < 9:
        raise Unrunnable("the batched form")
    length = d.whole(1, 3)
    count = d.whole(1, 2)
    axes, scanned, slices = [], [], []
    for _ in range(count):
        shape = list(d.shape(0, 2))
        axis = d.whole(0, len(shape))
        shape.insert(axis, length)
        value = d.like(d.element("Add", "T"), shape)
        axes.append(axis)
        scanned.append(value)
        slices.append(Value(d.shared.name(), np.take(value.content, 0, axis), "tensor", value.element))
    states = [d.some("Add", "T", 0, 2) for _ in range(d.whole(0, 2))]
    inside = [Value(d.shared.name(), v.content, "tensor", v.element) for v in states]
    inner = Draw(d.shared, d)
    inputs = [*inside, *slices]
    inner.values |= {value.name: value for value in inputs}
    if d.chance(0.5):
        draw_node(inner, deep=False)
    results = [_like(inner, value) for value in inside]
    tensors = [v for v in inner.values.values() if v.kind == "tensor"]
    outputs = [d.pick(*tensors) for _ in range(d.whole(0 if states else 1, 2))]
    attributes: dict[str, Any] = {"num_scan_inputs": count}
    if any(axes) or d.chance(0.2):
        attributes["scan_input_axes"] = axes
    if d.chance(0.3):
        attributes["scan_input_directions"] = [d.whole(0, 1) for _ in range(count)]
    if outputs and d.chance(0.3):
        attributes["scan_output_directions"] = [d.whole(0, 1) for _ in outputs]
    if outputs and d.chance(0.3):
        attributes["scan_output_axes"] = [d.whole(0, v.rank) for v in outputs]
    attributes["body"] = closed(inner, inputs, [*results, *outputs])
    d.node(op, [*states, *scanned], attributes, (True,) * (len(states) + len(outputs)))


def call_function(d: Draw) -> bool:
    """Whether a node that calls a new function of the model was made."""
    known = [v for v in d.visible() if v.kind == "tensor"]
    if not known:
        return False
    operands = d.rng.sample(known, min(len(known), d.whole(1, 2)))
    inner = Draw(d.shared, None)
    inside = [Value(f"p{i}", v.content, "tensor", v.element) for i, v in enumerate(operands)]
    inner.values |= {value.name: value for value in inside}
    before = len(d.shared.functions)
    try:
        for _ in range(d.whole(1, 3)):
            draw_node(inner, deep=False)
        made = [v for v in inner.values.values() if v.kind == "tensor" and v not in inside]
        if inner.sources or not made:
            inner = _with_constants(inner)
        name = f"f{d.shared.name()}"
        imports = [helper.make_opsetid("", d.opset)]
        outputs = [made[-1].name]
        function = helper.make_function("local", name, [v.name for v in inside], outputs, inner.nodes, imports)
        d.shared.functions.append(function)
        d.node(name, operands, domain="local")
    except (Unrunnable, IndexError):
        del d.shared.functions[before:]
        return False
    return True


def _with_constants(inner: Draw) -> Draw:
    """Initializers, which a function has none of, as Constant nodes."""
    nodes = []
    for source in inner.sources:
        proto = tensor_proto(source.value.content, "", source.value.element)
        nodes.append(helper.make_node("Constant", [], [source.value.name], value=proto))
    inner.nodes[:0] = nodes
    inner.sources.clear()
    return inner


_NESTED = {"If", "Loop", "Scan", "SequenceMap"}
