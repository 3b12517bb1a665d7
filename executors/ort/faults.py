"""Nodes that ONNX Runtime takes and then gets wrong: they run eagerly instead.

Each was found by comparing ONNX Runtime 1.31 on the CPU with the meanings of the ops on random graphs. Other nodes it
refuses by itself, when it reads a model (`support`) or when it runs one (`partition`).
"""

from collections.abc import Callable

import numpy as np

from ...frontends.onnx.context.dialect import Dialect, takes_attention_apart
from ...frontends.onnx.exporting.saturation import dequantized
from ...ir.analysis import all_nodes, input_symbols
from ...ir.analysis.contents import SIGNS_READ, constant_of, keeps_signs, reads_bits
from ...ir.dims import Dim, difference, dim_max, symbols
from ...ir.graph import Graph, Node, Value
from ...ir.op import Op, Trait
from ...ir.ops.known import (
    ADD,
    ATTENTION,
    CONV,
    CONV_TRANSPOSE,
    DIV,
    DYNAMIC_PAD,
    EXPAND,
    GEMM,
    MATMUL,
    MAX_POOL,
    PAD,
    RESHAPE,
    SCAN,
    WHERE,
)
from ...ir.types import DType, TensorType, Type
from .integers import inexact
from .resizes import BY_SIZE, is_by_told_scales, resize_fault
from .wrong_numbers import long_sum, may_trap

_WIDE = frozenset((DType.F64, DType.I64, DType.U64, DType.I32, DType.U32))
_TAKES_NOTHING = Trait.ELEMENTWISE | Trait.VIEW
_ALSO_TAKE_NOTHING = frozenset(
    (
        *("attention", "cast", "concat", "expand", "gather", "if", "layer_norm", "loop", "rms_norm"),
        *("rotary_embedding", "slice", "softmax", "split"),
    )
)
"""Ops that are right for empty operands, and usual for them: a cache that is empty at first, a loop's first list."""

_ENDS_PROCESS = frozenset(("gru", "instance_norm", "lstm", "rnn", "scan", "unique"))
"""Ops that end the process for empty operands. The others give results that are wrong or have other sizes."""


def _also_gives_nothing(op: Op) -> bool:
    """Whether an op is wrong where a result is empty.

    Pools round towards 0 and not down: they give an element where a window is larger than all that there is.
    """
    return op is SCAN or op.has(Trait.POOLING)


_WITHOUT_SATURATION = frozenset((DType.F8E4M3FN, DType.F8E5M2))
"""Types to which it casts 480 as 448 and 61440 as NaN, instead of NaN and infinity."""

_INTEGERS = frozenset((DType.I32, DType.I64))
_QUANTIZING = ("quantize_linear", "onnx.QuantizeLinear")  # foreign, where only running tells how many axes there are
_RELUS = ("relu", "onnx.Relu")
_WITH_LEAST_LOOKED_FOR = frozenset((DType.I8, DType.U8, DType.I16, DType.U16))
_MATRIX = 2  # axes
_BIASED = (CONV, CONV_TRANSPOSE, GEMM)
_BIAS = 2
_HALF_OF_I32 = 2.0**31


def known_fault(node: Node) -> str:
    """What ONNX Runtime does wrong at `node`; empty when nothing is known."""
    dims = _risky_dims(node)
    if 0 in dims:
        return "it has an operand without elements"
    if node.op.name in _ENDS_PROCESS and not _are_told(node, dims):
        return "it may have an operand without elements, which only running tells"
    if may_trap(node):
        return "it may divide the least integer by -1, which ends the process in ONNX Runtime"
    return _wrong(node) or inexact(node) or long_sum(node) or _wrong_inside(node)


def lost_signs(graph: Graph) -> dict[Node, str]:
    """The choices of `graph` between floats, where a node reads bits: of a first choice -0.0 becomes 0.0."""
    is_read = SIGNS_READ in graph.metadata
    if not is_read and not any(reads_bits(each) and each.operands[0].tensor.dtype.is_float for each in graph.nodes):
        return {}
    choices = (node for node in graph.nodes if node.op is WHERE and node.output.tensor.dtype.is_float)
    return dict.fromkeys(choices, "ONNX Runtime chooses 0.0 for -0.0, and a node reads bits")


def dims_to_watch(graph: Graph) -> dict[Dim, Node]:
    """Sizes of `graph` which, where one is 0 or less, keep a call out of ONNX Runtime; each with its first node."""
    known = frozenset(input_symbols(graph))
    found: dict[Dim, Node] = {}
    for node in graph.nodes:
        for dim in _risky_dims(node):
            if symbols(dim) and symbols(dim) <= known:
                found.setdefault(dim, node)
    return found


def wrong_optimizers(graph: Graph) -> tuple[str, ...]:
    """ONNX Runtime's own optimizers that change what `graph` means.

    DivMulFusion makes z/x of (1/x)z, also of integers, where 1/x is rounded first: 1/3 times 9 is 0, and 9/3 is 3;
    and where 1 has more axes than x and z, which the result then lacks.
    MatmulTransposeFusion hands the kernel of a matmul a transposed matrix and a vector, and it reads the matrix as it
    lies. Pad_Fusion leaves padding by 0 to a MaxPool, which pads by the lowest number. NoopElimination
    takes -0.0 + 0 for -0.0, which a node that reads bits sees. ExpandElimination drops an expand to a size of 0.
    ReluQuantRewrite takes quantizing for a relu, and looks for a zero point that is the least number of 8 or 16 bits
    alone. WeightBiasQuantization makes i8 of the float weights of what was dequantized, and i32 of a bias, by the
    product of the scales, in which it may not have room.
    """
    found = tuple(name for name, is_changed in _CHANGED.items() if any(map(is_changed, all_nodes(graph))))
    return (*found, "NoopElimination") if keeps_signs(graph) else found


def _is_by_vector(node: Node) -> bool:
    """Whether a node is a matmul with a vector, or with what may be one, on the right."""
    return node.op is MATMUL and len(_shape(node.operands[1].type)) < _MATRIX


def _adds_axes(node: Node) -> bool:
    """Whether the first operand has more axes than the second."""
    first, second = (_shape(value.type) for value in node.operands)
    return len(first) > len(second)


def _pools_padding(node: Node) -> bool:
    producer = node.operands[0].producer if node.op is MAX_POOL else None
    return producer is not None and producer.op in (DYNAMIC_PAD, PAD)


def _quantizes_to_others(node: Node) -> bool:
    """Whether a node quantizes what a relu gives to something else than integers of 8 or 16 bits."""
    producer = node.operands[0].producer if node.op.name in _QUANTIZING else None
    is_relu = producer is not None and producer.op.name in _RELUS
    return is_relu and node.output.tensor.dtype not in _WITH_LEAST_LOOKED_FOR


def _quantizes_floats(node: Node) -> bool:
    """Whether a product of what was dequantized has a weight in floats, or a bias that may not fit in i32."""
    product, bias = node, _BIAS
    if node.op is ADD:  # which ONNX Runtime makes one node with a matmul
        matmuls = [(each.producer, 1 - i) for i, each in enumerate(node.operands) if each.producer is not None]
        product, bias = next((each for each in matmuls if each[0].op is MATMUL), (node, _BIAS))
    if product is node and node.op not in _BIASED:
        return False
    x, weight = dequantized(product, 0), dequantized(product, 1)
    if x is None or weight is None:
        return x is not None
    added = node.inputs[bias] if bias < len(node.inputs) else None
    has_floats = added is not None and dequantized(node, bias) is None
    return has_floats and not _has_room(added, x.inputs[1], weight.inputs[1])


def _has_room(bias: Value | None, *scales: Value | None) -> bool:
    """Whether a bias is known to fit in i32 in steps of the product of the scales, of which the second may be many."""
    content, left, right = map(constant_of, (bias, *scales))
    if content is None or left is None or right is None:
        return False
    numbers, *steps = (np.abs(each.array.astype(np.float64)) for each in (content, left, right))
    step = steps[0].min(initial=np.inf) * steps[1]
    if step.shape not in ((), numbers.shape[-1:]):
        step = step.min(initial=np.inf)
    return bool((numbers < step * _HALF_OF_I32).all())


_CHANGED: dict[str, Callable[[Node], bool]] = {
    "DivMulFusion": lambda node: node.op is DIV and (node.outputs[0].tensor.dtype in _INTEGERS or _adds_axes(node)),
    "ExpandElimination": lambda node: node.op is EXPAND and 0 in node.output.shape,
    "MatmulTransposeFusion": _is_by_vector,
    "Pad_Fusion": _pools_padding,
    "ReluQuantRewrite": _quantizes_to_others,
    "WeightBiasQuantization": _quantizes_floats,
}
"""By optimizer, whether it may change what a node means."""


def _risky_dims(node: Node) -> tuple[Dim, ...]:
    if node.op is ATTENTION:
        queries, keys = (value.tensor.dims for value in node.operands[:2])
        # in parts it is a matmul by what is transposed, see below
        in_matmul = queries[-1:] if takes_attention_apart(node, Dialect.ORT) else ()
        if node.attrs["heads"]:
            return in_matmul
        return *in_matmul, keys[1], 1 - queries[1] % dim_max(keys[1], 1)  # not to be shared ends the process
    if node.op is RESHAPE:  # written with a size that follows from the others, it takes any number of elements
        missing = difference(node.operands[0].tensor.size, node.outputs[0].tensor.size)
        return () if missing is None or missing == 0 else (1 - dim_max(missing, -missing),)
    if node.op is MATMUL:  # over nothing, one with a transposed operand sets just the first of its matrices
        return _shape(node.operands[0].type)[-1:]
    if node.op.has(_TAKES_NOTHING) or node.op.name in _ALSO_TAKE_NOTHING:
        return ()
    values = (*node.operands, *node.outputs) if _also_gives_nothing(node.op) else node.operands
    return tuple(dim for value in values for dim in _shape(value.type))


def _wrong(node: Node) -> str:
    check = _FAULTS.get(node.op.name)
    return check(node) if check is not None else ""


def _wrong_inside(node: Node) -> str:
    """What is wrong in the regions of a node, but for digits and NaN: all in them would run one by one for those."""
    inner = [each for region in node.regions.values() for each in all_nodes(region) if each.op.name not in _OF_DIGITS]
    told = BY_SIZE if any(map(is_by_told_scales, inner)) else ""  # which no output of a session tells of a body
    return next((problem for each in inner if (problem := _wrong(each))), told)


def _are_told(node: Node, dims: tuple[Dim, ...]) -> bool:
    assert node.graph is not None
    known = frozenset(input_symbols(node.graph))
    return all(symbols(dim) <= known for dim in dims)


def _shape(ty: Type) -> tuple[Dim, ...]:
    return ty.shape or () if isinstance(ty, TensorType) else ()


def _narrow(node: Node) -> str:
    dtype = node.operands[0].tensor.dtype
    return f"ONNX Runtime computes it in f32, which is too little for {dtype}" if dtype in _WIDE else ""


def _cast(node: Node) -> str:
    to = node.attrs["to"]
    if to is DType.STRING and node.operands[0].tensor.dtype is DType.BOOL:
        return "ONNX Runtime writes 0 and 1"
    if to is DType.F8E8M0:
        return "ONNX Runtime does not take the magnitude of negative numbers"
    if to in _WITHOUT_SATURATION and not node.attrs["saturate"]:
        return "ONNX Runtime gives other numbers than the standard just above the greatest"
    return ""


def _scalar(node: Node) -> str:
    return "" if _shape(node.operands[0].type) else "ONNX Runtime takes a scalar for a vector"


def _string_rows(node: Node) -> str:
    is_string = node.operands[0].tensor.dtype is DType.STRING
    return "ONNX Runtime takes just the first string of each row" if is_string else ""


def _empty_strings(node: Node) -> str:
    is_given = bool(node.attrs.get("delimiter"))
    return "ONNX Runtime makes no part of an empty string, where there is an empty one" if is_given else ""


def _parameters(node: Node) -> str:
    is_given = node.attrs.get("activation_alpha") or node.attrs.get("activation_beta")
    return "ONNX Runtime hands the parameters of activations out in another way" if is_given else ""


def _recurrence(node: Node) -> str:
    """Foreign where only running tells the rank of an operand; a native one is written with its first states."""
    lengths, *states = (*node.inputs, *(None for _ in range(7)))[4:7]
    is_kept = lengths is not None and any(state is not None for state in states)
    return "ONNX Runtime ends in 0 for a sequence that makes no step" if is_kept else _parameters(node)


def _unordered(node: Node) -> str:
    is_float = node.operands[0].tensor.dtype.is_float
    return "ONNX Runtime passes over NaN where it looks for the greatest and the least" if is_float else ""


def _through_nan(node: Node) -> str:
    is_double = node.operands[0].tensor.dtype is DType.F64
    return "ONNX Runtime gives numbers beside NaN, as it passes over it in the sum of doubles" if is_double else ""


def _distinct(node: Node) -> str:
    is_float = node.operands[0].tensor.dtype.is_float
    return "ONNX Runtime counts NaN with whatever it is compared with" if is_float else ""


def _reduced_writes(node: Node) -> str:
    return _unordered(node) if node.attrs["reduction"] in ("max", "min") else ""


def _parallel_writes(node: Node) -> str:
    """With two threads thousands of 1.2 million sums of six rows each were wrong in one run of six."""
    if node.attrs["reduction"] != "none":
        return "ONNX Runtime's threads reduce rows of one index at the same time and lose some"
    return ""


def _inexact(_node: Node) -> str:
    """400 points are off by 3e-5 of the greatest element, NumPy's by 3e-8 in a 50th of the time."""
    return "ONNX Runtime's transform loses half of the digits where the length is no power of two"


def _unpooled(node: Node) -> str:
    is_given = node.op.is_foreign or node.attrs["sizes"] is not None  # foreign where only running tells the sizes
    return "ONNX Runtime counts the indices in the sizes that are given, not in those of the pool" if is_given else ""


def _resized(_node: Node) -> str:
    """Foreign where only running tells how many axes there are."""
    return "ONNX Runtime goes by rounded sizes where only running tells the sizes of a resize"


_FAULTS: dict[str, Callable[[Node], str]] = {
    "argmax": _unordered,
    "argmin": _unordered,
    "cast": _cast,
    "dft": _inexact,
    "dynamic_resize": resize_fault,
    "gather": _string_rows,
    "gelu": _narrow,
    "group_norm": _narrow,
    "gru": _parameters,
    "hardmax": _unordered,
    "log_softmax": _through_nan,
    "lstm": _parameters,
    "max_unpool": _unpooled,
    "non_zero": _scalar,
    "onnx.GRU": _recurrence,
    "onnx.LSTM": _recurrence,
    "onnx.LogSoftmax": _through_nan,
    "onnx.MaxUnpool": _unpooled,
    "onnx.NonZero": _scalar,
    "onnx.RNN": _recurrence,
    "onnx.Resize": _resized,
    "onnx.Upsample": _resized,
    "onnx.Gather": _string_rows,  # foreign, where only running tells how many axes there are
    "onnx.DFT": _inexact,  # foreign, where only running tells the axis or the step
    "onnx.STFT": _inexact,
    "onnx.StringSplit": _empty_strings,
    "resize": resize_fault,
    "rnn": _parameters,
    "roll": _string_rows,
    "scatter_elements": _reduced_writes,
    "scatter_nd": _parallel_writes,
    "shrink": _narrow,
    "sort": _unordered,
    "stft": _inexact,
    "unique": _distinct,
}

_OF_DIGITS = frozenset(
    name for name, check in _FAULTS.items() if check in (_inexact, _narrow, _reduced_writes, _unordered)
)
