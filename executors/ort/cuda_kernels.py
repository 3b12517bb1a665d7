"""For which operators ONNX Runtime is known to have a kernel on CUDA: for models that are written where no GPU is.

The table is a part of the list that ONNX Runtime publishes (docs/OperatorKernels.md in its repository). A kernel whose
versions have no end ("13+") is taken for the version that it begins with alone, as ONNX Runtime does: an operator that
the standard changed later has a later version. That is why Transpose, Reshape, Cast and MaxPool are not here: their
kernels are for older versions than those at the opsets that are written. Left out is as well what reads values on the
host, and what has kernels for some attributes alone.
"""

from collections.abc import Mapping

import onnx
from onnx import ModelProto, NodeProto

from ...frontends.onnx.contrib import ON_CUDA
from ...frontends.onnx.contrib.convolutions import activations_for_cpu
from ...frontends.onnx.contrib.group import DOMAIN
from ...frontends.onnx.tensors import element_number
from ...ir.types import DType

_BOOLS = frozenset((DType.BOOL,))
_FLOATS = frozenset((DType.F16, DType.F32, DType.F64))
_WIDE_FLOATS = _FLOATS | {DType.BF16}
_NUMBERS = _WIDE_FLOATS | {DType.I32, DType.I64}
_ORDERED = _NUMBERS - {DType.BF16}
_ATTENTION = _WIDE_FLOATS - {DType.F64}
_ALL = _NUMBERS | {DType.BOOL, DType.I8, DType.U8}

_ROWS: tuple[tuple[int, frozenset[DType], tuple[str, ...]], ...] = (
    (1, _BOOLS, ("Not",)),
    (7, _BOOLS, ("And", "Or", "Xor")),
    (13, _FLOATS, ("Ceil", "Clip", "DepthToSpace", "Floor", "Log", "LogSoftmax", "Reciprocal", "SpaceToDepth")),
    (13, _WIDE_FLOATS, ("Erf", "Exp", "Gemm", "MatMul", "ReduceSum", "Sigmoid", "Softmax", "Sqrt", "Tanh")),
    (13, _NUMBERS, ("Abs", "Max", "Min", "Mod", "Neg")),
    (13, _ORDERED, ("Greater", "Less")),
    (13, _ALL, ("Concat", "Expand", "Gather", "GatherElements", "Slice")),
    (14, _WIDE_FLOATS, ("Relu",)),
    (14, _NUMBERS, ("Add", "Div", "Mul", "Sub")),
    (14, _ALL, ("Trilu",)),
    (15, _FLOATS, ("BatchNormalization",)),
    (15, _NUMBERS, ("Pow",)),
    (16, _FLOATS, ("LeakyRelu", "PRelu")),
    (16, _ORDERED, ("GreaterOrEqual", "LessOrEqual")),
    (16, _NUMBERS, ("Where",)),
    (17, _WIDE_FLOATS, ("LayerNormalization",)),
    (18, _FLOATS, ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd")),
    (18, _FLOATS, ("ReduceSumSquare",)),
    (18, _ALL, ("Split",)),
    (20, _WIDE_FLOATS, ("Gelu",)),
    (22, _WIDE_FLOATS, ("AveragePool", "Conv", "HardSigmoid", "HardSwish")),
    (23, _WIDE_FLOATS, ("RMSNormalization",)),
    (23, _ATTENTION, ("RotaryEmbedding",)),
    (24, _ATTENTION, ("Attention",)),
)
"""The version of an operator, the element types of its data, and the operators."""

_STANDARD = {name: (version, dtypes) for version, dtypes, names in _ROWS for name in names}
_OWN = frozenset((each.name, element_number(each.dtype)) for each in ON_CUDA)
_DATA = {"Where": (1,), "Pow": (0, 1)}
"""Which operands have the type that a kernel is chosen by, where it is not the first alone."""
_WITHOUT_CACHE = 4  # operands of Attention


def has_kernels(model: ModelProto) -> bool:
    """Whether every operator of a model is known to have a kernel."""
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    types = _element_types(model)
    return not activations_for_cpu(model) and all(_has_kernel(node, opsets, types) for node in model.graph.node)


def _has_kernel(node: NodeProto, opsets: Mapping[str, int], types: Mapping[str, int]) -> bool:
    data = [types.get(node.input[at]) for at in _DATA.get(node.op_type, (0,)) if at < len(node.input)]
    if node.domain == DOMAIN:
        return all((node.op_type, number) in _OWN for number in data)
    if node.domain or node.op_type not in _STANDARD:
        return False
    version, dtypes = _STANDARD[node.op_type]
    if onnx.defs.get_schema(node.op_type, opsets[""], "").since_version != version:
        return False
    if node.op_type == "Attention" and (len(node.input) > _WITHOUT_CACHE or len(node.output) > 1):
        return False  # with a cache it is not known to run without the host
    numbers = {element_number(dtype) for dtype in dtypes}
    return all(number in numbers for number in data)


def _element_types(model: ModelProto) -> dict[str, int]:
    """The element types of all values of which the model says one, by name."""
    values = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    found = {value.name: value.type.tensor_type.elem_type for value in values}
    return {**found, **{tensor.name: tensor.data_type for tensor in model.graph.initializer}}
