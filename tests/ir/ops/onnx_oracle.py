"""Native ops beside an independent meaning: one-node ONNX models, in the reference evaluator or ONNX Runtime."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from capgraph.ir.dims import symbol
from capgraph.ir.op import Op
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType, Type, bind_type
from onnx.reference import ReferenceEvaluator

Array = npt.NDArray[Any]


def one_node(
    operator: str, inputs: Sequence[Array | None], outputs: int, opset: int, attrs: dict[str, Any]
) -> onnx.ModelProto:
    """A model of one node, with these inputs."""
    names = ["" if array is None else f"x{index}" for index, array in enumerate(inputs)]
    results = [f"y{index}" for index in range(outputs)]
    node = onnx.helper.make_node(operator, names, results, **attrs)
    given = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, inputs, strict=True)
        if array is not None
    ]
    untyped = [onnx.ValueInfoProto(name=name) for name in results]
    graph = onnx.helper.make_graph([node], "one_node", given, untyped)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)


def reference(operator: str, *inputs: Array | None, outputs: int = 1, opset: int = 22, **attrs: Any) -> list[Array]:
    """What onnx's reference evaluator gives."""
    model = one_node(operator, inputs, outputs, opset, attrs)
    with np.errstate(all="ignore"):
        return [np.asarray(result) for result in ReferenceEvaluator(model).run(None, _feeds(inputs))]


def runtime(operator: str, *inputs: Array | None, outputs: int = 1, opset: int = 22, **attrs: Any) -> list[Array]:
    """What ONNX Runtime gives on the CPU: of u8 by i8 without VNNI wrong sums, unless one has 7 bits alone."""
    model = one_node(operator, inputs, outputs, opset, attrs)
    session = _session(model.SerializeToString())
    return [np.asarray(result) for result in session.run(None, _feeds(inputs))]


@cache
def _session(model: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _feeds(inputs: Sequence[Array | None]) -> dict[str, Array]:
    return {f"x{index}": array for index, array in enumerate(inputs) if array is not None}


def run(name: str, *operands: Array | None, **attrs: Any) -> tuple[Array, ...]:
    """The results of a native op, after holding its type rule to them: with static sizes, and with symbols for all."""
    op = native(name)
    completed = op.complete_attrs(attrs)
    copies = [None if operand is None else operand.copy() for operand in operands]
    with np.errstate(all="ignore"):
        given = op.meaning(*operands, **completed.as_kwargs())
    results = tuple(np.asarray(result) for result in (given if isinstance(given, tuple) else (given,)))
    for operand, copy in zip(operands, copies, strict=True):
        if operand is not None and copy is not None:
            assert operand.tobytes() == copy.tobytes(), "a meaning wrote to its operand"
    actual = tuple(TensorType(DType.of(result.dtype), result.shape) for result in results)
    static = [None if operand is None else TensorType(DType.of(operand.dtype), operand.shape) for operand in operands]
    assert op.result_types(static, completed) == actual
    assert symbolic_types(op, operands, completed) == actual
    return results


def symbolic_types(op: Op, operands: Sequence[Array | None], attrs: Any) -> tuple[Type, ...]:
    """The result types of `op` for operands whose sizes other than 1 are symbols, with these bound at the end."""
    sizes: dict[str, int] = {}
    types: list[TensorType | None] = []
    for index, operand in enumerate(operands):
        if operand is None:
            types.append(None)
            continue
        names = [f"n{index}_{axis}" for axis in range(operand.ndim)]
        sizes.update(zip(names, operand.shape, strict=True))
        dims = tuple(1 if size == 1 else symbol(name) for name, size in zip(names, operand.shape, strict=True))
        types.append(TensorType(DType.of(operand.dtype), dims))
    return tuple(bind_type(ty, sizes) for ty in op.result_types(types, attrs))


def assert_close(found: Array, expected: Array, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Equal dtype and shape, and elements close in f64."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=atol)


def random(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    """Standard normal values, or 8-bit integers of the whole range, from a seed."""
    generator = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    return generator.standard_normal(shape).astype(dtype)
