"""`capgraph compare`: a model in several executors, held to the reference evaluator and timed."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...comparing.tables import Cell, Table, json_text
from ...executors.progress import Progress
from .arguments import (
    DEFAULT_LEVEL,
    LEVELS,
    Command,
    add_dims,
    add_inputs,
    add_tolerance,
    check_text,
    chosen_tolerance,
    positive,
)

if TYPE_CHECKING:
    from ...comparing.executor_comparison import ExecutorComparison, ExecutorResult
    from ...ir.graph import Graph

_SHOWN_OUTPUTS = 8
_SHOWN_REMARKS = 6


def configure(parser: ArgumentParser) -> None:
    """The arguments of `capgraph compare`."""
    parser.add_argument("model", metavar="MODEL", type=Path, help="an ONNX file")
    parser.add_argument(
        "other", metavar="OTHER", type=Path, nargs="?", help="a second file, which MODEL is compared with instead"
    )
    parser.add_argument(
        "--executors",
        metavar="NAMES",
        type=_names,
        help="separated by commas, each perhaps with its device: ort,graph@cuda (default: all, see capgraph doctor)",
    )
    add_inputs(parser)
    add_tolerance(parser)
    parser.add_argument("--draws", metavar="N", type=positive, default=2, help="how many sets of inputs (default 2)")
    parser.add_argument("--runs", metavar="N", type=positive, default=20, help="timed runs of each (default 20)")
    parser.add_argument("--level", metavar="N", type=int, choices=LEVELS, default=DEFAULT_LEVEL, help="as in optimize")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write a page with a picture as well")
    add_dims(parser)


def run(arguments: Namespace) -> None:
    """Compares, writes the table, and fails when an output is not close to the reference or an executor cannot run."""
    if arguments.other is not None:
        _compare_models(arguments)
        return
    from ...comparing.executor_comparison import compare
    from ...ir.errors import ExecutionError
    from ..files import refuse_harming

    if arguments.html is not None:
        refuse_harming(arguments.model, [arguments.html])
    with Progress(f"comparing executors on {arguments.model.name}"):
        found = compare(
            arguments.model,
            arguments.executors,
            inputs=_inputs(arguments),
            draws=arguments.draws,
            runs=arguments.runs,
            level=arguments.level,
            rtol=arguments.rtol,
            atol=arguments.atol,
        )
    print(json_text(asdict(found)) if arguments.json else comparison_text(found))
    if arguments.html is not None:
        _write_page(arguments.html, found)
    wrong = [result.executor for result in found.results if not result.problem and not result.is_close]
    if wrong:
        raise ExecutionError(
            f"outputs differ from the reference in: {', '.join(wrong)}",
            remedy=f"find the guilty rewrite with: capgraph bisect {arguments.model}",
        )
    failed = [result.executor for result in found.results if result.problem]
    if failed:
        raise ExecutionError(f"cannot run: {', '.join(failed)}", remedy="leave them out of --executors, or see above")


def _compare_models(arguments: Namespace) -> None:
    """Compares two files, writes the table, and fails when their outputs are further apart than they may be."""
    from ...comparing.comparison import compare
    from ...comparing.fitting_inputs import DrawnInputs
    from ...ir.errors import ExecutionError, InputError
    from ...sources import load_model

    if arguments.executors is not None or arguments.html is not None:
        raise InputError("--executors and --html are for one model", remedy="leave them out, or OTHER")
    drawing = DrawnInputs(arguments.draws, dict(arguments.dim), dict(arguments.input))
    with Progress(f"comparing {arguments.model.name} with {arguments.other.name}"):
        graph = load_model(arguments.model).graph
        _check_inputs(graph, load_model(arguments.other).graph, arguments)
        found = compare(graph, arguments.model, arguments.other, drawing, chosen_tolerance(arguments))
    print(json_text(asdict(found)) if arguments.json else check_text(asdict(found)))
    wrong = [output.name for output in found.outputs if not output.is_close]
    if wrong:
        raise ExecutionError(
            f"{arguments.other} gives other results for: {', '.join(wrong)}",
            remedy="allow larger differences with --rtol and --atol, or give real inputs with --input",
        )


def _check_inputs(graph: "Graph", other: "Graph", arguments: Namespace) -> None:
    """Raises `InputError` where no inputs of the one model are inputs of the other."""
    from ...ir.dims import Truth
    from ...ir.errors import InputError
    from ...ir.types import compatible

    types = {value.name: value.type for value in graph.inputs}
    for value in other.inputs:
        given = types.get(value.name)
        if given is None or compatible(given, value.type) is Truth.NO:
            has = "no such input" if given is None else str(given)
            raise InputError(
                f"{arguments.other} takes {value.name} as {value.type}, {arguments.model} has {has}",
                remedy="compare models with the same inputs and outputs",
            )


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ArgumentTypeError(f"{text!r} is not a list of names separated by commas")
    return names


def _inputs(arguments: Namespace) -> list[dict[str, Any]]:
    from ...comparing.fitting_inputs import DrawnInputs, evaluator, fitting_inputs
    from ...sources import load_model

    graph = load_model(arguments.model).graph
    drawing = DrawnInputs(arguments.draws, dict(arguments.dim), dict(arguments.input))
    return fitting_inputs(graph, drawing, evaluator(graph))[1]


def _write_page(path: Path, found: "ExecutorComparison") -> None:
    from ...comparing.comparison_page import page
    from ...ir.errors import ResourceError

    try:
        path.write_text(page(found), encoding="utf-8")
    except OSError as error:
        raise ResourceError(f"the page cannot be written: {error}", remedy="choose another --html") from error


def comparison_text(found: "ExecutorComparison") -> str:
    """The tables: executors, then the outputs of each, then what they have to say."""
    from ...comparing.executor_comparison import COLUMNS, table_row

    many = "s" if found.inputs > 1 else ""
    ran = [result for result in found.results if not result.problem]
    parts = [
        f"{found.model}: {found.inputs} set{many} of inputs against the reference evaluator, {found.runs} timed runs",
        Table(COLUMNS, [table_row(result) for result in found.results]).text(),
    ]
    outputs = [_output_row(result, at) for result in ran for at in range(min(len(result.outputs), _SHOWN_OUTPUTS))]
    if outputs:
        parts.append(Table(("executor", "output", "ulps", "relative", "worst at"), outputs).text())
    parts += [_remarks(result) for result in ran if result.remarks]
    parts += [
        f"{result.executor} cannot run: {result.problem}{_remedy(result)}" for result in found.results if result.problem
    ]
    if found.skipped:
        parts.append("\n".join(f"skipped {each.executor}: {each.problem}{_remedy(each)}" for each in found.skipped))
    return "\n\n".join(parts)


def _output_row(result: "ExecutorResult", at: int) -> Sequence[Cell]:
    output = result.outputs[at]
    place = "" if output.position is None else f"{list(output.position)} of set {output.inputs}"
    return (result.executor, output.name, output.ulps, output.relative, place)


def _remarks(result: "ExecutorResult") -> str:
    shown = result.remarks[:_SHOWN_REMARKS]
    more = [f"and {len(result.remarks) - len(shown)} more"] if len(shown) < len(result.remarks) else []
    return "\n".join((f"{result.executor}:", *(f"  {remark}" for remark in (*shown, *more))))


def _remedy(result: "ExecutorResult") -> str:
    return f" (try: {result.remedy})" if result.remedy else ""


COMMAND = Command(
    "compare",
    "Run a model in several executors: errors, times, memory, segments, fallbacks; or compare two models.",
    configure,
    run,
)
