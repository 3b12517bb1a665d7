"""Replays of decoder layers with random delays around each start that may be early: all give the same bits.

    python -m benchmarks.gpu.delays [--models decode-1b,decode-1b:4,decode-qwen0.6b] [--weights bf16,int8,fp8,int4]
                                    [--layers 2] [--replays 10000] [--delay 3] [--plain] [--out FILE.json]

Kernels are compiled as ever first, which gives the bits that are expected, then with a delay of up to so many us in
front of each trigger and on both sides of each wait, drawn for each warp; the choices among kernels are the same. One
replay and the next have other tokens and positions, and the rows that a replay writes hold NaN before, so that what is
read too early is something else. `wrong` counts replays with other logits or rows. With `--plain` there are no
delays: for tools that look at memory, few replays of small models.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from capgraph.executors.cuda import executor
from capgraph.executors.cuda.driver import compiler
from capgraph.executors.cuda.driver.cache import FOLDER_VARIABLE
from capgraph.pytorch import backend as torch_backend

from benchmarks.gpu.decode_model import SHAPES, Decoder, coded
from benchmarks.gpu.findings import Findings, table
from benchmarks.gpu.timing import timed

VOCABULARY = 4096
"""Few, so that the layers are most of a step."""

CYCLES_OF_A_US = 1800

TRIGGER = 'asm volatile("griddepcontrol.launch_dependents;");'
WAIT = 'asm volatile("griddepcontrol.wait;" ::: "memory");'

_DELAY = """
#if !defined(EMULATED) && __CUDA_ARCH__ >= 900
__device__ __noinline__ void delayed() {
  unsigned warp = (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / 32;
  unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  long long start = clock64();
  unsigned x = (unsigned)start ^ block * 2654435761u ^ warp * 40503u;
  x ^= x >> 16; x *= 0x7feb352du; x ^= x >> 15; x *= 0x846ca68bu; x ^= x >> 16;
  x = __shfl_sync(__activemask(), x, __ffs(__activemask()) - 1);
  long long cycles = x & 1 ? 0 : (long long)((x >> 8) % CYCLES);
  while (clock64() - start < cycles) {}
}
#endif
"""


def delayed_source(source: str, cycles: int) -> str:
    """The source with a delay of up to so many cycles in front of each trigger and around each wait."""
    found = source.replace(TRIGGER, f"delayed(); {TRIGGER}").replace(WAIT, f"delayed(); {WAIT} delayed();")
    return _DELAY.replace("CYCLES", f"{cycles}u") + found


@contextmanager
def delays(cycles: int) -> Iterator[None]:
    """Has programs that are made meanwhile such kernels, which are kept nowhere."""
    plain = compiler.source_of
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        patch.dict(os.environ, {FOLDER_VARIABLE: folder}),
        patch.object(compiler, "source_of", lambda texts: delayed_source(plain(texts), cycles)),
    ):
        executor._compiler.cache_clear()
        yield
    executor._compiler.cache_clear()


class Logits(torch.nn.Module):
    """A decoder that gives its logits."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return self.decoder.logits(tokens, position)


class Layers:
    """Some layers of a model, and the calls that take turns."""

    def __init__(self, name: str, batch: int, weights: str, layers: int, slots: int) -> None:
        torch.manual_seed(0)
        shape = replace(SHAPES[name], vocabulary=VOCABULARY, layers=layers, slots=slots)
        with torch.device("cuda"):
            decoder = Decoder(shape, batch).requires_grad_(False).bfloat16().eval()
            decoder = decoder if weights == "bf16" else coded(decoder, weights)
            self.tokens = torch.zeros(batch, dtype=torch.int64)
            self.position = torch.zeros(1, dtype=torch.int64)
            places = (0, slots // 64, slots // 3, slots // 2, slots - 1)  # a row depends on those before
            self.turns = [(torch.randint(0, VOCABULARY, (batch,)), torch.tensor([place])) for place in places]
        self.module, self.caches = Logits(decoder), decoder.caches

    def begin(self, turn: int) -> None:
        """Has the next call do a turn: its rows of the caches are NaN."""
        tokens, position = self.turns[turn]
        self.tokens.copy_(tokens)
        self.position.copy_(position)
        for cache in self.caches:
            cache.index_fill_(2, position, float("nan"))

    def bits(self, turn: int, logits: torch.Tensor) -> list[torch.Tensor]:
        """What a call gave and wrote, as integers."""
        rows = [cache.index_select(2, self.turns[turn][1]) for cache in self.caches]
        return [logits.view(torch.int32), *(row.view(torch.int16) for row in rows)]

    def compiled(self) -> Any:
        """The module by our backend, recorded."""
        torch._dynamo.reset()
        call = torch.compile(self.module, fullgraph=True, backend=torch_backend.backend)
        for index in range(8):
            self.begin(index % len(self.turns))
            call(self.tokens, self.position)
        stats = torch_backend.live_programs()[-1].stats()
        if stats.refused or len(stats.buckets) != 1 or stats.buckets[0].segments != 1:
            raise RuntimeError(f"not recorded whole: {torch_backend.live_programs()[-1].explain()}")
        return call

    def expected(self, call: Any) -> list[list[torch.Tensor]]:
        """The bits of each turn."""
        found = []
        for turn in range(len(self.turns)):
            self.begin(turn)
            found.append([each.clone() for each in self.bits(turn, call(self.tokens, self.position))])
        return found

    def wrong(self, call: Any, expected: Sequence[Sequence[torch.Tensor]], replays: int) -> int:
        """How many replays gave other bits."""
        wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        for index in range(replays):
            turn = index % len(self.turns)
            self.begin(turn)
            found = self.bits(turn, call(self.tokens, self.position))
            unlike = [(a != b).any() for a, b in zip(found, expected[turn], strict=True)]
            wrong += torch.stack(unlike).any()
        return int(wrong)


@torch.no_grad()
def measure(subject: str, weights: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """One row."""
    name, _, batch = subject.partition(":")
    layers = Layers(name, int(batch or 1), weights, arguments.layers, arguments.slots)
    call = layers.compiled()
    expected = layers.expected(call)
    if any(bool(torch.isnan(each[0].view(torch.float32)).any()) for each in expected):
        raise RuntimeError("logits are NaN")
    row: dict[str, Any] = {"model": subject, "weights": weights, "replays": arguments.replays}
    row["plain_us"] = round(timed(partial(call, layers.tokens, layers.position), torch.cuda.synchronize).many_us, 1)
    if not arguments.plain:
        with delays(int(arguments.delay * CYCLES_OF_A_US)):
            call = layers.compiled()
            late = timed(partial(call, layers.tokens, layers.position), torch.cuda.synchronize).many_us
            row["delayed_us"] = round(late, 1)
    return row | {"wrong": layers.wrong(call, expected, arguments.replays)}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="decode-1b", help=f"of {', '.join(SHAPES)}, with :BATCH")
    parser.add_argument("--weights", default="bf16")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--slots", type=int, default=1024)
    parser.add_argument("--replays", type=int, default=10000)
    parser.add_argument("--delay", type=float, default=3, help="us at most")
    parser.add_argument("--plain", action="store_true", help="without delays")
    parser.add_argument("--out", type=Path, default=Path("build/delays.json"))
    return parser.parse_args()


def main() -> int:
    arguments = parsed()
    findings, rows = Findings(arguments.out), []
    for subject, weights in product(arguments.models.split(","), arguments.weights.split(",")):
        found = findings.stage(f"{subject} {weights}", partial(measure, subject, weights, arguments))
        rows += [found] if found else []
    print(table(rows, ("model", "weights", "replays", "wrong", "plain_us", "delayed_us")), flush=True)
    return 1 if findings.failed or any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
