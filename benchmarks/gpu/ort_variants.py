"""Which operators, options and layouts ONNX Runtime runs best on a GPU: variants of three models, side by side.

    python -m benchmarks.gpu.ort_variants [--models mlp,bert,resnet50] [--out FILE.json]

Every variant is a session in graph mode with fixed addresses. All of a model take turns with the plain session on the
raw model; a line is the median of back-to-back calls and its ratio to the plain one (above 1 is faster).
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime as ort
import torch  # before onnxruntime, which finds CUDA's libraries through it
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.contrib import OPERATORS
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.ir.graph import Graph
from capgraph.passes.catalog import level_pipeline
from capgraph.sources import load_model

from benchmarks.gpu.ort_models import MODELS, Session, exported

ROUNDS = 7


def without(*names: str) -> Any:
    return frozenset(each for each in OPERATORS if each.name not in names)


def written(graph: Graph, dialect: Dialect, operators: Any = OPERATORS, opset: int | None = None) -> bytes:
    model = export_model(graph, opset=opset, check=False, value_info=False, dialect=dialect, operators=operators)
    return model.SerializeToString()


TUNED = {"entries": {"ep.cuda.enable_gemm_auto_tune": "1"}}


def variants(name: str, path: Path) -> dict[str, Callable[[], tuple[Path | bytes, dict[str, Any]]]]:
    """The variants of a model by name: what to load, and with which options."""
    graph = load_model(path).graph
    level_pipeline(2).run(graph, check="none")
    standard, contrib = written(graph, Dialect.STANDARD), written(graph, Dialect.ORT)
    found: dict[str, Any] = {"plain": lambda: (path, {}), "plain again": lambda: (path, {})}
    found["standard"] = lambda: (standard, {})
    found["contrib"] = lambda: (contrib, {})
    if name == "resnet50":
        standard = written(graph, Dialect.STANDARD, opset=20)
        found["standard at 20"] = lambda: (standard, {})
        for search in ("HEURISTIC", "DEFAULT"):
            found[f"search {search}"] = lambda s=search: (standard, {"provider": {"cudnn_conv_algo_search": s}})
        found["nhwc"] = lambda: (standard, {"provider": {"prefer_nhwc": "1"}})
        found["fuse bias"] = lambda: (standard, {"provider": {"fuse_conv_bias": "1"}})
        found["nhwc, fuse bias"] = lambda: (standard, {"provider": {"prefer_nhwc": "1", "fuse_conv_bias": "1"}})
        found["nhwc, heuristic"] = lambda: (
            standard,
            {"provider": {"prefer_nhwc": "1", "cudnn_conv_algo_search": "HEURISTIC"}},
        )
        found["nhwc, fuse bias, heuristic"] = lambda: (
            standard,
            {"provider": {"prefer_nhwc": "1", "fuse_conv_bias": "1", "cudnn_conv_algo_search": "HEURISTIC"}},
        )
        found["plain, nhwc"] = lambda: (path, {"provider": {"prefer_nhwc": "1"}})
        return found
    found["standard, tuned"] = lambda: (standard, TUNED)
    found["contrib, tuned"] = lambda: (contrib, TUNED)
    found["contrib, tunable op"] = lambda: (
        contrib,
        {"provider": {"tunable_op_enable": "1", "tunable_op_tuning_enable": "1"}},
    )
    found["contrib, strict"] = lambda: (contrib, {"provider": {"enable_skip_layer_norm_strict_mode": "1"}})
    found["contrib, basic"] = lambda: (contrib, {"basic": True})
    gelu = written(graph, Dialect.ORT, without("BiasGelu"))
    found["contrib but BiasGelu"] = lambda: (gelu, {})
    norm = written(graph, Dialect.ORT, without("SkipLayerNormalization"))
    found["contrib but SkipLayerNormalization"] = lambda: (norm, {})
    if name == "bert":
        mha = written(graph, Dialect.ORT, without("Attention"))
        found["MultiHeadAttention"] = lambda: (mha, {})
        own = written(graph, Dialect.ORT, without("Attention", "MultiHeadAttention"))
        found["standard Attention"] = lambda: (own, {})
        for kernel in ("1", "2", "3", "9", "11", "4", "8"):
            found[f"contrib, sdpa {kernel}"] = lambda k=kernel: (contrib, {"provider": {"sdpa_kernel": k}})
        for kernel in ("1", "2", "8"):
            found[f"MultiHeadAttention, sdpa {kernel}"] = lambda k=kernel: (mha, {"provider": {"sdpa_kernel": k}})
    else:

        def replayed() -> tuple[bytes, dict[str, Any]]:
            os.environ["ORT_CUDA_GEMM_GRAPH_REPLAY_TUNING"] = "1"
            return contrib, TUNED

        found["contrib, tuned by replay"] = replayed
    return found


def measure(name: str, folder: Path) -> list[dict[str, Any]]:
    """Rows of one model."""
    start = time.perf_counter()
    path, inputs, expected = exported(name, folder)
    print(f"{name}: exported in {time.perf_counter() - start:.1f} s", flush=True)
    runners: dict[str, Session] = {}
    rows: list[dict[str, Any]] = []
    for title, make_variant in variants(name, path).items():
        try:
            model, options = make_variant()
            runners[title] = Session(model, inputs, expected, options)
        except Exception as error:  # noqa: BLE001  # a variant that cannot run is a line
            rows.append({"model": name, "variant": title, "error": str(error).splitlines()[0][:200]})
            print(f"  {title}: {rows[-1]['error']}", flush=True)
        os.environ.pop("ORT_CUDA_GEMM_GRAPH_REPLAY_TUNING", None)
    times: dict[str, list[float]] = {title: [] for title in runners}
    for _ in range(ROUNDS):
        for title, runner in runners.items():
            times[title].append(runner.time())
    plain = times["plain"]
    for title, runner in runners.items():
        ratio = statistics.median(a / b for a, b in zip(plain, times[title], strict=True))
        row = {
            "model": name,
            "variant": title,
            "us": round(statistics.median(times[title]), 1),
            "ratio": round(ratio, 3),
            "error": runner.error,
            "setup_s": round(runner.setup, 1),
        }
        rows.append(row)
        print(
            f"  {title:<38} {row['us']:>8} us  x{ratio:.3f}  error {runner.error:.1e}  set-up {runner.setup:.1f} s",
            flush=True,
        )
    return rows


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--out")
    arguments = parser.parse_args()
    print(torch.cuda.get_device_name(), torch.__version__, ort.__version__, flush=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models.split(","):
            try:
                rows += measure(name, Path(folder))
            except Exception:  # noqa: BLE001
                traceback.print_exc(file=sys.stdout)
            if arguments.out:
                Path(arguments.out).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
