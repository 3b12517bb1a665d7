"""How long importing a PyTorch model of the shape of Llama 7B takes, and how much memory beside its weights.

    python benchmarks/torch_import.py [--layers N] [--real] [--out FILE.json]

Needs torch, transformers and capgraph. Without --real the weights are on the device `meta` and hold nothing; with it
they are random bf16 numbers in main memory, about 0.4 GB a layer and 0.5 GB besides. It stops where they would take
more than four fifths of the memory that is free. Before the clock starts, a tiny model is imported, so that what is
read in at first use is in no number.

* seconds: from the module to the imported graph, with varying batch and length, by the wall clock.
* beside: how far the resident set rose above where it was before the import, at its highest, read a hundred times a
  second. The weights exist before and are not in it; a second copy of them would be.
"""

import argparse
import datetime
import json
import os
import platform
import sys
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import transformers
from capgraph.executors.memory import resident_bytes
from capgraph.frontends.torch.exported import from_torch

GB = 1e9
SHAPE = {"hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "vocab_size": 32000}
TINY = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": 128}


class Peak:
    """The largest resident set while it is entered, in bytes above what it was at first."""

    def __enter__(self) -> "Peak":
        self.before = self.most = resident_bytes() or 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._ended.wait(0.01):
            self.most = max(self.most, resident_bytes() or 0)

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.most = max(self.most, resident_bytes() or 0)

    @property
    def beside(self) -> int:
        return self.most - self.before


def llama(layers: int, **shape: int) -> Any:
    """A decoder in bf16 whose weights hold nothing."""
    with torch.device("meta"):
        config = transformers.LlamaConfig(num_hidden_layers=layers, **shape)
        return transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval().requires_grad_(False)


def filled(module: Any) -> Any:
    """The module in main memory, with small random weights."""
    module = module.to_empty(device="cpu")
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.uniform_(-0.02, 0.02)
    return module


def imported(module: Any) -> Any:
    tokens = torch.zeros(2, 8, dtype=torch.int64, device=next(module.parameters()).device)
    dynamic = {"input_ids": {0: "batch", 1: "length"}, "use_cache": None}
    return from_torch(module, (), {"input_ids": tokens, "use_cache": False}, dynamic_shapes=dynamic)


def free_bytes() -> int:
    """The main memory that can be had without swapping."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def measure(layers: int, is_real: bool) -> dict[str, Any]:
    """Seconds and bytes of one import."""
    module = llama(layers, **SHAPE)
    weights = sum(parameter.nbytes for parameter in module.parameters())
    if is_real and weights > 0.8 * free_bytes():
        raise SystemExit(
            f"{layers} layers are {weights / GB:.1f} GB, of {free_bytes() / GB:.1f} GB: give less --layers"
        )
    tiny = llama(1, **TINY)
    imported(filled(tiny) if is_real else tiny)
    module = filled(module) if is_real else module
    with Peak() as peak:
        began = time.perf_counter()
        model = imported(module)
        seconds = time.perf_counter() - began
    found = {"seconds": round(seconds, 2), "weights": weights, "beside": peak.beside, "nodes": len(model.graph)}
    return {"layers": layers, "weights are": "random bf16" if is_real else "meta", **found}


def report(result: dict[str, Any]) -> dict[str, Any]:
    """The numbers with how and where they were got."""
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "method": __doc__,
        "versions": {package: metadata.version(package) for package in ("torch", "transformers")},
        "machine": {"system": platform.system(), "python": platform.python_version(), "cores": os.cpu_count()},
        "result": result,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Time and memory of importing a model of the shape of Llama 7B.")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--real", action="store_true", help="random bf16 weights in main memory, not meta ones")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="adds the result to those in this file")
    options = parser.parse_args()
    result = measure(options.layers, options.real)
    print(
        f"{result['layers']} layers, {result['weights are']} weights of {result['weights'] / GB:.2f} GB:"
        f" {result['seconds']:.1f} s, {result['beside'] / GB:.3f} GB beside the weights, {result['nodes']} nodes"
    )
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        earlier = json.loads(options.out.read_text())["results"] if options.out.exists() else []
        whole = report(result)
        whole["results"] = [*earlier, whole.pop("result")]
        options.out.write_text(json.dumps(whole, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
