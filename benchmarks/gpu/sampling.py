"""The time of drawing a token from logits, by temperature, top-k and top-p, beside PyTorch's own kernels in a graph.

python -m benchmarks.gpu.sampling

What is measured is `drawn`, which tokens of `examples/generate.py` and of `capgraph.decoding_loop` end with.
"""

from typing import Any

import capgraph
import torch
from capgraph.pytorch.generation import drawn

from benchmarks.gpu.timing import timed

VOCABULARIES = (128256, 50257)
BATCHES = (1, 8)


class Sampler(torch.nn.Module):
    """The end of a decoder alone."""

    def forward(self, *arguments: Any) -> Any:
        """See `drawn`."""
        return drawn(*arguments)


def arguments(batch: int, vocabulary: int) -> tuple[Any, ...]:
    """Logits bf16 with what draws from them: temperature 0.8, the 50 likeliest, 0.9 of these."""
    ones = torch.ones(batch, device="cuda")
    logits = (4 * torch.randn(batch, vocabulary, device="cuda")).bfloat16()
    return logits, 0.8 * ones, (50 * ones).long(), 0.9 * ones, torch.rand(batch, device="cuda")


def main() -> None:
    for batch in BATCHES:
        for vocabulary in VOCABULARIES:
            given = arguments(batch, vocabulary)
            program = capgraph.optimize(Sampler(), args=given, device="cuda", executor="graph")
            wanted = drawn(*given)
            is_equal = torch.equal(torch.as_tensor(program(*given), device="cuda"), wanted)
            ours = timed(lambda p=program, g=given: p(*g), torch.cuda.synchronize)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                drawn(*given)
            peer = timed(graph.replay, torch.cuda.synchronize)
            verdict = "" if is_equal else ", WRONG: another token"
            print(
                f"{batch} x {vocabulary}: {ours.many_us:.1f} us, PyTorch in a graph {peer.many_us:.1f}{verdict}",
                flush=True,
            )


if __name__ == "__main__":
    main()
