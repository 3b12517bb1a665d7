"""The modules that call PyTorch's own kernels at inference: nothing of them is left to PyTorch."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from capgraph.frontends.torch.fast_paths import FAST_PATHS
from capgraph.program import foreign_nodes
from capgraph.pytorch.backend import backend, live_programs
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:.*mismatched.*mask:UserWarning")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def check(function: Any, *tensors: Any) -> None:
    """The compiled function gives what the function gives, by native ops alone."""
    before = live_programs()
    found = torch.compile(function, backend=backend, fullgraph=True)(*tensors)
    torch.testing.assert_close(found, function(*tensors), rtol=1e-5, atol=1e-5)
    (program,) = [each for each in live_programs() if not any(each is other for other in before)]
    assert not foreign_nodes(program.graph)
    assert sum(node.op.name == "attention" for node in program.graph.nodes) <= 1


MASKS = {
    "none": {},
    "padding": {"src_key_padding_mask": torch.tensor([[False] * 3 + [True] * 2, [False] * 5])},
    "causal": {"src_mask": nn.Transformer.generate_square_subsequent_mask(5)},
    "both": {
        "src_mask": torch.ones(5, 5, dtype=torch.bool).triu(1),
        "src_key_padding_mask": torch.tensor([[False] * 3 + [True] * 2, [False] * 5]),
    },
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("norm_first", "activation"), [(True, "gelu"), (False, "relu")])
def test_an_encoder_layer(mask: str, norm_first: bool, activation: str) -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 24, activation=activation, batch_first=True, norm_first=norm_first).eval()
    for norm in (layer.norm1, layer.norm2):
        nn.init.normal_(norm.weight, 1.0, 0.3)
        nn.init.normal_(norm.bias)
    check(lambda x: layer(x, **MASKS[mask]), torch.randn(2, 5, 16))


@pytest.mark.parametrize("averages", [True, False])
def test_attention_with_its_weights(averages: bool) -> None:
    attention = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    nn.init.normal_(attention.in_proj_bias)
    check(lambda x: attention(x, x, x, average_attn_weights=averages), torch.randn(2, 5, 16))


@given(
    st.tuples(st.integers(0, 3), st.integers(1, 6), st.sampled_from([1, 2, 4])),
    st.sampled_from([None, 0, 1, 2]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_the_kernel_and_what_it_is_made_of(
    sizes: tuple[int, int, int], kind: int | None, needs_weights: bool, is_float: bool, seed: int
) -> None:
    kernel = torch.ops.aten._native_multi_head_attention.default
    batch, length, heads = sizes
    random = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> Any:
        return torch.randn(*shape, generator=random)

    shapes = {0: (length, length), 1: (batch, length), 2: (batch, heads, length, length)}
    mask = None
    if kind is not None:
        mask = drawn(*shapes[kind]) > 0.5
        mask[..., 0] = False  # something is seen
        mask = mask.float() * -1e9 if is_float else mask
    x = drawn(batch, length, 8)
    arguments = (8, heads, drawn(24, 8), drawn(24), drawn(8, 8), drawn(8), mask, needs_weights, True, kind)
    made = FAST_PATHS[kernel]
    for query in ((x, x, x), (x, x.clone(), x.clone())):
        found, told = made(*query, *arguments), kernel(x, x, x, *arguments)
        torch.testing.assert_close(found[0], told[0], rtol=1e-4, atol=1e-4)
        if needs_weights and batch:
            torch.testing.assert_close(found[1], told[1], rtol=1e-4, atol=1e-4)
