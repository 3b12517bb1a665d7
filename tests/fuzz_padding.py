"""Fuzzing of padding: random graphs at sizes from 0, padded and exact, as the meaning of ops and as recorded programs.

    python -m tests.fuzz_padding [--on meaning|host|cuda] [--graphs N] [--seed N] [--processes N] [--minutes N]
    python -m tests.fuzz_padding [--on meaning|host|cuda] --again SEED ... [--processes N]

`meaning` sends garbage through every graph of which the analysis says that a dim may be padded; `host` and `cuda` serve
calls of sizes between buckets and compare them with eager execution. A call that fails exactly must fail padded too,
unless passes took the node away that fails: a reshape made static, one of which only the size is read, or at a size
only the emptiness. Then, and where a size that is 0 divides, the optimized graph says what is right, and the call is
counted.
What differs is printed with its seed; the exit status is 1 when anything did.
"""

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import capgraph
import numpy as np
from capgraph.executors.base import Executable
from capgraph.executors.replay.routing import input_symbols
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.analysis import op_counts
from capgraph.ir.constant import Array
from capgraph.ir.errors import CapgraphError
from capgraph.ir.evaluate import FAILURES, run_meaning
from capgraph.ir.graph import Graph, Value
from capgraph.ir.op import Trait
from capgraph.passes.cleanup.redundancy import EliminateDeadCode, FoldConstants
from capgraph.passes.framework.exactness import Exactness
from capgraph.passes.framework.numeric import answered_difference, difference
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.planning.specialize import specialize

from tests.comparable import Held, held_outputs, rounding_of
from tests.passes.planning.padding.poison import leaks
from tests.strategies.graphs import random_arrays, random_graph, random_inputs

LARGEST = 8
TERMS = {"host": 512, "cuda": 2048}
"""Roundings that results may differ by: sums in another order, functions of a GPU that are a few roundings off."""
SPECTRA = frozenset({"dft", "stft"})
"""Of infinities, which are drawn, each algorithm makes something else."""
DIVISIONS = frozenset({"div", "mod", "fmod"})
DRAWN_CALLS = 4
CHUNK = 25
_CLEAN_UP = Pipeline(((EliminateDeadCode(),),))
_FOLDED = Pipeline(((FoldConstants(), EliminateDeadCode()),))

Sizes = dict[str, int]


def calls(graph: Graph, seed: int) -> Iterator[tuple[Sizes, list[Array]]]:
    """Inputs of drawn sizes, and of each with one dim empty, twice each: the first of a bucket runs eagerly."""
    for call in range(DRAWN_CALLS):
        sizes, arrays = random_inputs(graph, 1000 * call + seed)
        yield sizes, arrays
        for name in sizes:
            emptied = {**sizes, name: 0}
            arrays_of_none = random_arrays(graph, emptied, seed) if sizes[name] else None
            if arrays_of_none is not None:
                yield emptied, arrays_of_none


def broken_meaning(graph: Graph, seed: int, tally: Counter[str]) -> Iterator[str]:
    """What garbage behind the real elements reaches."""
    _CLEAN_UP.run(graph)
    for sizes, arrays in calls(graph, seed):
        tally["calls"] += 1
        tally["empty calls"] += 0 in sizes.values()
        found = leaks(graph, sizes, arrays, seed)
        if found:
            yield found


def broken_program(graph: Graph, seed: int, tally: Counter[str], *, device: str) -> Iterator[str]:
    """Where a recorded program and eager execution differ."""
    dynamic = dict.fromkeys(input_symbols(graph), (0, LARGEST))
    buckets: Mapping[str | tuple[str, ...], Sequence[int]] = dict.fromkeys(dynamic, (4, LARGEST))
    program = capgraph.optimize(graph, executor="graph", device=device, dynamic=dynamic, buckets=buckets, tune=False)
    imported, optimized = EagerExecutor().compile(graph), EagerExecutor().compile(program.graph)
    lost: set[str] = set()
    for sizes, arrays in calls(graph, seed):
        inputs = {value.name: array for value, array in zip(graph.inputs, arrays, strict=True)}
        tally["calls"] += 1
        padded = program.stats().counters.padded_calls
        failing = _failing_op(imported, inputs)
        is_gone = failing != "" and failing not in op_counts(program.graph) and not _failing_op(optimized, inputs)
        is_gone |= 0 in sizes.values() and divides_by_empty(graph, sizes, arrays)
        oracle = optimized if is_gone else imported
        if failing and not is_gone and not _failing_op(program, inputs):
            oracle = _without(failing, program.graph, sizes) or imported
        tally["defined by passes"] += oracle is not imported
        held = None if device == "host" else held_outputs(graph, arrays, sizes)
        lost |= set() if held is None else _lost(graph, held)
        if held is not None:
            tally["outputs"] += len(graph.outputs)
            tally["outputs held to their elements"] += len(held.close)
            tally["outputs held to how they answer"] += len(held.answering)
        found = [*_differences(program, oracle, inputs, TERMS[device], held)]
        if found and device == "host":  # padding adds in another order, too
            found = [*_differences(program, oracle, inputs, TERMS[device], held_outputs(graph, arrays, sizes))]
        yield from (f"at {sizes}: {each}" for each in found)
        padded = program.stats().counters.padded_calls - padded
        tally["padded calls"] += padded
        tally["padded empty calls"] += padded and 0 in sizes.values()
    stats = program.stats()
    refusals = [*stats.refused, *(str(bucket.refusals) for bucket in stats.buckets if bucket.refusals)]
    if refusals and device == "host":
        lost |= set().union(*(_lost(graph, held_outputs(graph, arrays, sizes)) for sizes, arrays in calls(graph, seed)))
    yield from (each for each in refusals if not any(f"output {name} " in each for name in lost))
    program.close()


def _lost(graph: Graph, held: Held) -> set[str]:
    """The outputs that a call is not held to: behind an overflow, the order of a sum says whether they are finite."""
    return {*graph.output_names} - held.close.keys() - held.answering


def _without(failing: str, optimized: Graph, sizes: Sizes) -> Executable | None:
    """The graph as it is planned at these sizes, where that lacks the op `failing`."""
    planned = specialize(optimized, sizes)
    _FOLDED.run(planned)
    return None if failing in op_counts(planned) else EagerExecutor().compile(planned)


def divides_by_empty(graph: Graph, sizes: Sizes, arrays: Sequence[Array]) -> bool:
    """Whether integers are divided by a size that is 0: NumPy says 0, and passes what the quotient of sizes is."""
    values: dict[Value, Any] = dict(zip(graph.inputs, arrays, strict=True))
    constant: set[Value] = set()
    known: set[Value] = set()  # made of sizes, and constants
    for node in graph.nodes:
        operands = [None if value is None else values[value] for value in node.inputs]
        by = node.operands[1] if node.op.name in DIVISIONS else None
        if by in known and by.tensor.dtype.is_integer and not np.all(values[by]):
            return True
        if any(_divides_sizes(body, any(value in known for value in node.operands)) for body in node.regions.values()):
            return True
        try:
            with np.errstate(all="ignore"):
                results = run_meaning(node, operands, sizes)
        except FAILURES:
            return False
        values.update(zip(node.outputs, results, strict=True))
        if node.op.name == "constant":
            constant.update(node.outputs)
        elif node.op.has(Trait.SIZES):
            known.update(node.outputs)
        elif node.operands and known.union(constant).issuperset(node.operands):
            (constant if known.isdisjoint(node.operands) else known).update(node.outputs)
    return False


def _divides_sizes(body: Graph, takes_sizes: bool) -> bool:
    if DIVISIONS.isdisjoint(op_counts(body)):
        return False
    return takes_sizes or any(node.op.has(Trait.SIZES) for node in body.nodes)


def _failing_op(program: Any, inputs: dict[str, Any]) -> str:
    """The op at which a call fails; empty where it does not, or fails elsewhere."""
    try:
        program.run(inputs)
    except CapgraphError as error:
        found = re.search(r" = ([\w.]+)\(", error.where or "")
        return found[1] if found else ""
    return ""


def _differences(program: Any, oracle: Any, inputs: dict[str, Any], terms: int, held: Held | None) -> Iterator[str]:
    """Differences of outputs, as far as they are `held` to anything."""
    try:
        expected = oracle.run(inputs)
    except CapgraphError as error:
        try:
            program.run(inputs)
        except CapgraphError:
            return
        yield f"it does not fail: {error}"
        return
    for name, given in program.run(inputs).items():
        wanted = expected[name]
        if held is not None and held.sample is not None and name in held.answering:
            response = held.sample.responses[list(expected).index(name)]
            problem = answered_difference(wanted, given, Exactness.ROUNDING, terms, response)
            if problem:
                yield f"output {name} answers otherwise: {problem}"
            continue
        if held is not None and name not in held.close:
            if (given.dtype, given.ndim) != (wanted.dtype, wanted.ndim):
                yield f"output {name} is {given.dtype} of rank {given.ndim}, not {wanted.dtype} of rank {wanted.ndim}"
            continue
        coarser = max(1.0, held.close[name] / rounding_of(wanted.dtype)) if held is not None else 1.0
        problem = difference(wanted, given, Exactness.ROUNDING, int(terms * coarser))
        if problem:
            yield f"output {name} {problem}"


def tried(seeds: Sequence[int], *, on: str, nodes: int) -> tuple[Counter[str], list[str]]:
    """The graphs of some seeds: what was done, and what differed."""
    tally: Counter[str] = Counter()
    problems: list[str] = []
    for seed in seeds:
        graph = random_graph(seed, max_nodes=nodes)
        if any(node.op.has(Trait.IMPURE) for node in graph.nodes):
            tally["random ones left out"] += 1
            continue
        if on == "cuda" and any(node.op.name in SPECTRA for node in graph.nodes):
            tally["spectra left out"] += 1
            continue
        tally["graphs"] += 1
        try:
            found = broken_meaning(graph, seed, tally) if on == "meaning" else None
            problems += [f"seed {seed}: {each}" for each in found or broken_program(graph, seed, tally, device=on)]
        except CapgraphError as error:
            problems.append(f"seed {seed}: {error}")
    return tally, problems


def main(argv: Sequence[str] | None = None) -> int:
    options = _arguments().parse_args(argv)
    end = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    work = partial(tried, on=options.on, nodes=options.nodes)
    tally: Counter[str] = Counter()
    problems: list[str] = []
    last = options.seed + options.graphs
    chunks = [range(first, min(first + CHUNK, last)) for first in range(options.seed, last, CHUNK)]
    chunks = [range(seed, seed + 1) for seed in options.again] or chunks
    with ProcessPoolExecutor(options.processes) as pool:
        rounds = pool.map(work, chunks) if options.processes > 1 else map(work, chunks)
        for chunk, (done, found) in zip(chunks, rounds, strict=True):
            tally += done
            problems += found
            print("\n".join(found), end="\n" if found else "", flush=True)
            if end is not None and time.monotonic() > end:
                print(f"stopped after seed {chunk[-1]}")
                pool.shutdown(cancel_futures=True)
                break
    print(f"on {options.on}: {dict(tally)}, {len(problems)} differences")
    return 1 if problems else 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Fuzzing of padding.")
    parser.add_argument("--on", choices=("meaning", "host", "cuda"), default="meaning")
    parser.add_argument("--graphs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--again", type=int, nargs="*", default=[], help="these seeds alone")
    parser.add_argument("--nodes", type=int, default=8, help="the most nodes of a graph")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="stop after this time (default: when all graphs are done)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
