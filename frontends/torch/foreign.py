"""Foreign nodes: operators that the IR does not know run in PyTorch.

A node `aten.foo.default` has as operands the tensors among the operator's arguments, in order, and sizes as tensors of
rank 0. All other arguments are attributes of the same name; a string says where the operands stand, also in lists.
The meaning of the domain calls PyTorch without gradients: on the CPU, or on a GPU's tensors where one runs the plan.

An operator that writes to its arguments is one that gives their new content: behind its results stand the tensors of
the attribute `_all_bases`, which it writes to, whole or in part, as PyTorch's `auto_functionalized_v2` describes it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ...ir.dims import Dim, SymDim
from ...ir.errors import UnsupportedError
from ...ir.foreign import TensorMeaning, register_meaning, register_tensor_meaning
from ...ir.graph import Graph, Node, Value
from ...ir.op import FRESH
from ...ir.op import foreign as foreign_op
from ...ir.types import DType, TensorType
from .call import Call
from .dtypes import dtype_of, torch_dtype_of
from .sizes import UnknownSizeError
from .tensors import array_of, tensor_of

if TYPE_CHECKING:
    from .importer import FxImporter

_TENSOR, _NUMBER = "tensor", "number"
"""What stands in an attribute in the place of an operand: a tensor, or a number that is computed."""
_QUOTE = "'"
"""What a string of the model begins with that could be taken for one of these."""
_DROPPED = ("device", "layout", "pin_memory", "memory_format", "generator")
"""Arguments that say where a result lies: here that is up to the plan."""

_MIXED = 2  # dtypes

_WIDEST_BYTES = 16
"""The bytes of PyTorch's widest elements."""

_MASK = "output_mask"
"""The argument that tells operators of gradients which results to compute."""


def import_foreign(
    importer: "FxImporter", call: Call, target: Any, arguments: Mapping[str, Any]
) -> Value | list[Value | None]:
    """The results of a call as a foreign node. Raises `UnsupportedError` for an argument that no attribute can hold."""
    operands: list[Value] = []
    needed = {argument.name for argument in target._schema.arguments if not argument.has_default_value()}
    kinds = {argument.name: _NUMBER if _is_number(argument) else _TENSOR for argument in target._schema.arguments}
    attrs = {
        name: _attribute(call, given, operands, kinds[name])
        for name, given in arguments.items()
        if name not in _DROPPED and (given is not None or name in needed)
    }
    node = _append(importer, call, target, operands, attrs)
    returns_list = len(target._schema.returns) != 1 or str(target._schema.returns[0].type) != "Tensor"
    values = iter(node.outputs)
    return [None if each is None else next(values) for each in call.results] if returns_list else node.output


def check_dtypes(call: Call, target: Any, arguments: Mapping[str, Any], fakes: Mapping[str, Any]) -> None:
    """Raises `UnsupportedError` where PyTorch on the CPU refuses tensors of several dtypes: its fake kernels do not."""
    sizes = [size for fake in fakes.values() for size in fake.shape]
    if len({fake.dtype for fake in fakes.values()}) < _MIXED or any(f.device.type != "cpu" for f in fakes.values()):
        return
    if not all(isinstance(size, int) or size.node.has_hint() for size in sizes):
        return
    given = dict(arguments)
    for name, fake in fakes.items():
        shape = [size if isinstance(size, int) else size.node.hint for size in fake.shape]
        given[name] = torch.zeros((), dtype=fake.dtype).expand(shape)
    try:
        with torch.no_grad(), unset_fake_temporarily():
            target(**given)
    except RuntimeError as error:
        if "type" not in str(error):
            return
        raise UnsupportedError(
            f"PyTorch refuses what {call.name} is given: {error}",
            where=str(call.origin),
            remedy="cast the arguments to the dtype of the weights, or the module: module.to(dtype)",
        ) from error


def import_writing(
    importer: "FxImporter", call: Call, target: Any, arguments: Mapping[str, Any]
) -> Sequence[Value | None]:
    """The results of an operator that writes to its arguments, then their new content.

    `arguments` are those of `auto_functionalized_v2` by name. Raises as `import_foreign`.
    """
    operands: list[Value] = []
    kinds = {argument.name: _NUMBER if _is_number(argument) else _TENSOR for argument in target._schema.arguments}
    attrs = {name: _attribute(call, given, operands, kinds.get(name, _TENSOR)) for name, given in arguments.items()}
    return _append(importer, call, target, operands, attrs).outputs


def _append(
    importer: "FxImporter", call: Call, target: Any, operands: Sequence[Value], attrs: Mapping[str, Any]
) -> Node:
    types = [
        _result_type(call, result, call.wants(index), operands)
        for index, result in enumerate(call.results)
        if result is not None
    ]
    if len(types) < len(call.results) and _MASK not in attrs:
        raise UnsupportedError(f"{call.name} gives results that are no tensors", where=str(call.origin))
    name = target.name().replace("::", ".") if "." in target.name() else f"{target.name().replace('::', '.')}.default"
    _register(name.partition(".")[0])
    return importer.graph.append(foreign_op(name), operands, attrs, types=types, origin=call.origin)


def _is_number(argument: Any) -> bool:
    """Whether an operator takes numbers there, and no tensor."""
    return "Tensor" not in str(argument.type)


def _attribute(call: Call, given: Any, operands: list[Value], kind: str) -> Any:
    """What stands for an argument; `kind` is what a value is handed over as."""
    if isinstance(given, Value):
        operands.append(given)
        return kind
    if isinstance(given, SymDim):
        operands.append(call.value(given, DType.I64))
        return _NUMBER
    if isinstance(given, list | tuple):
        return tuple(_attribute(call, item, operands, kind) for item in given)
    if isinstance(given, torch.dtype):
        return dtype_of(given)
    if isinstance(given, str):
        return _QUOTE + given if given in (_TENSOR, _NUMBER) or given.startswith(_QUOTE) else given
    if isinstance(given, bool | int | float) or given is None:
        return given
    raise UnsupportedError(
        f"{call.name} has an argument {given!r} that cannot be imported", remedy="keep the operator out of the model"
    )


def _result_type(call: Call, result: Any, is_wanted: bool, operands: Sequence[Value]) -> TensorType:
    """The type of a result. One that nothing reads may come in another shape than tracing has found."""
    dims = [_result_dim(call, size, operands) if is_wanted else FRESH for size in result.shape]
    return TensorType(dtype_of(result.dtype), tuple(dims))


def _result_dim(call: Call, size: Any, operands: Sequence[Value]) -> Dim:
    try:
        dim = call.sizes.dim(size)
    except (UnknownSizeError, UnsupportedError):
        return FRESH
    return dim if call.may_mention((dim,), *operands) else FRESH


def complex_value(graph: Graph, pairs: Value) -> Value:
    """The complex tensor of pairs [..., 2] of parts."""
    dtype = DType.C64 if pairs.tensor.dtype is DType.F32 else DType.C128
    ty = TensorType(dtype, pairs.shape[:-1])
    name = "aten.view_as_complex.default"
    return graph.append(foreign_op(name), [pairs], {"self": _TENSOR}, types=[ty]).output


def real_value(graph: Graph, value: Value) -> Value:
    """The pairs [..., 2] of parts of a complex tensor."""
    dtype = DType.F32 if value.tensor.dtype is DType.C64 else DType.F64
    ty = TensorType(dtype, (*value.shape, 2))
    name = "aten.view_as_real.default"
    return graph.append(foreign_op(name), [value], {"self": _TENSOR}, types=[ty]).output


# ---- running


def run_foreign(node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    """The results of a foreign node on the host; what PyTorch raises for its operands passes through."""
    tensors = [tensor_of(np.asarray(each)) for each in operands]
    results = _own_memory(_run(node, tensors, "cpu"), tensors)
    return [_result(value, array_of(result)) for value, result in zip(node.outputs, results, strict=True)]


def run_on_tensors(node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    """The same on tensors wherever they lie, in tensors of their own memory; of no tensors on the current GPU."""
    device = operands[0].device if operands else torch.device("cuda", torch.cuda.current_device())
    results = [
        result.resolve_conj().resolve_neg().to(torch_dtype_of(value.tensor.dtype))
        for value, result in zip(node.outputs, _run(node, operands, device), strict=True)
    ]
    return _own_memory(results, operands)


def _place(argument: Any, device: Any) -> Any:
    """Where a result is to lie, for an operator that must be told; None where it takes that."""
    if str(argument.type) == "Device":
        return torch.device(device)
    return torch.strided if argument.name == "layout" else None


def _own_memory(results: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
    """The results, copied where they lie in memory of an operand or of another result."""
    taken = {operand.untyped_storage().data_ptr() for operand in operands}
    found: list[Any] = []
    for result in results:
        storage = result.untyped_storage().data_ptr()
        found.append(result.clone() if storage in taken else result)
        taken.add(storage)
    return found


def _run(node: Node, operands: Sequence[Any], device: Any) -> Sequence[Any]:
    """What PyTorch gives for tensors, handed over contiguous; what makes tensors of nothing makes them on `device`."""
    target = _operator(node.op.name)
    given = iter([_contiguous(operand) for operand in operands])
    arguments = {name: _argument(value, given) for name, value in node.attrs.items()}
    for argument in target._schema.arguments if "_all_bases" not in arguments else ():
        if argument.name in _DROPPED and not argument.has_default_value():
            arguments[argument.name] = _place(argument, operands[0].device if operands else device)
    with torch.no_grad(), nullcontext() if operands else torch.device(device):
        results = _new_content(target, arguments) if "_all_bases" in arguments else target(**arguments)
    listed = results if isinstance(results, list | tuple) else [results]
    return list(compress(listed, arguments[_MASK])) if _MASK in arguments else listed


def _contiguous(operand: Any) -> Any:
    """A tensor without gaps. One of no elements has strides that a view of wider elements takes: multiples."""
    if operand.numel():
        return operand.contiguous()
    return operand.new_empty_strided(operand.shape, [_WIDEST_BYTES] * (operand.dim() - 1) + [1] * bool(operand.dim()))


def _new_content(target: Any, arguments: Mapping[str, Any]) -> list[Any]:
    """The results of an operator that writes, made to write to copies, and these."""
    bases = [base.contiguous() for base in arguments["_all_bases"]]  # parts are told by strides of such
    results = torch.ops.higher_order.auto_functionalized_v2(target, **{**arguments, "_all_bases": bases})
    return [result for result in results if result is not None]


def _argument(value: Any, operands: Iterator[Any]) -> Any:
    if isinstance(value, str):
        return _string_argument(value, operands)
    if isinstance(value, tuple):
        return [_argument(item, operands) for item in value]
    return torch_dtype_of(value) if isinstance(value, DType) else value


def _string_argument(value: str, operands: Iterator[Any]) -> Any:
    if value == _TENSOR:
        return next(operands)
    return next(operands).item() if value == _NUMBER else value.removeprefix(_QUOTE)


def _operator(name: str) -> Any:
    found = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _result(value: Value, array: Any) -> Any:
    wanted = value.tensor.dtype.numpy
    return array if array.dtype == wanted else array.astype(wanted)


def _register(domain: str) -> None:
    register_meaning(domain, run_foreign)
    register_tensor_meaning(domain, TensorMeaning("torch", run_on_tensors))


_register("aten")
