"""Whether a difference is what rounding on the way does: each node is run again with its results a little off."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

from tests.onnx_models.cases import Case
from tests.onnx_models.draw import ELEMENTS, FLOATS, Unrunnable, Value, names_read, run_node, value_of
from tests.onnx_models.operands import MOVES, RECURRENT, Known
from tests.onnx_models.parts import taken
from tests.onnx_models.reference_errors import reference_is_wrong
from tests.onnx_models.runtime_errors import runtime_is_wrong

STEPS = {"double": 4e-16, "float": 2.4e-7, "float16": 2e-3, "bfloat16": 1.6e-2}
TRIES = 12
MOST_TRIES = 48
"""Where a few do not explain it: of numbers that are equal but for roundings, any may be the greatest."""
SAFETY = 30.0
ABSOLUTE = {
    "Sigmoid": 2e-8,
    "Softplus": 1e-7,
    "Erf": 1e-7,
    "Gelu": 1e-6,
    "Mish": 1e-7,
}
"""What these are off by where they come close to 0 or to 1: ONNX Runtime's Sigmoid is 0 from -18 on."""
_GATE = 1e-6
_STATES = (5, 6)
"""In ONNX Runtime's recurrences tanh is up to 1 + 5e-7, and a gate that is to be closed lets as much of a state in."""
OPERANDS = {
    "BatchNormalization": (0, 0.0),
    "GridSample": (1, 2e-7),
    "GroupNormalization": (0, 0.0),
    "MeanVarianceNormalization": (0, 0.0),
    "Resize": (1, 2e-7),
}
"""Operands that are a little off, too, by a part and by a number. Peers take the square of a mean off a mean of squares
or fold a mean into the bias; a region places elements, which a rounding moves to a neighbor or out of it; the
reference has the places of a grid in f32, those of doubles too."""
WINDOWS = {"BlackmanWindow", "HannWindow"}
"""Whose ends are 0 but for the rounding of their terms, by which two ends may be one number or two."""
TRANSFORMS = {"DFT", "STFT"}
"""Sums of which a part cancels whole: what is 0 by symmetry is a rounding of the largest."""
_TURNS = 8
"""Steps by which the angles of a transform are off, too."""
SIZES = {"Range": 0, "Resize": 2, "Upsample": 1}
"""From which operand on floats say sizes: what is given is no rounding, and a little less is a size less."""
_POLE = 1e5
"""Noise that turns a number as large into one of the other sign has gone through infinity: it stood beside a pole."""
_NEARLY_WHOLE = 1e-5
_INWARD = 1e-6
_SUBNORMAL = 2.0
"""Steps by which numbers below the normal ones are off; the least of them are 0 in many a kernel."""
_OF_ATTRIBUTES = 6e-8
"""ONNX keeps float attributes in 32 bits, whose shortest decimal is taken for what was meant: doubles tell."""
_PRODUCTS = ("Gemm", "MatMul")
_CODES = ("int2", "int8", "uint2", "uint8")
_OF_BYTES = 2.5e-4
"""Of the greatest number of a row, which bytes are off by 4e-3 of: within what `SAFETY` allows."""


Prefers: TypeAlias = Callable[[onnx.ModelProto, Known], bool]


def contents(
    model: onnx.ModelProto,
    call: Mapping[str, Any],
    noise: np.random.Generator | None = None,
    prefers: Prefers | None = None,
    of_bytes: Mapping[str, float] | None = None,
) -> dict[str, Value]:
    """Every value of the model for a call, by running node after node, in branches too; with noise, floats are off.

    `prefers` says of a node whether the reference runs it rather than ONNX Runtime (default: `prefers_reference`).
    `of_bytes` has the products whose rows are off by what bytes are (see `products_of_bytes`).
    """
    known = _given(model, call, noise)
    _run(model, model.graph.node, known, noise, prefers or prefers_reference, of_bytes or {})
    return known


def products_of_bytes(model: onnx.ModelProto, known: Mapping[str, Value]) -> dict[str, float]:
    """The products by constants that are dequantized, each with the greatest number that a code may stand for.

    ONNX Runtime's optimizer takes them for MatMulNBits, which rounds the rows of the other operand to bytes: left to it
    where floats are slow (docs/onnxruntime.md).
    """
    fixed = {each.name for each in model.graph.initializer} - {each.name for each in model.graph.input}
    weights, found = dict[str, float](), dict[str, float]()
    for node in model.graph.node:
        if fixed.issuperset(name for name in node.input if name):
            fixed.update(node.output)
        first, second = (*node.input, "", "")[:2]
        if node.op_type == "DequantizeLinear" and node.output[0] in fixed and known[first].element in _CODES:
            weights[node.output[0]] = float(255 * np.abs(known[second].content.astype(np.float64)).max(initial=0.0))
        elif node.op_type in MOVES and first in weights:
            weights[node.output[0]] = weights[first]
        elif node.op_type in _PRODUCTS and second in weights:
            found[node.output[0]] = weights[second]
    return found


def _given(model: onnx.ModelProto, call: Mapping[str, Any], noise: np.random.Generator | None) -> dict[str, Value]:
    given = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    given |= {each.name: call[each.name] for each in model.graph.input}
    exact = _sizes(model.graph.node)
    return {name: value_of(name, x if name in exact else _noisy(x, noise)) for name, x in given.items()}


def _sizes(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    return {name for node in nodes for name in node.input[_first_size(node) :]}


def _first_size(node: onnx.NodeProto) -> int:
    """From which operand on the node reads sizes; a Resize of two operands, before opset 11, has no region."""
    place = SIZES.get(node.op_type, len(node.input))
    return 1 if node.op_type == "Resize" and len(node.input) == place else place


def _run(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    known: dict[str, Value],
    noise: np.random.Generator | None,
    prefers: Prefers,
    of_bytes: Mapping[str, float],
) -> None:
    """Adds to what is known what these nodes give."""

    def model_of(graph: onnx.GraphProto) -> onnx.ModelProto:
        made = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
        made.functions.extend(model.functions)
        return made

    sizes = _sizes(nodes)
    for node in nodes:
        if node.op_type in ("Optional", "SequenceEmpty"):
            known[node.output[0]] = _container(node, known)
            continue
        if node.op_type == "If":
            branch = taken(node, known[node.input[0]].content)
            known |= {each.name: value_of(each.name, onnx.numpy_helper.to_array(each)) for each in branch.initializer}
            _run(model, branch.node, known, noise, prefers, of_bytes)
            results = zip(node.output, branch.output, strict=True)
            known |= {name: replace(known[output.name], name=name) for name, output in results if name}
            continue
        feeds = {name: known[name] for name in names_read(node)}
        if noise is not None:
            _disturb_operand(node, feeds, noise)
            if node.output[0] in of_bytes:
                rows = feeds[node.input[0]]
                feeds[rows.name] = _with(rows, _as_bytes(rows.content, of_bytes[node.output[0]], noise))
        given = run_node(_noisy_attributes(node, model, noise), feeds, model_of, prefers)
        least = _least(node, feeds, given[0]) if noise is not None else 0.0
        for value in given:
            is_exact = node.op_type == "Constant" and value.name in sizes
            found = value.content if is_exact else _noisy(value.content, noise, least)
            if node.op_type in WINDOWS and noise is not None and noise.integers(2):
                found = np.where(np.abs(found) <= 2 * least, 0, found).astype(found.dtype)
            known[value.name] = _with(value, _stepped(found, noise) if _interpolates(node) else found)


def _disturb_operand(node: onnx.NodeProto, feeds: dict[str, Value], noise: np.random.Generator) -> None:
    place, least = OPERANDS.get(node.op_type, (len(node.input), 0.0))
    name = node.input[place] if place < min(len(node.input), _first_size(node)) else ""
    if name:
        feeds[name] = _with(feeds[name], _noisy(feeds[name].content, noise, least))
        if node.op_type == "Resize" and _has(node, b"tf_crop_and_resize") and noise.integers(2):
            feeds[name] = _with(feeds[name], _shrunk(feeds[name].content))
    if node.op_type == "Upsample" and len(node.input) > 1:  # neither peer takes whole scales that are a little off
        scales = feeds[node.input[1]]
        whole = np.rint(scales.content)
        is_whole = np.abs(scales.content - whole) < _NEARLY_WHOLE
        feeds[scales.name] = _with(scales, np.where(is_whole, whole, scales.content))


def _as_bytes(rows: Any, reach: float, noise: np.random.Generator) -> Any:
    """Rows that are off by what bytes are; no numbers where what codes stand for may be more than floats hold."""
    wide = np.abs(rows.astype(np.float64))
    off = _OF_BYTES * wide.max(-1, keepdims=True, initial=0.0) * noise.uniform(-1, 1, rows.shape)
    is_held = wide.sum(-1, keepdims=True) * reach < float(ml_dtypes.finfo(rows.dtype).max)
    return np.where(is_held, rows + off, np.nan).astype(rows.dtype)


def _has(node: onnx.NodeProto, mode: bytes) -> bool:
    return any(attribute.s == mode for attribute in node.attribute)


def _shrunk(region: Any) -> Any:
    """A region that begins a little later and ends a little earlier along every axis: noise seldom does all of it."""
    begins, ends = np.split(region.astype(np.float64), 2)
    inward = _INWARD * np.sign(ends - begins)
    return np.concatenate([begins + inward, ends - inward]).astype(region.dtype)


def _least(node: onnx.NodeProto, feeds: Mapping[str, Value], result: Value) -> Any:
    """What the results of a node are off by where they are 0: a number, or an array that goes with the first one."""
    if node.op_type in RECURRENT:
        states = [feeds[name].content for name in (node.input[i] for i in _STATES if i < len(node.input)) if name]
        return _GATE * max([1.0, *(np.abs(state[np.isfinite(state)]).max(initial=0.0) for state in states)])
    if node.op_type == "LRN":
        return STEPS.get(result.element, 0.0) * _running_squares(node, feeds[node.input[0]].content, result.content)
    if node.op_type in WINDOWS:
        return STEPS.get(result.element, 0.0)
    if node.op_type in TRANSFORMS and isinstance(result.content, np.ndarray):
        finite = result.content[np.isfinite(result.content)].astype(np.float64)
        return _TURNS * STEPS.get(result.element, 0.0) * np.abs(finite).max(initial=0.0)
    if node.op_type == "Resize" and result.element == "double" and _has(node, b"cubic"):
        return STEPS["float"] * np.abs(feeds[node.input[0]].content).max(initial=0.0)
    if node.op_type == "InstanceNormalization":
        return STEPS.get(result.element, 0.0) * _folded_mean(node, *(feeds[name].content for name in node.input[:2]))
    return ABSOLUTE.get(node.op_type, 0.0)


def _running_squares(node: onnx.NodeProto, x: Any, y: Any) -> Any:
    """What a sum that ONNX Runtime keeps from channel to channel is off by: a part of the largest square."""
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    alpha, beta, bias = given.get("alpha", 1e-4) / given["size"], given.get("beta", 0.75), given.get("bias", 1.0)
    squares = x.astype(np.float64) ** 2
    base = np.maximum(np.abs(bias + alpha * squares), np.finfo(np.float32).tiny)
    return np.abs(y.astype(np.float64) * beta * alpha * squares.max(1, keepdims=True, initial=0.0) / base)


def _folded_mean(node: onnx.NodeProto, x: Any, scale: Any) -> Any:
    """The mean times what it is scaled by, which ONNX Runtime takes off the bias."""
    epsilon = next((attribute.f for attribute in node.attribute if attribute.name == "epsilon"), 1e-5)
    axes, wide = tuple(range(2, x.ndim)), x.astype(np.float64)
    mean, var = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    return np.abs(mean * scale.astype(np.float64).reshape(1, -1, *(1 for _ in axes)) / np.sqrt(var + epsilon))


def _with(value: Value, content: Any) -> Value:
    return Value(value.name, content, value.kind, value.element)


def _noisy_attributes(
    node: onnx.NodeProto, model: onnx.ModelProto, noise: np.random.Generator | None
) -> onnx.NodeProto:
    """The node with its floats a little off, those that it leaves to the standard too."""
    if noise is None or node.domain:
        return node
    found = onnx.NodeProto()
    found.CopyFrom(node)
    given = {attribute.name for attribute in node.attribute}
    known = onnx.defs.get_schema(node.op_type, model.opset_import[0].version).attributes
    left = [each.default_value for name, each in known.items() if name not in given]
    found.attribute.extend(each for each in left if each.type == onnx.AttributeProto.FLOAT)
    for attribute in found.attribute:
        if attribute.type == onnx.AttributeProto.FLOAT:
            attribute.f *= 1 + _OF_ATTRIBUTES * noise.uniform(-1, 1)
    return found


def _container(node: onnx.NodeProto, known: Mapping[str, Value]) -> Value:
    """The result of a node that has no content of its own."""
    name = node.output[0]
    if node.op_type == "Optional":
        inner = known[node.input[0]]
        return Value(name, inner.content, "optional", inner.element, inner.kind)
    number = next((a.i for a in node.attribute if a.name == "dtype"), onnx.TensorProto.FLOAT)
    return Value(name, [], "sequence", onnx.TensorProto.DataType.Name(number).lower())


def _noisy(content: Any, noise: np.random.Generator | None, least: Any = 0.0) -> Any:
    if noise is None or not isinstance(content, np.ndarray):
        return content
    element = next((name for name in FLOATS if np.dtype(ELEMENTS[name]) == content.dtype), None)
    if element is None:
        return content
    step, numbers = noise.uniform(-1, 1, content.shape), content.astype(np.float64)
    limits = ml_dtypes.finfo(content.dtype)
    is_subnormal = (numbers != 0) & (np.abs(numbers) < float(limits.tiny))
    least = least + np.where(is_subnormal, _SUBNORMAL * float(limits.smallest_subnormal), 0.0)
    return np.asarray(numbers * (1 + STEPS[element] * step) + least * step).astype(content.dtype)


def _interpolates(node: onnx.NodeProto) -> bool:
    return node.op_type in ("Resize", "Upsample") and any(_has(node, mode) for mode in (b"linear", b"cubic"))


def _stepped(content: Any, noise: np.random.Generator | None) -> Any:
    """Integers that are cut off from between two others, each of which a rounding may make the next."""
    if noise is None or content.dtype.kind not in "iu":
        return content
    span = np.iinfo(content.dtype)
    steps = np.where((content > span.min) & (content < span.max), noise.integers(-1, 2, content.shape), 0)
    return (content + steps).astype(content.dtype)


def is_rounding(
    case: Case, call: Mapping[str, Any], expected: Sequence[Any], given: Sequence[Any], way: str = ""
) -> bool:
    """Whether `given`, which came by that way, lies within what noise does to `expected`."""
    names = [output.name for output in case.model.graph.output]
    expected, given = _arrays(expected), _arrays(given)
    if any(not isinstance(each, np.ndarray) for each in (*expected, *given)) or len(expected) != len(given):
        return False
    if any(a.dtype != b.dtype or a.dtype.kind in "OUS" for a, b in zip(expected, given, strict=True)):
        return False
    ranges = [(a.astype(np.float64), a.astype(np.float64)) for a in expected]
    numbers, of_bytes = np.random.default_rng(case.seed), dict[str, float]()
    with np.errstate(all="ignore"), suppress(Unrunnable, KeyError):
        for tries in range(MOST_TRIES + 1):
            # First as the reference rounds, in which alone rows may be equal.
            noise, prefers = (numbers, None) if tries else (None, _may_judge)
            known = contents(case.model, call, noise, prefers, of_bytes)
            if not tries and way == "ort":
                of_bytes = products_of_bytes(case.model, known)
            found = [np.asarray(a).astype(np.float64) for a in _arrays([known[name].content for name in names])]
            if [a.shape for a in found] != [low.shape for low, _ in ranges]:
                return True  # even the shape hangs on a rounding
            if not tries:
                continue
            ranges = [(np.minimum(low, a), np.maximum(high, a)) for a, (low, high) in zip(found, ranges, strict=True)]
            if tries % TRIES == 0 and all(
                a.shape == b.shape and _within(np.asarray(b).astype(np.float64), a.astype(np.float64), low, high)
                for a, b, (low, high) in zip(expected, given, ranges, strict=True)
            ):
                return True
    return False


def jumps(case: Case, call: Mapping[str, Any]) -> bool:
    """Whether noise changes a shape, or an integer or truth value behind which a node no longer runs."""
    numbers = np.random.default_rng(case.seed)
    exact = _known(case.model, call, None)
    with np.errstate(all="ignore"):
        return any(_is_apart(exact, _known(case.model, call, numbers)) for _ in range(TRIES))


def _known(model: onnx.ModelProto, call: Mapping[str, Any], noise: np.random.Generator | None) -> dict[str, Value]:
    """What is known before a node does not run."""
    known = _given(model, call, noise)
    with suppress(Unrunnable, KeyError):
        _run(model, model.graph.node, known, noise, prefers_reference, {})
    return known


def _is_apart(exact: Mapping[str, Value], noisy: Mapping[str, Value]) -> bool:
    pairs = [(_arrays([exact[name].content]), _arrays([noisy[name].content])) for name in exact.keys() & noisy.keys()]
    if any([np.shape(each) for each in olds] != [np.shape(each) for each in news] for olds, news in pairs):
        return True
    integers = [pair for pair in pairs if np.asarray(pair[0][:1]).dtype.kind in "biu"]
    return len(noisy) < len(exact) and any(not all(map(np.array_equal, olds, news)) for olds, news in integers)


def _arrays(values: Sequence[Any]) -> list[Any]:
    """The values, and for a sequence what is in it; strings that say numbers as these."""
    return [_said(each) for value in values for each in (value if isinstance(value, list) else [value])]


def _said(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "OUS":
        return value
    try:
        return value.astype(np.float64)
    except ValueError:
        return value


def _within(given: Any, expected: Any, low: Any, high: Any) -> bool:
    spread = np.where(np.isfinite(high - low), high - low, np.inf)
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
    equal = (given == expected) | (np.isnan(given) & np.isnan(expected))
    is_open = ~np.isfinite(low) | ~np.isfinite(high)
    near = np.abs(given - expected) <= SAFETY * spread + 1e-6 * scale
    near |= np.isinf(given) & (low < 0) & (high > 0) & (spread > _POLE)
    return bool(np.all(equal | is_open & ~np.isfinite(expected) | near | np.isinf(spread) & ~np.isnan(expected)))


def prefers_reference(model: onnx.ModelProto, known: Known) -> bool:
    """Whether of the two peers only the reference may be right."""
    return bool(runtime_is_wrong(model, known)) and not reference_is_wrong(model, known)


def _may_judge(model: onnx.ModelProto, known: Known) -> bool:
    """Whether the reference is not known to be wrong."""
    return not reference_is_wrong(model, known)
