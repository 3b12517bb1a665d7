"""What ONNX Runtime's session options are worth on the CPU, on our optimized graph.

    python benchmarks/ort_options.py MODEL.onnx [NAME=SIZE ...]

All sessions run in turns on one thread, so that they meet the same state of the machine and no pool of threads spins
while another works. Each line is the median of the paired ratios to the default; "default again" shows the noise.
"""

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import onnxruntime as ort
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.inputs import gather_inputs
from capgraph.passes.catalog import level_pipeline
from capgraph.passes.framework.numeric import draw_sizes
from capgraph.sources import load_model

SECONDS = 20.0
_LEVELS = ort.GraphOptimizationLevel
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "default again": {},
    "no arena": {"enable_cpu_mem_arena": False},
    "no memory pattern": {"enable_mem_pattern": False},
    "denormals as zero": {"entries": {"session.set_denormal_as_zero": "1"}},
    "extended optimizations": {"graph_optimization_level": _LEVELS.ORT_ENABLE_EXTENDED},
    "basic optimizations": {"graph_optimization_level": _LEVELS.ORT_ENABLE_BASIC},
}
FUSIONS = ("AttentionFusion", "BiasGeluFusion", "GeluFusionL2", "MatmulTransposeFusion", "SkipLayerNormFusion")


def session(model: bytes, options: dict[str, Any], disabled: list[str] | None = None) -> Any:
    """A session on one thread."""
    chosen = ort.SessionOptions()
    chosen.log_severity_level = 4
    chosen.intra_op_num_threads = 1
    for name, value in options.items():
        if name != "entries":
            setattr(chosen, name, value)
    for name, value in options.get("entries", {}).items():
        chosen.add_session_config_entry(name, value)
    return ort.InferenceSession(model, chosen, providers=["CPUExecutionProvider"], disabled_optimizers=disabled)


def main(path: Path, sizes: dict[str, int]) -> None:
    """Times all sessions and writes the ratios."""
    graph = load_model(path).graph
    level_pipeline(2).run(graph, check="none")
    given = gather_inputs(graph, {}, {**draw_sizes(graph), **sizes}, 0)
    model = export_model(graph, check=False, value_info=False, dialect=Dialect.STANDARD).SerializeToString()
    sessions = {name: session(model, options) for name, options in OPTIONS.items()}
    sessions |= {f"without {name}": session(model, {}, [name]) for name in FUSIONS}
    sessions["as it came"] = session(path.read_bytes(), {})
    feeds = {name: each.value for name, each in given.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sessions}
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for name, each in sessions.items():
            start = time.perf_counter()
            each.run(None, feeds)
            seconds[name].append(time.perf_counter() - start)
    default = seconds["default"]
    print(f"{path.name}: {1e3 * statistics.median(default):.3f} ms, {len(default)} runs")
    for name, times in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(times, default, strict=True))
        print(f"  {name:<30} {ratio:.3f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), {name: int(size) for name, size in (text.split("=") for text in sys.argv[2:])})
