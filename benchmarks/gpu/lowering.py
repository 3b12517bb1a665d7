"""From the steps of a plan to kernel launches as plain data: which kernel, which grid, which places in memory."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from capgraph.ir.errors import UnsupportedError
from capgraph.ir.graph import Node, Value
from capgraph.ir.plan import Plan, Step, StepKind, View

from . import kernels, matmuls
from .expressions import expression, is_elementwise
from .kernels import Kernel, Layout, layout_of


@dataclass(frozen=True, slots=True)
class Place:
    """`offset` bytes into buffer `buffer` of the plan."""

    buffer: int
    offset: int


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel of one step: its name and text, its grid, its threads in a block, and its arguments in order."""

    step: int
    op: str
    name: str
    text: str
    grid: tuple[int, int, int]
    threads: int
    places: tuple[Place, ...]


Lowered = Mapping[int, tuple[Launch, ...]]


def lower(plan: Plan) -> Lowered:
    """The launches of every step. Raises `UnsupportedError` naming the node for which there is no kernel here."""
    if plan.copies or plan.dynamic:
        raise UnsupportedError("states that are copied and values of unknown size have no kernels here")
    return {step.index: tuple(_lower_step(plan, step)) for step in plan.steps}


def source(launches: Sequence[Launch]) -> str:
    """The text of all kernels that are launched, each once."""
    return "\n\n".join({launch.name: launch.text for launch in launches}.values())


@dataclass(frozen=True, slots=True)
class _Call:
    """A kernel and the views that its arguments point to."""

    kernel: Kernel
    views: Sequence[View]


def _lower_step(plan: Plan, step: Step) -> list[Launch]:
    node = step.node
    if step.kind is StepKind.ALIAS or any(0 in view.shape for view in _views(plan, node.outputs)):
        return []
    if is_elementwise(node):
        calls = [_elementwise(plan, node)]
    elif kernels.is_reduction(node.op.name):
        calls = [_reduction(plan, node)]
    elif node.op.name in _LOWERED:
        calls = list(_LOWERED[node.op.name](plan, node))
    else:
        raise UnsupportedError(f"there is no kernel for {node.op.name} here", where=node.where())
    return [_launch(step, call) for call in calls]


def _launch(step: Step, call: _Call) -> Launch:
    name = f"{step.node.op.name}_{hashlib.sha256(call.kernel.text.encode()).hexdigest()[:12]}"
    places = tuple(Place(view.buffer, view.offset) for view in call.views)
    text = call.kernel.text.replace("NAME", name, 1)
    return Launch(step.index, step.node.op.name, name, text, call.kernel.grid, call.kernel.threads, places)


def _views(plan: Plan, values: Sequence[Value]) -> list[View]:
    return [plan.views[value] for value in values]


def _operands(plan: Plan, node: Node) -> list[View]:
    return _views(plan, node.operands)


def _layouts(views: Sequence[View]) -> list[Layout]:
    return [layout_of(view) for view in views]


# ---- by op


def _elementwise(plan: Plan, node: Node) -> _Call:
    views = [plan.views[node.output], *_operands(plan, node)]
    result, *operands = _layouts(views)
    return _Call(kernels.elementwise(expression(node), result, operands), views)


def _reduction(plan: Plan, node: Node) -> _Call:
    views = [plan.views[node.output], plan.views[node.operands[0]]]
    result, operand = _layouts(views)
    return _Call(kernels.reduction(node.op.name, result, operand, node.attrs["axes"]), views)


def _copy(plan: Plan, node: Node) -> list[_Call]:
    views = [plan.views[node.output], plan.views[node.operands[0]]]
    return [_Call(kernels.copy(*_layouts(views)), views)]


def _concat(plan: Plan, node: Node) -> list[_Call]:
    whole = plan.views[node.output]
    axis = node.attrs["axis"] % len(whole.shape)
    calls: list[_Call] = []
    offset = whole.offset
    for part in _operands(plan, node):
        into = View(whole.buffer, offset, whole.dtype, part.shape, whole.strides)
        offset += part.shape[axis] * whole.strides[axis]
        if 0 not in part.shape:
            calls.append(_Call(kernels.copy(*_layouts([into, part])), [into, part]))
    return calls


def _gather(plan: Plan, node: Node) -> list[_Call]:
    views = [plan.views[node.output], *_operands(plan, node)]
    result, table, indices = _layouts(views)
    return [_Call(kernels.gather(result, table, indices, node.attrs["axis"] % len(table.shape)), views)]


def _softmax(plan: Plan, node: Node) -> list[_Call]:
    views = [plan.views[node.output], *_operands(plan, node)]
    return [_Call(kernels.softmax(*_layouts(views), node.attrs["axis"]), views)]


def _layer_norm(plan: Plan, node: Node) -> list[_Call]:
    views = [plan.views[node.output], *_operands(plan, node)]
    result, x, *_ = _layouts(views)
    scale, bias = (layout_of(plan.views[value]) if value is not None else None for value in node.inputs[1:])
    made = kernels.layer_norm(result, x, scale, bias, node.attrs["axis"], node.attrs["epsilon"])
    return [_Call(made, views)]


def _matmul(plan: Plan, node: Node) -> list[_Call]:
    views = [plan.views[node.output], *_operands(plan, node)]
    result, left, right = _layouts(views)
    if min(len(left.shape), len(right.shape)) < 2:
        raise UnsupportedError("there is no kernel for matmuls with vectors here", where=node.where())
    if len(right.shape) == 2 and views[0].is_contiguous and views[1].is_contiguous:
        result, left = _as_rows(result), _as_rows(left)
    return [_Call(matmuls.matmul(result, left, right), views)]


def _as_rows(layout: Layout) -> Layout:
    """A contiguous layout as one matrix."""
    size = layout.shape[-1]
    return Layout(layout.dtype, (math.prod(layout.shape[:-1]), size), (size, 1))


def _gemm(plan: Plan, node: Node) -> list[_Call]:
    views = [plan.views[node.output], *_operands(plan, node)]
    result, left, right, *addend = _layouts(views)
    left = _transposed(left) if node.attrs["trans_a"] else left
    right = _transposed(right) if node.attrs["trans_b"] else right
    epilogue = matmuls.Epilogue(node.attrs["alpha"], node.attrs["beta"], addend[0] if addend else None)
    return [_Call(matmuls.matmul(result, left, right, epilogue), views)]


def _transposed(layout: Layout) -> Layout:
    return Layout(layout.dtype, layout.shape[::-1], layout.strides[::-1])


def _attention(plan: Plan, node: Node) -> list[_Call]:
    if node.attrs["softcap"] or (len(node.inputs) > 4 and node.inputs[4] is not None):
        raise UnsupportedError("there is no kernel for this form of attention here", where=node.where())
    views = [plan.views[node.output], *_operands(plan, node)]
    result, q, k, v, *mask = _layouts(views)
    heads = node.attrs["heads"] or q.shape[1]
    kv_heads = node.attrs["kv_heads"] or k.shape[1]
    depth = matmuls.by_head(q, heads).shape[3]
    scale = node.attrs["scale"]
    factor = 1 / math.sqrt(depth) if scale is None else scale
    form = matmuls.AttentionForm(heads, kv_heads, factor, node.attrs["causal"])
    return [_Call(matmuls.attention(result, [q, k, v], mask[0] if mask else None, form), views)]


_LOWERED: Mapping[str, Callable[[Plan, Node], list[_Call]]] = {
    "reshape": _copy,
    "squeeze": _copy,
    "unsqueeze": _copy,
    "concat": _concat,
    "gather": _gather,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "matmul": _matmul,
    "gemm": _gemm,
    "attention": _attention,
}
