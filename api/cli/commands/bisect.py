"""`capgraph bisect`: which rewrite of which pass broke a model, and the smallest graph that shows it."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...comparing.tables import json_text
from ...executors.progress import Progress
from .arguments import Command, add_dims, add_inputs, add_passes, chosen_pipeline, positive, size

if TYPE_CHECKING:
    from ...ir.graph import Graph
    from ...passes.framework.bisect import Culprit
    from ...passes.framework.numeric import Samples

_SHOWN_NODES = 40
_FILES = ("before.txt", "after.txt")


def configure(parser: ArgumentParser) -> None:
    """The arguments of `capgraph bisect`."""
    parser.add_argument("model", metavar="MODEL", type=Path, help="an ONNX file")
    add_passes(parser)
    parser.add_argument("--executor", choices=("graph",), help="also the passes to the plan of a recorded program")
    parser.add_argument("--device", default="host", help='where that records: "host" (default) or "cuda"; needs no GPU')
    parser.add_argument(
        "--sizes", metavar="NAME=N", type=size, action="append", default=[], help="a size that it is planned for"
    )
    parser.add_argument("--dump", metavar="DIR", type=Path, help="write the graph before and after every pass there")
    parser.add_argument("--output", metavar="DIR", type=Path, help="write the small graph before and after there")
    add_inputs(parser)
    parser.add_argument("--draws", metavar="N", type=positive, default=2, help="how many sets of inputs (default 2)")
    add_dims(parser)


def run(arguments: Namespace) -> None:
    """Looks for the first wrong rewrite and says where it is."""
    from ...passes.framework.bisect import bisect
    from ...sources import load_model
    from ..files import refuse_harming
    from .show import stages_to_plan

    pipeline = chosen_pipeline(arguments) if arguments.executor is None else None
    if arguments.output is not None and arguments.output.is_dir():
        refuse_harming(arguments.model, [arguments.output / name for name in _FILES])
    with Progress(f"reading {arguments.model.name}") as progress:
        graph = load_model(arguments.model).graph
        sizes = _sizes(graph, arguments)
        if pipeline is None:
            pipeline = chosen_pipeline(arguments, arguments.device, stages_to_plan(arguments.device, sizes))
        progress.advance(f"running {arguments.model.name}")
        samples = _samples(graph, arguments, sizes)
        found = bisect(graph, pipeline, samples, progress=progress.advance, dump=arguments.dump)
    files = _written(found, arguments.output) if found is not None and arguments.output is not None else []
    facts = {
        "model": str(arguments.model),
        "pipeline": str(pipeline),
        "draws": arguments.draws,
        "found": None if found is None else _facts(found),
        "files": [str(path) for path in files],
    }
    print(json_text(facts) if arguments.json else _text(facts))


def _sizes(graph: "Graph", arguments: Namespace) -> dict[str, int]:
    """The sizes to be planned for, small ones where none are given; none where nothing is planned.

    Raises `UnsupportedError` for what only a plan takes.
    """
    from ...ir.errors import UnsupportedError
    from ...passes.framework.numeric import draw_sizes

    if arguments.executor is None:
        if arguments.sizes or arguments.device != "host":
            raise UnsupportedError("--sizes and --device are for plans", remedy="--executor graph")
        return {}
    known = draw_sizes(graph)
    for name, _ in arguments.sizes:
        if name not in known:
            raise UnsupportedError(f"no input has a size {name}", remedy=f"the sizes are: {', '.join(known) or 'none'}")
    return {**known, **dict(arguments.dim), **dict(arguments.sizes)}


def _samples(graph: "Graph", arguments: Namespace, planned: Mapping[str, int]) -> "Samples":
    from ...comparing.fitting_inputs import DrawnInputs, evaluator, fitting_inputs, in_order
    from ...ir.errors import ExecutionError, UnsupportedError
    from ...passes.framework.numeric import Samples

    drawing = DrawnInputs(arguments.draws, {**dict(arguments.dim), **planned}, dict(arguments.input))
    try:
        _, sets = fitting_inputs(graph, drawing, evaluator(graph))
        return Samples.of(graph, [in_order(graph, each) for each in sets])
    except (ExecutionError, UnsupportedError) as error:
        remedy = "a model without random ops, on inputs that it runs on: --input NAME=SOURCE, --dim NAME=N"
        raise UnsupportedError(error.message, where=error.where, remedy=remedy) from error


def _facts(found: "Culprit") -> dict[str, Any]:
    from ...ir.text.printer import print_graph

    return {
        "pass": str(found.guilty),
        "rewrite": found.rewrite.rule,
        "node": found.rewrite.node,
        "number": found.number,
        "problem": found.problem,
        "nodes": len(found.before),
        "before": print_graph(found.before),
        "after": None if found.after is None else print_graph(found.after),
    }


def _written(found: "Culprit", folder: Path) -> list[Path]:
    from ...ir.errors import ResourceError
    from ...ir.text.printer import print_graph

    graphs = dict(zip(_FILES, (found.before, found.after), strict=True))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, graph in graphs.items():
            if graph is not None:
                (folder / name).write_text(print_graph(graph, origins=True))
    except OSError as error:
        raise ResourceError(f"the graphs cannot be written: {error}", remedy="choose another --output") from error
    return [folder / name for name, graph in graphs.items() if graph is not None]


def _text(facts: Mapping[str, Any]) -> str:
    found = facts["found"]
    if found is None:
        many = "s" if facts["draws"] > 1 else ""
        return f"no rewrite of {facts['pipeline']} changes what the model means on {facts['draws']} drawn input{many}"
    lines = [
        f"pass {found['pass']}, rule {found['rewrite']}, rewrite {found['number']:,} of the pipeline",
        f"at {found['node']}",
        found["problem"],
        *(f"wrote {path}" for path in facts["files"]),
    ]
    if found["nodes"] <= _SHOWN_NODES:
        after = found["after"] or "the pass raises\n"
        lines += ["", "before:", found["before"].rstrip(), "", "after:", after.rstrip()]
    elif not facts["files"]:
        lines.append(f"the graph that shows it has {found['nodes']:,} nodes: write it with --output DIR")
    return "\n".join(lines)


COMMAND = Command(
    "bisect", "Find the rewrite that broke a model, and the smallest graph that shows it.", configure, run
)
