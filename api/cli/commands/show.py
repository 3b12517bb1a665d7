"""`capgraph show`: a model as text, what it is made of, or the plan of a recorded program, made without the device."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...comparing.tables import Cell, Table, json_text
from ...executors.base import check_device, is_cuda, pipeline_for
from ...executors.replay.modes import CaptureMode
from ...executors.replay.options import ReplayOptions
from ...executors.replay.planning import capture_policy
from ...ir.graph import Graph
from ...ir.plan import Plan
from ...ir.target import CUDA, HOST
from ...passes.framework.base import Pass
from ...passes.planning.lowering import Lowering, masking_stages, planning_pipeline
from .arguments import Command, add_dims

if TYPE_CHECKING:
    from ...ir.graph import Graph

_MODE = CaptureMode.FULL_AND_PIECEWISE


def stages_to_plan(device: str, sizes: Mapping[str, int]) -> tuple[tuple[Pass, ...], ...]:
    """The passes of a recorded program on `device` from an optimized graph to the plan of a bucket of these sizes.

    On a GPU those for kernels of capgraph's own on the chip that is taken where there is none.
    """
    policy = capture_policy(ReplayOptions(), _MODE, sizes)
    if is_cuda(device):
        from ...executors.cuda.lower.lowering import Backend
        from ...executors.cuda.programs import lowering_for

        planning = planning_pipeline(sizes, CUDA, policy, lowering_for(Backend(), policy))
    else:
        check_device(device)
        planning = planning_pipeline(sizes, HOST, policy, Lowering())
    return (*masking_stages(sizes), *planning.stages)


Lines = dict[int, tuple[str, ...]]
"""Texts by the index of a step."""


def shown_plan(graph: Graph, device: str, sizes: Mapping[str, int]) -> tuple[Plan, Lines, Lines]:
    """What a recorded program plans for `graph` at level 2; the names of each step's candidates; the first's launches.

    On a GPU those are kernels of capgraph's own on the chip that is taken where there is none; the host has none.
    Raises `UnsupportedError` for a device that is not known, and as `make_plan` does for sizes that do not fit.
    """
    optimized, _ = pipeline_for(2, device).applied(graph)
    if not is_cuda(device):
        from ...executors.host.device import host_planning

        check_device(device)
        return host_planning(ReplayOptions()).of(optimized)(sizes, _MODE), {}, {}
    from ...executors.cuda.kernel_ir.printing import launch_lines
    from ...executors.cuda.lower.lowering import Backend
    from ...executors.cuda.programs import cuda_planning

    backend = Backend()
    plan = cuda_planning(backend, ReplayOptions()).of(optimized)(sizes, _MODE)
    lowered = {each.step.index: each.candidates for each in backend.lower(plan)}
    names = {index: tuple(each.name for each in candidates) for index, candidates in lowered.items()}
    return plan, names, {index: tuple(launch_lines(found[0])) for index, found in lowered.items() if found}


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
