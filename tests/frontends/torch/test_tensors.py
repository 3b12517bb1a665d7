from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from capgraph.frontends.torch.dtypes import NUMPY_LACKS, dtype_of, torch_dtype_of
from capgraph.frontends.torch.tensors import SharedConstants, array_of, tensor_of
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.types import DType

DTYPES = [
    *(torch.bool, torch.uint8, torch.uint16, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.float8_e8m0fnu, torch.complex64, torch.complex128),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_arrays_share_the_memory_of_tensors(dtype: Any) -> None:
    tensor = torch.tensor([[0, 1], [2, 4], [1, 1]]).to(dtype)
    array = array_of(tensor)
    assert array.dtype == dtype_of(dtype).numpy
    assert array.__array_interface__["data"][0] == tensor.data_ptr()
    back = tensor_of(array)
    assert back.dtype == dtype
    assert torch.equal(back.view(torch.uint8), tensor.view(torch.uint8))
    assert back.data_ptr() == tensor.data_ptr() or dtype in map(torch_dtype_of, NUMPY_LACKS)


def test_strided_tensors() -> None:
    tensor = torch.arange(12).view(3, 4)[:, ::2].T
    np.testing.assert_array_equal(array_of(tensor), np.arange(12).reshape(3, 4)[:, ::2].T)


def test_arrays_that_may_not_be_written_to_are_copied() -> None:
    array = np.arange(4.0)
    array.flags.writeable = False
    tensor = tensor_of(array[::-1])
    tensor[0] = 9
    assert array.tolist() == [0, 1, 2, 3]
    assert tensor.tolist() == [9, 2, 1, 0]


def test_bfloat16_from_an_array() -> None:
    assert tensor_of(np.array([1.5, -2], ml_dtypes.bfloat16)).tolist() == [1.5, -2.0]


def test_one_constant_for_one_memory() -> None:
    shared = SharedConstants()
    weight = torch.randn(3, 4)
    assert shared.of(weight) is shared.of(weight.view(3, 4))
    assert shared.of(weight) is not shared.of(weight[1:])
    assert shared.of(weight) is not shared.of(weight.T)
    np.testing.assert_array_equal(shared.of(weight.T).array, weight.numpy().T)


def test_weights_without_content_fail_when_they_are_read() -> None:
    constant = SharedConstants().of(torch.empty(1 << 40, device="meta"))
    assert constant.type.dtype is DType.F32
    with pytest.raises(UnsupportedError, match="has no content"):
        _ = constant.array


def test_what_has_no_array() -> None:
    with pytest.raises(UnsupportedError, match="layout"):
        array_of(torch.eye(2).to_sparse())
    with pytest.raises(UnsupportedError, match="nested"):
        array_of(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged))
    with pytest.raises(UnsupportedError, match="quint8"):
        dtype_of(torch.quint8)
    with pytest.raises(UnsupportedError, match="string"):
        torch_dtype_of(DType.STRING)


def test_axes_that_any_stride_steps_over_have_those_of_pytorch() -> None:
    empty = np.zeros((4, 3, 2), np.float32)[:, 3:, :]
    single = np.zeros((4, 1, 2), np.float32)[::2].transpose(1, 0, 2)
    for array in (empty, np.broadcast_to(np.float32(1), (0, 2)), np.ascontiguousarray(single)):
        assert tensor_of(array).stride() == torch.empty(array.shape).stride()


def test_an_empty_result_can_grow_where_pytorch_goes_on() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        room, more = x.new_empty(0), x + 1
        torch._dynamo.graph_break()
        torch.mul(x, 2, out=room)
        return room, more

    x = torch.ones(2, 3)
    compiled = torch.compile(function, backend="capgraph", options={"executor": "eager"})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), function(x))
