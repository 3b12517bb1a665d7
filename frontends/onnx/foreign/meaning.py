"""Foreign ONNX operators: how they run.

Control flow and optionals are run here, over graphs, ZipMap, which onnx does not implement, and ConcatFromSequence,
SequenceInsert, SplitToSequence, Slice, STFT and StringNormalizer, which it or ONNX Runtime gets wrong; everything else
by onnx's reference implementation, else by ONNX Runtime where that is there, and the other way around for `ai.onnx.ml`.
Sequences are lists, maps are dicts, an empty optional is None and a full one its element, strings arrays of objects.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator

from ....ir.attrs import Attrs
from ....ir.constant import Constant, is_array
from ....ir.errors import ExecutionError, MissingPackageError, UnsupportedError
from ....ir.evaluate import FAILURES, BoundRegion, evaluate_graph
from ....ir.foreign import register_shaping
from ....ir.graph import Graph, Node, Value
from ....ir.op import Op
from ....ir.ops import native
from ....ir.ops.control import run_scan
from ....ir.ops.signal import stft
from ....ir.ops.slicing import dynamic_slice
from ....ir.types import DType, OptionalType, SequenceType, TensorType, Type
from ..exporting.exporter import export_model
from ..exporting.foreign_nodes import own_inputs, results_in_place
from ..exporting.saturation import without_saturation
from . import runtime
from .regions import BATCHED_SCAN
from .runtime import RuntimeNode, runtime_node

_BOUNDS = 2
Evaluator = ReferenceEvaluator | RuntimeNode


def run_foreign(node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    """The results of a foreign ONNX node.

    Raises `UnsupportedError` when onnx has no implementation, `ExecutionError` when it fails, and `MissingPackageError`
    when it needs a package that is not there.
    """
    own = _OWN.get(node.op.name, _run_reference)
    return own(node, operands)


# ---- control flow, optionals and maps


def _run_if(node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    chosen = "then_branch" if bool(np.asarray(operands[0]).reshape(())) else "else_branch"
    return _chosen(node, evaluate_graph(node.attrs[chosen], _captured(node, operands)[chosen]))


def _captured(node: Node, operands: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """The values that each region captures, by the region's name."""
    captured: dict[str, Sequence[Any]] = {}
    taken = own_inputs(node)
    for name, count in zip(node.regions, node.attrs["captured"], strict=True):
        captured[name] = operands[taken : taken + count]
        taken += count
    return captured


def _run_loop(node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    body: Graph = node.attrs["body"]
    count = own_inputs(node)
    captured = operands[count:]
    trip, cond, *carried = [*operands[:count], None, None][: max(count, 2)]
    limit = None if trip is None else int(np.asarray(trip).reshape(()))
    goes_on = cond is None or bool(np.asarray(cond).reshape(()))
    gathered: list[Sequence[Any]] = []
    while goes_on and (limit is None or len(gathered) < limit):
        counters = _as_declared(body, np.array(len(gathered)), np.array(True))
        proceed, *results = evaluate_graph(body, [*counters, *carried, *captured])
        goes_on = cond is None or bool(np.asarray(proceed).reshape(()))
        carried, scanned = results[: len(carried)], results[len(carried) :]
        gathered.append(scanned)
    types = [value.type for value in body.outputs[1 + len(carried) :]]
    stacked = [_stacked([row[index] for row in gathered], ty) for index, ty in enumerate(types)]
    return _chosen(node, [*carried, *stacked])


def _as_declared(body: Graph, *counters: Any) -> list[Any]:
    """The iteration and the condition with the rank that the body declares: some have vectors of one element."""
    return [
        counter.reshape((1,) * (len(value.type.shape or ()) if isinstance(value.type, TensorType) else 0))
        for counter, value in zip(counters, body.inputs, strict=False)
    ]


def _stacked(rows: Sequence[Any], ty: Type) -> Any:
    if rows:
        return np.stack(rows)
    assert isinstance(ty, TensorType)  # ONNX scans tensors only
    sizes = [dim if isinstance(dim, int) else 0 for dim in ty.shape or ()]
    return np.zeros((0, *sizes), ty.dtype.numpy)


def _run_scan(node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    """Along any axes, which onnx's implementation lacks; in opset 8 sample by sample, each up to its own length."""
    count, attrs = own_inputs(node), node.attrs
    own, captured = operands[:count], operands[count:]
    if attrs["opset_version"] != BATCHED_SCAN:
        return _chosen(node, _scan(attrs, own, captured))
    lengths, *own = own
    longest = np.shape(own[-1])[1]
    states = len(own) - attrs["num_scan_inputs"]
    samples: list[Sequence[Any]] = []
    for sample in range(len(own[-1])):
        values = [x[sample, ...] for x in own]
        length = longest if lengths is None else int(lengths[sample])
        if not 0 <= length <= longest:
            raise ExecutionError(
                f"Scan is to go through {length} of {longest} values", remedy=f"pass lengths from 0 to {longest}"
            )
        results = _scan(attrs, [*values[:states], *(x[:length] for x in values[states:])], captured)
        samples.append([*results[:states], *(_padded(x, longest) for x in results[states:])])
    return _chosen(node, [np.stack(column) for column in zip(*samples, strict=True)])


def _scan(attrs: Attrs, own: Sequence[Any], captured: Sequence[Any]) -> tuple[Any, ...]:
    scanned = attrs["num_scan_inputs"]
    return run_scan(
        *own,
        *captured,
        body=BoundRegion(attrs["body"], {}),
        states=len(own) - scanned,
        scan_inputs=scanned,
        input_axes=attrs.get("scan_input_axes", ()),
        output_axes=attrs.get("scan_output_axes", ()),
        input_reverse=attrs.get("scan_input_directions", attrs.get("directions", ())),
        output_reverse=attrs.get("scan_output_directions", ()),
    )


def _padded(x: Any, length: int) -> Any:
    """`x` with zeros behind it, as ONNX Runtime has them."""
    missing = np.full((length - len(x), *x.shape[1:]), "" if x.dtype == object else 0, x.dtype)
    return np.concatenate([x, missing])


def _run_concat_from_sequence(node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    """Of tensors that fit: of others ONNX Runtime gives what lies in memory."""
    join = np.stack if node.attrs.get("new_axis", 0) else np.concatenate
    return [join(operands[0], node.attrs["axis"])]


def _run_optional(_node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    return [operands[0] if operands else None]


def _run_has_element(_node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    return [np.array(bool(operands) and operands[0] is not None)]


def _run_get_element(_node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    if operands[0] is None:
        raise ExecutionError("the optional is empty", remedy="ask OptionalHasElement first")
    return [operands[0]]


def _run_zip_map(node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    """A map from labels to scores for each row f32[N, C]; a vector is one row."""
    labels = node.attrs.get("classlabels_strings") or node.attrs.get("classlabels_int64s", ())
    rows = np.atleast_2d(operands[0])
    if rows.shape[1] != len(labels):
        raise ExecutionError(f"ZipMap has {len(labels)} labels for {rows.shape[1]} scores")
    return [[dict(zip(labels, row, strict=True)) for row in rows.tolist()]]


def _run_sequence_insert(_node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    """At the place itself, which may be one behind the last: onnx's implementation wraps that around to the first."""
    elements, added, *place = operands
    count = len(elements)
    at = count if not place or place[0] is None else int(np.asarray(place[0]).reshape(()))
    if not -count <= at <= count:
        raise ExecutionError(f"place {at} to insert at is out of range for a sequence of {count}")
    at += count if at < 0 else 0
    return [[*elements[:at], added, *elements[at:]]]


def _run_slice(node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    """A slice by bounds of unknown number; onnx's implementation takes nothing backwards from before an axis."""
    if len(operands) <= _BOUNDS:  # bounds that are attributes
        return _run_reference(node, operands)
    x, starts, ends, axes, steps = (*operands, None, None)[:5]
    return [dynamic_slice(x, starts, ends, axes, steps)]


def _run_split_to_sequence(node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    """Parts along an axis; `keepdims` speaks of single slices alone, which onnx's implementation passes over."""
    x, *split = operands
    axis, size = int(node.attrs.get("axis", 0)), np.shape(operands[0])[int(node.attrs.get("axis", 0))]
    if not split or split[0] is None:
        parts = np.split(x, size, axis) if size else []
        return [[part if node.attrs.get("keepdims", 1) else part.squeeze(axis) for part in parts]]
    sizes = np.asarray(split[0])
    if (not sizes.ndim and sizes < 1) or (sizes < 0).any() or (sizes.ndim and sizes.sum() != size):
        raise ExecutionError(f"parts of {sizes.tolist()} elements are not {size} together")
    if not sizes.ndim and not size:
        return [[]]
    ends = np.arange(int(sizes), size, int(sizes)) if not sizes.ndim else np.cumsum(sizes)[:-1]
    return [list(np.split(x, ends, axis))]


def _run_stft(node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    """Spectra of frames that only running tells: onnx's implementation takes a window of another length than they."""
    x, step, window, length = (*operands, None, None)[:4]
    if length is None:
        length = np.shape(x)[1] if window is None else np.shape(window)[0]
    size, every = (int(np.asarray(each).reshape(())) for each in (length, step))
    return [stft(x, window, frame_step=every, frame_length=size, onesided=bool(node.attrs.get("onesided", 1)))]


def _chosen(node: Node, results: Sequence[Any]) -> list[Any]:
    """The results that the node has, when the model leaves some out."""
    return [results[place] for place, value in enumerate(results_in_place(node)) if value is not None]


def _run_string_normalizer(node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    """Strings of a vector [C] or [1, C] that are no stopwords: by themselves, or whatever their case.

    onnx's implementation drops accents and empty strings, and minds the case where it should not. Letters change one
    by one, as in ONNX Runtime.
    """
    x, attrs = operands[0], node.attrs
    if x.ndim != 1 and not (x.ndim == _BOUNDS and len(x) == 1):
        raise ExecutionError(f"StringNormalizer takes strings [C] or [1, C], not {list(x.shape)}")
    action = attrs.get("case_change_action", "NONE")
    is_sensitive = bool(attrs.get("is_case_sensitive", 0))

    def compared(word: str) -> str:
        return word if is_sensitive else _with_case(word, "LOWER" if action == "NONE" else action)

    stopwords = {compared(word) for word in attrs.get("stopwords", ())}
    kept = [_with_case(word, action) for word in x.reshape(-1).tolist() if compared(word) not in stopwords]
    found = np.array(kept or [""], object)
    return [found if x.ndim == 1 else found.reshape(1, -1)]


def _with_case(word: str, action: str) -> str:
    if action == "NONE":
        return word
    changed = (letter.lower() if action == "LOWER" else letter.upper() for letter in word)
    return "".join(new if len(new) == 1 else old for new, old in zip(changed, word, strict=True))


_OWN: dict[str, Callable[[Node, Sequence[Any]], Sequence[Any]]] = {
    "onnx.If": _run_if,
    "onnx.Loop": _run_loop,
    "onnx.Scan": _run_scan,
    "onnx.ConcatFromSequence": _run_concat_from_sequence,
    "onnx.Optional": _run_optional,
    "onnx.OptionalHasElement": _run_has_element,
    "onnx.OptionalGetElement": _run_get_element,
    "onnx.SequenceInsert": _run_sequence_insert,
    "onnx.Slice": _run_slice,
    "onnx.SplitToSequence": _run_split_to_sequence,
    "onnx.STFT": _run_stft,
    "onnx.StringNormalizer": _run_string_normalizer,
    "ai.onnx.ml.ZipMap": _run_zip_map,
}


# ---- everything else

_BETTER_IN_RUNTIME = ("ai.onnx.ml.", "onnx.AffineGrid")
"""Operators that onnx implements only for some of their versions and attributes (binary classifiers fail, say), or
wrongly: AffineGrid gives f32 for f64."""


_BEFORE_BF16 = 21
"""Opset 22 gave many operators a new version for bf16, which ONNX Runtime lacks of some (GlobalLpPool)."""


def _run_reference(node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    types = tuple(value.type if value is not None else None for value in node.inputs)
    key = (node.op, node.attrs, types, tuple(value.type for value in node.outputs))
    names = _input_names(len(types))
    given = {name: operand for name, operand, ty in zip(names, operands, types, strict=True) if ty is not None}
    try:
        results = _results(node.op, _session(*key), given)
    except FAILURES as error:
        other = _runtime_session(*key)
        if other is None or _may_trap(node, operands):
            raise
        try:
            results = list(other.run(None, given))
        except ExecutionError:
            raise error from None
    return [_as_type(value.type, result) for value, result in zip(node.outputs, results, strict=True)]


_DIVIDES = frozenset(
    f"onnx.{name}" for name in ("CausalConvWithState", "Conv", "ConvInteger", "ConvTranspose", "QLinearConv", "STFT")
)


def _may_trap(node: Node, operands: Sequence[Any]) -> bool:
    """Whether ONNX Runtime may divide by 0, a size, a step or a length, which ends the process."""
    if node.op.name not in _DIVIDES:
        return False
    arrays = [np.asarray(each) for each in operands if is_array(each)]
    return any(not each.size or (not each.ndim and each.dtype.kind in "iu" and not each) for each in arrays)


def _results(op: Op, session: Evaluator, given: dict[str, Any]) -> Sequence[Any]:
    try:
        return list(session.run(None, {name: _copied(operand) for name, operand in given.items()}))
    except ImportError as error:
        raise MissingPackageError(
            f"onnx needs the package {error.name} to run {op.name}", remedy=f"pip install {error.name}"
        ) from error
    except NotImplementedError as error:
        raise _not_implemented(op, error) from error
    except FAILURES:
        raise
    except Exception as error:
        raise ExecutionError(f"onnx's implementation of {op.name} failed: {error!r}") from error


def _not_implemented(op: Op, error: Exception) -> UnsupportedError:
    reason = str(error).split(". ")[0]  # what follows are hints to onnx's own developers
    return UnsupportedError(
        f"onnx has no implementation of {op.name}: {reason}",
        remedy="give the model a function body for the operator; if it is one of ONNX Runtime's, install onnxruntime",
    )


def _input_names(count: int) -> list[str]:
    return [f"operand{position}" for position in range(count)]


@lru_cache(maxsize=256)
def _session(op: Op, attrs: Attrs, inputs: tuple[Type | None, ...], outputs: tuple[Type, ...]) -> Evaluator:
    """An evaluator of a model that holds just this node: onnx's own where it implements the operator."""
    other = _runtime_session(op, attrs, inputs, outputs) if op.name.startswith(_BETTER_IN_RUNTIME) else None
    try:
        return other or ReferenceEvaluator(alone(op, attrs, inputs, outputs))
    except (NotImplementedError, onnx.reference.op_run.RuntimeContextError) as error:
        other = _runtime_session(op, attrs, inputs, outputs)
        if other is None:
            raise _not_implemented(op, error) from error
        return other


def _runtime_session(
    op: Op, attrs: Attrs, inputs: tuple[Type | None, ...], outputs: tuple[Type, ...]
) -> RuntimeNode | None:
    """The node alone in ONNX Runtime; None where that is not there or refuses it."""
    return _newest_session(op, attrs, inputs, outputs) if runtime.is_here() else None


@lru_cache(maxsize=256)
def _newest_session(
    op: Op, attrs: Attrs, inputs: tuple[Type | None, ...], outputs: tuple[Type, ...]
) -> RuntimeNode | None:
    """The node alone in ONNX Runtime, at the newest opset at which it takes it; None where it does at none."""
    try:
        found = runtime_node(alone(op, attrs, inputs, outputs))
        return found or runtime_node(alone(op, attrs, inputs, outputs, opset=_BEFORE_BF16))
    except UnsupportedError:  # the operator came later, or means something else there
        return None


def alone(
    op: Op,
    attrs: Attrs,
    inputs: tuple[Type | None, ...],
    outputs: tuple[Type, ...],
    *,
    opset: int | None = None,
    contents: Sequence[Constant | None] = (),
) -> ModelProto:
    """A model of one node, with constants for those of its operands that have `contents`. Raises as exporting does."""
    graph = Graph("foreign")
    operands: list[Value | None] = []
    for name, ty, content in zip_longest(_input_names(len(inputs)), inputs, contents):
        if content is not None:
            operands.append(graph.append(native("constant"), (), {"value": content}).output)
        else:
            operands.append(graph.add_input(name, ty) if ty is not None else None)
    node = graph.append(op, operands, attrs, types=outputs)
    graph.set_outputs(node.outputs)
    return export_model(without_saturation(graph), opset=opset, value_info=False, check=False)


def _copied(operand: Any) -> Any:
    # Some reference implementations write to their operands.
    if isinstance(operand, np.ndarray):
        return operand.copy()
    return [_copied(item) for item in operand] if isinstance(operand, list | tuple) else operand


def _as_type(ty: Type, result: Any) -> Any:
    if isinstance(ty, OptionalType):
        return None if result is None else _as_type(ty.element, result)
    if isinstance(ty, SequenceType):
        return [_as_type(ty.element, item) for item in result]
    if not isinstance(ty, TensorType):
        return result
    if ty.dtype is DType.STRING:
        return _strings(result)
    array = np.asarray(result)
    return array if array.dtype == ty.dtype.numpy else array.astype(ty.dtype.numpy)


def _strings(result: Any) -> Any:
    array = np.asarray(result)
    return array if array.dtype == object else array.astype(object)


register_shaping(
    {
        "onnx.Col2Im": (1, 2),
        "onnx.DFT": (1, 2),
        "onnx.MaxUnpool": (2,),
        "onnx.MelWeightMatrix": (0, 1),
        "onnx.STFT": (1, 3),
        "onnx.Upsample": (1,),
    }
)
