"""Tensors of torch in main memory, which have all that is asked for here: what is read of them, and what is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from capgraph.executors.cuda.arrays.protocol import DeviceArray
from capgraph.executors.cuda.arrays.torch import TorchArrays
from capgraph.ir.errors import InputError

NUMBERS = torch.tensor([1 + 2j, 3 - 1j])
LAZY = {"negated": NUMBERS.conj().imag, "conjugated": NUMBERS.conj()}


@pytest.mark.parametrize("name", LAZY)
def test_what_torch_puts_off_is_done_before_memory_is_read(name: str) -> None:
    given = LAZY[name]
    assert given.is_neg() or given.is_conj()
    expected = given.resolve_conj().resolve_neg()
    np.testing.assert_array_equal(TorchArrays(0, unused).wrap(given), expected.numpy())
    like = DeviceArray(1, expected.numpy().dtype, (2,), (expected.element_size(),), expected, unused)
    assert of_main_memory().address_like(expected.clone(), like) != 0
    assert of_main_memory().address_like(given, like) == 0


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: torch.eye(2).to_sparse(), "torch.sparse_coo on cpu"),
        (lambda: torch.empty(2, device="meta"), "torch.strided on meta"),
        (lambda: torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged), "nested"),
    ],
    ids=["sparse", "meta", "nested"],
)
def test_a_tensor_without_plain_memory_is_refused(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(InputError, match=f"no plain memory: {text}"):
        TorchArrays(0, unused).wrap(make())
    like = DeviceArray(1, np.dtype(np.float32), (2, 2), (8, 4), torch.ones(2, 2), unused)
    assert of_main_memory().address_like(make(), like) == 0


def of_main_memory() -> TorchArrays:
    made = TorchArrays(0, unused)
    made._index = -1  # which is what `get_device` says of main memory
    return made


def unused(_array: DeviceArray) -> Any:
    raise NotImplementedError
