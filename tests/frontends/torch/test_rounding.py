from collections.abc import Iterator

import pytest
import torch
from capgraph.frontends.torch.rounding import asked_tf32
from capgraph.ir.analysis.contents import Tf32


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")
    _allow_in_cudnn(True)


def _allow_in_cudnn(allowed: bool) -> None:
    """As `torch.backends.cudnn.allow_tf32 = allowed`, which is refused once PyTorch's own tests are imported."""
    torch._C._set_cudnn_allow_tf32(allowed)


def test_by_default_matmuls_are_exact() -> None:
    assert asked_tf32() == Tf32(convolutions=True, cells=True)


def test_settings_by_either_of_their_names_are_seen() -> None:
    _allow_in_cudnn(False)
    assert asked_tf32() == Tf32()
    torch.set_float32_matmul_precision("high")
    assert asked_tf32() == Tf32(matmuls=True)
    torch.backends.cudnn.conv.fp32_precision = "tf32"
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    assert asked_tf32() == Tf32(convolutions=True)
