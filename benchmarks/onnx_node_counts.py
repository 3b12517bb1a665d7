"""How many nodes optimizers leave of any ONNX files, of those that all of them keep right.

    python benchmarks/onnx_node_counts.py PATH ... [--seconds N] [--processes N] [--out FILE.json]

A file counts if onnxslim, onnxoptimizer, onnxscript and both targets of `capgraph optimize` give what plain ONNX
Runtime gives, on inputs that are drawn (`onnx_files.py` says what is right) and on constant ones: a norm that has lost
its epsilon divides 0 by 0 there. Files whose outputs are drawn anew at each call cannot be compared.
Nodes of subgraphs and of local functions, put in place, count; constants, in whatever form, do not.

Who leaves ONNX Runtime's own operators in a file writes for ONNX Runtime. So where the file has some that the standard
lacks at its opset, the others' result is held against `--for ort`, else against `--for standard`.

The environment is that of requirements/bench.txt and onnxoptimizer 0.4.2.
"""

import argparse
import contextlib
import functools
import importlib
import io
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_files
from capgraph import cli
from capgraph.ir.errors import CapgraphError
from onnx import inliner

OURS = ("standard", "ort")
PEERS = ("onnxslim", "onnxoptimizer", "onnxscript")
ZEROS = dict.fromkeys(("float64", "float32", "float16"), 0.0)
LARGE = {"float64": 1e18, "float32": 1e8, "float16": 2e4}
NODES = "nodes of "  # what a verdict's name is preceded by


# ---- the tools: each reads a file and writes another


def write_with_onnxslim(source: Path, target: Path) -> None:
    onnxslim: Any = importlib.import_module("onnxslim")
    onnx.save(onnxslim.slim(onnx.load(source)), target)


def write_with_onnxoptimizer(source: Path, target: Path) -> None:
    onnxoptimizer: Any = importlib.import_module("onnxoptimizer")
    onnx.save(onnxoptimizer.optimize(onnx.load(source), onnxoptimizer.get_fuse_and_elimination_passes()), target)


def write_with_onnxscript(source: Path, target: Path) -> None:
    onnx_ir: Any = importlib.import_module("onnx_ir")
    optimizer: Any = importlib.import_module("onnxscript.optimizer")
    onnx_ir.save(optimizer.optimize(onnx_ir.load(source)), target)


def write_with_capgraph(source: Path, target: Path, *, dialect: str) -> None:
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = cli.main(["optimize", str(source), "-o", str(target), "--for", dialect])
    if code:
        raise CapgraphError(said.getvalue())


TOOLS: dict[str, Callable[[Path, Path], None]] = {
    "onnxslim": write_with_onnxslim,
    "onnxoptimizer": write_with_onnxoptimizer,
    "onnxscript": write_with_onnxscript,
    **{name: functools.partial(write_with_capgraph, dialect=name) for name in OURS},
}


# ---- what becomes of a file


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of its subgraphs that are not constants."""
    for node in graph.node:
        if node.op_type != "Constant":
            yield node
        for attribute in node.attribute:
            for subgraph in (attribute.g, *attribute.graphs):
                yield from all_nodes(subgraph)


def operators(path: Path) -> Counter[str]:
    """The operators of a model, its local functions put in place."""
    model = onnx.load(path, load_external_data=False)
    if model.functions:
        model = inliner.inline_local_functions(model)
    return Counter(f"{node.domain}.{node.op_type}".lstrip(".") for node in all_nodes(model.graph))


def has_operators_of_runtime(path: Path) -> bool:
    """Whether the standard lacks some operator of the file at the versions that it imports."""
    model = onnx.load(path, load_external_data=False)
    versions = {entry.domain: entry.version for entry in model.opset_import}
    return any(
        node.domain not in ("", "ai.onnx", "ai.onnx.ml")
        or not onnx.defs.has(node.op_type, versions[node.domain], node.domain)
        for node in all_nodes(model.graph)
    )


def filled(inputs: onnx_files.Inputs, number: dict[str, float]) -> onnx_files.Inputs:
    """Inputs of the same shapes whose floats are all one number, which depends on their dtype."""
    return {name: np.full_like(value, number.get(value.dtype.name, value)) for name, value in inputs.items()}


def result_of(path: Path, tool: str, results: Path) -> Path:
    """Where a tool's result for a file is written."""
    return results / f"{path.resolve()}.{tool}.onnx".strip("/").replace("/", "_")


def written_runs(
    path: Path, inputs: onnx_files.Inputs, _folder: Path, *, tool: str, results: Path
) -> onnx_files.Outputs:
    """The outputs of the file that a tool writes; raises AssertionError where it is wrong on constant inputs.

    On large ones, which swallow what is added, results hang on rounding: they have to be finite where the model's are.
    """
    written = result_of(path, tool, results)
    with contextlib.redirect_stdout(io.StringIO()):
        TOOLS[tool](path, written)
    runner = onnx_files.session(written, onnx_files.highest_level(path))
    names = [each.name for each in runner.get_outputs()]
    kept = {each.name for each in runner.get_inputs()}
    plain = onnx_files.reference_session(path)

    def both(given: onnx_files.Inputs) -> Iterator[tuple[Any, Any]]:
        found = runner.run(names, {name: value for name, value in given.items() if name in kept})
        return zip(plain.run(names, given), found, strict=True)

    for old, new in both(filled(inputs, ZEROS)):
        allowed = max(onnx_files.tolerance(old), onnx_files.looseness(path) if onnx_files.tolerance(old) else 0.0)
        assert onnx_files.difference(old, new) <= allowed, "differs on zeros"
    for old, new in both(filled(inputs, LARGE)):
        if isinstance(old, np.ndarray) and old.dtype.kind == "f":
            assert not np.isfinite(old).all() or np.isfinite(new).all(), "is not finite on large constant inputs"
    return [new for _, new in both(inputs)]


def judged(path: Path, seconds: float, results: Path) -> dict[str, Any]:
    """The verdicts on what each tool makes of one file, and the operators of it where all are right."""
    verdicts: dict[str, Any] = dict(onnx_files.judge(path, tuple(TOOLS), seconds))
    if verdicts.get("reference") == "right" and all(verdicts.get(tool) == "right" for tool in TOOLS):
        verdicts |= {NODES + tool: operators(result_of(path, tool, results)) for tool in TOOLS}
        verdicts["target"] = "ort" if has_operators_of_runtime(path) else "standard"
    return verdicts


# ---- the table


def line(found: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """One file that we leave more nodes of than the best of the others, empty for any other."""
    verdicts = found[name]
    if "target" not in verdicts:
        return ""
    best = min(PEERS, key=lambda tool: verdicts[NODES + tool].total())
    mine, theirs = verdicts[NODES + verdicts["target"]], verdicts[NODES + best]
    if mine.total() <= theirs.total():
        return ""
    more, fewer = (", ".join(f"{n} {op}" for op, n in each.items()) or "-" for each in (mine - theirs, theirs - mine))
    return (
        f"{name}: {mine.total()} ({verdicts['target']}), {best} {theirs.total()}; only ours {more}; only theirs {fewer}"
    )


def summary(found: Mapping[str, Mapping[str, Any]]) -> str:
    """How many files count, and of how many of them we leave more nodes, as many, or fewer, than the best other."""
    rows = [f"{len(found)} files; right, of those that ONNX Runtime runs and whose outputs are not drawn:"]
    fixed = [each for each in found.values() if each.get("reference") == "right"]
    rows += [f"{tool:>15}: {sum(each.get(tool) == 'right' for each in fixed)} of {len(fixed)}" for tool in TOOLS]
    for target in OURS:
        signs: Counter[int] = Counter()
        for each in found.values():
            if each.get("target") == target:
                best = min(each[NODES + tool].total() for tool in PEERS)
                signs[int(np.sign(each[NODES + target].total() - best))] += 1
        rows.append(
            f"{target:>15}: {signs.total()} count; {signs[-1]} fewer nodes, {signs[0]} as many, {signs[1]} more"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="PATH", type=Path)
    parser.add_argument("--seconds", type=float, default=120.0, help="limit of one tool on one file")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write all verdicts and operators there")
    arguments = parser.parse_args()
    for name in ("onnxslim", "onnxoptimizer", "onnxscript.optimizer", "onnx_ir"):
        importlib.import_module(name)  # once, not in each file's process
    files, root = onnx_files.models_in(arguments.paths), os.path.commonpath(arguments.paths)
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.processes) as pool:
        results = Path(folder)
        ways = {tool: functools.partial(written_runs, tool=tool, results=results) for tool in TOOLS}
        onnx_files.WAYS.update(ways)
        judge = functools.partial(judged, seconds=arguments.seconds, results=results)
        for path, verdicts in zip(files, pool.map(judge, files), strict=True):
            found[os.path.relpath(path, root)] = verdicts
            if text := line(found, os.path.relpath(path, root)):
                print(text, flush=True)
    print(summary(found))
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
