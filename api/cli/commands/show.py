"""`capgraph show`: a model as text, what it is made of, or the plan of a recorded program."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...comparing.tables import Cell, Table, json_text
from .arguments import add_dims
from .base import Command

if TYPE_CHECKING:
    from ...ir.graph import Graph


def configure(parser: ArgumentParser) -> None:
    """The arguments of `capgraph show`."""
    parser.add_argument("model", metavar="MODEL", type=Path, help="an ONNX file")
    parser.add_argument("--stats", action="store_true", help="counts, parameters, FLOPs and bytes by op, not the text")
    parser.add_argument("--plan", action="store_true", help="the plan of a recorded program: buffers, segments, steps")
    parser.add_argument(
        "--device", default="host", help="of the plan: host (the default) or cuda, which need not be there"
    )
    parser.add_argument("--origins", action="store_true", help="say in the text where each node comes from")
    add_dims(parser)


def run(arguments: Namespace) -> None:
    """Writes the text form, the statistics or the plan of a model."""
    from ...inputs import check_dims
    from ...sources import load_model

    loaded = load_model(arguments.model)
    check_dims(loaded.graph, dict(arguments.dim))
    if arguments.stats:
        report = _statistics(loaded.graph, dict(arguments.dim))
        print(json_text(report) if arguments.json else _statistics_text(report))
        return
    text = _plan_text(loaded.graph, arguments) if arguments.plan else _text_form(loaded.graph, arguments.origins)
    print(json_text({"name": loaded.graph.name, "notes": loaded.notes, "text": text}) if arguments.json else text)


def _text_form(graph: "Graph", origins: bool) -> str:
    from ...ir.text.printer import print_graph

    return print_graph(graph, origins=origins).removesuffix("\n")


def _plan_text(graph: "Graph", arguments: Namespace) -> str:
    """The plan for the sizes that are given, small ones elsewhere."""
    from ...ir.text.plan_printer import print_plan
    from ...passes.framework.numeric import draw_sizes
    from ..plans import shown_plan

    sizes = {**draw_sizes(graph), **dict(arguments.dim)}
    return print_plan(*shown_plan(graph, arguments.device, sizes)).removesuffix("\n")


def _statistics(graph: "Graph", sizes: Mapping[str, int]) -> dict[str, Any]:
    """The statistics as JSON may hold them: costs are numbers, or text where symbols are left in them."""
    from ...comparing.tables import bound_cost
    from ...ir.analysis import statistics

    facts = asdict(statistics(graph))
    for row in (facts, *facts["ops"]):
        for cost in ("flops", "bytes"):
            row[cost] = bound_cost(row[cost], sizes)
    return facts


def _statistics_text(facts: Mapping[str, Any]) -> str:
    from ...executors.memory import size_text

    rows: list[list[Cell]] = [
        [row["op"], row["nodes"], row["flops"], row["bytes"], "foreign" if row["is_foreign"] else None]
        for row in sorted(facts["ops"], key=lambda row: -row["flops"] if isinstance(row["flops"], int) else 0)
    ]
    rows.append(["total", facts["nodes"], facts["flops"], facts["bytes"], None])
    symbols = f", symbols {', '.join(facts['symbols'])}" if facts["symbols"] else ""
    head = (
        f"graph {facts['name']}: {facts['nodes']:,} nodes, {facts['regions']:,} regions, depth {facts['depth']:,}, "
        f"{facts['parameters']:,} parameters ({size_text(facts['parameter_bytes'])}){symbols}"
    )
    return f"{head}\n\n{Table(('op', 'nodes', 'FLOPs', 'bytes', ''), rows).text()}"


COMMAND = Command("show", "Show a model in text form, what it is made of, or its plan.", configure, run)
