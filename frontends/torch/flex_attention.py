"""`flex_attention`: attention with functions of scores and positions, taken apart into scores, masks and a softmax.

PyTorch's own reference for it does that by vmap; it is traced here, with the functions, and imported as any graph. All
scores lie in memory, as on the CPU in PyTorch: the blocks of a mask only say what need not be computed.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from .decompositions import composites_kept, decompositions

if TYPE_CHECKING:
    from .importer import FxImporter


def import_flex_attention(
    importer: "FxImporter", node: Any, args: Sequence[Any], _kwargs: Mapping[str, Any]
) -> Sequence[Any]:
    """Results, logarithms of sums and greatest scores of a call."""
    from torch._higher_order_ops.flex_attention import math_attention

    tensors, buffers, mask_buffers = node.args[:3], node.args[7], node.args[8]
    score, blocks, scale, options = args[3:7]

    def attention(*given: Any) -> Any:
        rest = given[3:]
        split = len(buffers)
        return math_attention(*given[:3], score, tuple(blocks), scale, options, rest[:split], rest[split:])

    given = (*tensors, *buffers, *mask_buffers)
    examples = [each.meta["val"] if isinstance(each, torch.fx.Node) else each for each in given]
    with examples[0].fake_mode, composites_kept():
        graph = make_fx(attention, decomposition_table=decompositions())(*examples)
    results: Sequence[Any] = importer.import_module(graph, importer.operand(given))
    return results
