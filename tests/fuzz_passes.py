"""Fuzzing of all passes: random graphs without end, or for `--minutes`; what breaks a promise is kept.

    python -m tests.fuzz_passes [--minutes N] [--seed N] [--sources NAME ...] [--passes NAME ...] [--keep]

Each round takes one seed through every source of graphs. A failure is printed with its seed, once for each kind of
failure, and with `--keep` written to `tests/passes/regressions/`, which `make test` replays. The exit status is 1 when
anything was found.
"""

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence

from capgraph.ir.analysis.extract import extract
from capgraph.ir.errors import CapgraphError
from capgraph.ir.graph import Graph
from capgraph.ir.verify import verify
from capgraph.passes.framework.pipeline import Pipeline

from tests.passes.regressions import keep, text_of
from tests.passes.semantics import broken_promises, pipelines
from tests.passes.sources import SOURCES


def main(argv: Sequence[str] | None = None) -> int:
    options = _arguments().parse_args(argv)
    chosen = {name: each for name, each in pipelines().items() if not options.passes or name in options.passes}
    seed = options.seed if options.seed is not None else time.time_ns() % 10**9
    print(f"fuzzing {', '.join(options.sources)} with {len(chosen)} pipelines from seed {seed}", flush=True)
    end = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    kinds: Counter[str] = Counter()
    tried = 0
    while end is None or time.monotonic() < end:
        for source in options.sources:
            tried += 1
            _try(source, seed, chosen, kinds, options.keep)
        seed += 1
    print(f"{tried} graphs, {kinds.total()} failures of {len(kinds)} kinds, up to seed {seed}")
    for kind, count in kinds.most_common():
        print(f"  {count} x {kind}")
    return 1 if kinds else 0


def _try(source: str, seed: int, chosen: dict[str, Pipeline], kinds: Counter[str], keeps: bool) -> None:
    graph = SOURCES[source](seed)
    for name, problem in broken_promises(graph, seed, chosen).items():
        kind = f"{name}: {re.sub(r'[-+.e0-9]+', '#', problem.splitlines()[0])[:80]}"
        kinds[kind] += 1
        if kinds[kind] > 1:
            continue
        small = shrunk(graph, seed, name, chosen[name])
        remarks = (f"{name}, seed {seed} of {source!r}", broken_promises(small, seed, {name: chosen[name]})[name])
        print(text_of(small, *remarks), flush=True)
        if keeps:
            print(f"kept as {keep(small, f'{name} {source} {seed}', *remarks)}", flush=True)


def shrunk(graph: Graph, seed: int, name: str, pipeline: Pipeline) -> Graph:
    """A part of `graph` on which the pipeline still breaks a promise: outputs and nodes go, one at a time."""
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(graph):
            if len(smaller) + len(smaller.outputs) < len(graph) + len(graph.outputs) and broken_promises(
                smaller, seed, {name: pipeline}
            ):
                graph, progress = smaller, True
                break
    return graph


def _smaller(graph: Graph) -> list[Graph]:
    """Graphs with one output, and graphs in which the results of one node have become inputs, where they verify.

    A part whose inputs no longer bind a symbol that it mentions would fail by itself.
    """
    parts: list[Graph] = []
    if len(graph.outputs) > 1:
        parts += [extract(graph, [value], ())[0] for value in graph.outputs]
    for node in graph.reversed_nodes:
        if not any(value.is_graph_output for value in node.outputs):
            parts.append(extract(graph, graph.outputs, set(node.outputs))[0])
    return [part for part in parts if _verifies(part)]


def _verifies(graph: Graph) -> bool:
    try:
        verify(graph)
    except CapgraphError:
        return False
    return True


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Fuzzing of all passes.")
    parser.add_argument("--minutes", type=float, help="stop after this time (default: never)")
    parser.add_argument("--seed", type=int, help="the first seed (default: from the clock)")
    parser.add_argument("--sources", nargs="+", choices=SOURCES, default=list(SOURCES), metavar="NAME")
    parser.add_argument("--passes", nargs="+", default=[], metavar="NAME", help="only these, or only e.g. 'level 1'")
    parser.add_argument("--keep", action="store_true", help="write failures to tests/passes/regressions")
    return parser


if __name__ == "__main__":
    sys.exit(main())
