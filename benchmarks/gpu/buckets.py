"""Device memory of many recorded buckets beside that of the largest alone, and beside torch.compile's recorded graphs.

    python -m benchmarks.gpu.buckets [--buckets 64] [--compiled 8] [--out FOLDER]

BERT in f16 (benchmarks/models.py), dynamic batch. Each case runs in a process of its own: what the driver has given out
before the program is made, and after every bucket was captured, is asked of the driver. Findings go to
FOLDER/buckets.json.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAME = "bert"
DTYPE = "float16"


def used_bytes() -> int:
    """What is given out on the device, to whomever."""
    import torch

    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free


def ours(sizes: Sequence[int]) -> dict[str, Any]:
    """A program with a bucket for each batch size, all captured up front."""
    import capgraph

    graph = dynamic_graph()
    before, start = used_bytes(), time.perf_counter()
    program = capgraph.optimize(
        graph,
        executor="graph",
        device="cuda",
        mode="full",
        dynamic={"batch": (min(sizes), max(sizes)), "length": (128, 128)},
        buckets={"batch": list(sizes), "length": [128]},
        capture={"up_front": True, "progress": None},
        tune=False,
    )
    stats = program.stats()
    return {
        "seconds": time.perf_counter() - start,
        "bytes": used_bytes() - before,
        "arena_bytes": stats.arena_bytes,
        "recording_bytes": stats.recording_bytes,
        "buckets": len(stats.buckets),
        "refused": list(stats.refused),
    }


def compiled(sizes: Sequence[int]) -> dict[str, Any]:
    """torch.compile in mode reduce-overhead, called at each batch size."""
    import numpy as np
    import torch

    from benchmarks import models

    module = models.build(NAME).to(torch.float16).cuda()
    before, start = used_bytes(), time.perf_counter()
    quick = torch.compile(module, mode="reduce-overhead", dynamic=False)
    torch._dynamo.config.cache_size_limit = 1 + len(sizes)
    for size in sorted(sizes, reverse=True):
        tokens = torch.from_numpy(np.zeros((size, 128), np.int64)).cuda()
        with torch.no_grad():
            for _ in range(3):
                torch.compiler.cudagraph_mark_step_begin()
                quick(tokens)
    return {"seconds": time.perf_counter() - start, "bytes": used_bytes() - before, "buckets": len(sizes)}


def dynamic_graph() -> Any:
    """The model in f16 with a symbolic batch and length."""
    import numpy as np
    import torch
    from capgraph.sources import load_model

    from benchmarks import models

    from .subjects import exported

    module = models.build(NAME).to(torch.float16)
    example = {"input_ids": np.zeros(models.TRACE_SIZE, np.int64)}
    symbols = {name: torch.export.Dim(name) for name in ("batch", "length")}
    return load_model(exported(module, example, ({0: symbols["batch"], 1: symbols["length"]},))).graph


CASES = {"ours": ours, "compiled": compiled}


def run_case(case: str, sizes: Sequence[int]) -> dict[str, Any]:
    """One case in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.gpu.buckets", "--case", case, *map(str, sizes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr[-2000:]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--buckets", type=int, default=64)
    parser.add_argument("--compiled", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("build") / "benchmarks")
    parser.add_argument("--case", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(CASES[options.case[0]](list(map(int, options.case[1:])))))
        return 0
    sizes = list(range(1, options.buckets + 1))
    few = sizes[-1 :: -max(1, len(sizes) // max(1, options.compiled))][: options.compiled]
    found = {"largest": run_case("ours", sizes[-1:])}
    print(json.dumps(found, indent=1), flush=True)
    found["all"] = run_case("ours", sizes)
    print(json.dumps(found, indent=1), flush=True)
    if few:
        found["compiled"] = run_case("compiled", few)
    from .peers import environment  # takes memory of the device, so not before everything is measured

    found["environment"] = environment()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "buckets.json").write_text(json.dumps(found, indent=1) + "\n")
    allowed = 1.1 * found["largest"].get("bytes", 0) + found["all"].get("recording_bytes", 0)
    print(json.dumps(found.get("compiled"), indent=1))
    print(f"{len(sizes)} buckets take {found['all'].get('bytes')} bytes; 1.1 of the largest and graphs: {allowed:.0f}")
    return 0 if found["all"].get("bytes", allowed + 1) <= allowed else 1


if __name__ == "__main__":
    sys.exit(main())
