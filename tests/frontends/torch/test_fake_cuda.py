"""Imports of what PyTorch traces for a GPU, whose metadata is not that of the CPU."""

from typing import Any

import pytest
import torch

from tests.frontends.torch.fake_cuda import imported_on_cuda

_STATISTICS = (torch.zeros(3), torch.ones(3))


def _batch_norm(x: Any, mean: Any, variance: Any) -> Any:
    return torch.ops.aten._native_batch_norm_legit_no_training(x, None, None, mean, variance, 0.1, 1e-5)


def _results(function: Any, *tensors: Any) -> list[str]:
    (found,) = imported_on_cuda(function, tensors)
    return [str(each.type) for each in found.model.graph.outputs]


@pytest.mark.parametrize(("dtype", "name"), [(torch.float32, "f32"), (torch.float16, "f16"), (torch.bfloat16, "bf16")])
def test_batch_norm_in_inference_saves_statistics(dtype: Any, name: str) -> None:
    assert _results(_batch_norm, torch.zeros(2, 3, 4, 4, dtype=dtype), *_STATISTICS) == [
        f"{name}[2, 3, 4, 4]",
        "f32[3]",
        "f32[3]",
    ]
