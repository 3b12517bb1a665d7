"""`capgraph optimize`: a smaller and faster ONNX model that means the same."""

import shutil
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...comparing.tables import Cell, Table, json_text
from ...executors.progress import Progress
from .arguments import (
    DEFAULT_LEVEL,
    Command,
    add_inputs,
    add_passes,
    add_tolerance,
    check_text,
    chosen_pipeline,
    chosen_tolerance,
    count,
    positive,
    size,
)

if TYPE_CHECKING:
    from onnx import ModelProto

    from ...comparing.comparison import Comparison
    from ...ir.graph import Graph
    from ...passes.framework.numeric import Samples

_SHOWN_OPERATORS = 12
_WIDEST_COST = 40
_CONTRIB_DOMAIN = "com.microsoft."
_VERIFIED = 2  # sets of inputs


def configure(parser: ArgumentParser) -> None:
    """The arguments of `capgraph optimize`."""
    parser.add_argument("model", metavar="IN", type=Path, help="an ONNX file")
    parser.add_argument("-o", "--output", metavar="OUT", type=Path, required=True, help="the file to write, not IN")
    add_passes(parser)
    parser.add_argument(
        "--for",
        dest="target",
        choices=("standard", "ort"),
        default="standard",
        help="standard: no operators but standard ones and those of IN without a standard form (default); "
        "ort: ONNX Runtime's own as well",
    )
    parser.add_argument(
        "--session-options",
        action="store_true",
        help="write the options of ONNX Runtime's sessions that suit the model beside it, as OUT.options.json",
    )
    parser.add_argument(
        "--check", metavar="N", type=count, default=0, help="run IN and OUT on N drawn inputs and compare the outputs"
    )
    add_tolerance(parser)
    add_inputs(parser)
    parser.add_argument(
        "--verify",
        choices=("none", "structure", "numeric"),
        default="structure",
        help="what is checked after every pass (default structure)",
    )
    parser.add_argument("--dump", metavar="DIR", type=Path, help="write the graph before and after every pass there")
    parser.add_argument("--opset", metavar="N", type=positive, help="the opset to write (default: that of IN)")
    parser.add_argument("--ir", metavar="N", type=positive, help="the IR version to write (default: that of IN)")
    parser.add_argument(
        "--dim", metavar="NAME=N", type=size, action="append", default=[], help="fix a symbolic dimension in OUT"
    )


def run(arguments: Namespace) -> None:
    """Optimizes the model, writes it, and says what became of it."""
    from ...frontends.onnx.files.operator_counts import not_standard, operator_counts
    from ...frontends.onnx.files.writing import opset_of
    from ...inputs import check_dims
    from ..files import read_onnx_file

    pipeline, sizes = chosen_pipeline(arguments), dict(arguments.dim)
    _refuse_unread(arguments)
    _refuse_overwriting([arguments.model], arguments)
    seconds: dict[str, float] = {}
    with Progress(f"reading {arguments.model.name}") as progress:
        with _timed(seconds, "read"):
            source = read_onnx_file(arguments.model)
        _refuse_overwriting(source.files, arguments)
        check_dims(source.graph, sizes)
        before = _costs(source.graph, sizes)
        graph = _fixed(source.graph, sizes)
        with _timed(seconds, "optimize"):
            samples = _samples(graph, arguments) if arguments.verify == "numeric" else None
            report = pipeline.run(
                graph, check=arguments.verify, samples=samples, dump=arguments.dump, progress=progress.advance
            )
        after = _costs(graph, sizes)
        progress.advance(f"writing {arguments.output.name}")
        with _timed(seconds, "write"):
            model, comparison, options = _write(graph, arguments, sizes)
    operators = operator_counts(model)
    facts: dict[str, Any] = {
        "model": str(arguments.model),
        "output": str(arguments.output),
        "for": arguments.target,
        "opset": opset_of(model),
        "ir_version": model.ir_version,
        "pipeline": str(pipeline),
        "nodes": {"before": source.operators.total(), "after": operators.total()},
        "operators": {"before": dict(source.operators), "after": dict(operators)},
        "not_standard": not_standard(operators),
        "costs": {"before": before, "after": after},
        "passes": [asdict(each) for each in report.totals()],
        "rewrites": dict(sum((run.rewrites for run in report.runs), Counter[str]()).most_common()),
        "seconds": seconds,
        "session_options": None if options is None else str(options),
        "check": None if comparison is None else asdict(comparison),
        "notes": [
            *source.notes,
            *report.notes,
            *_target_notes(arguments.target, operators, model),
            *_version_notes(source.graph, model, arguments.ir),
        ],
    }
    print(json_text(facts) if arguments.json else _text(facts))


def _refuse_unread(arguments: Namespace) -> None:
    """Raises `InputError` for options of a check that is not asked for."""
    from ...ir.errors import InputError

    bounds = arguments.rtol is not None or arguments.atol > 0
    if not arguments.check and (bounds or (arguments.input and arguments.verify != "numeric")):
        raise InputError("--input, --rtol and --atol are of --check", remedy="--check 1, or leave them out")


def _fixed(graph: "Graph", sizes: Mapping[str, int]) -> "Graph":
    """The graph with the sizes that its inputs have; others only say what costs are shown."""
    from ...ir.analysis import input_symbols
    from ...passes.planning.specialize import with_sizes

    fixed = {name: size for name, size in sizes.items() if name in input_symbols(graph)}
    return with_sizes(graph, fixed) if fixed else graph


def _refuse_overwriting(files: Sequence[Path], arguments: Namespace) -> None:
    from ..files import refuse_overwriting

    refuse_overwriting(files, arguments.output)
    if arguments.session_options:
        refuse_overwriting([*files, arguments.output], _options_path(arguments.output))
    if arguments.dump is not None and arguments.dump.is_dir():
        for dumped in arguments.dump.glob("*.txt"):
            refuse_overwriting(files, dumped)


@contextmanager
def _timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[what] = time.perf_counter() - start


def _samples(graph: "Graph", arguments: Namespace) -> "Samples":
    from ...comparing.fitting_inputs import DrawnInputs, evaluator, fitting_inputs, in_order
    from ...ir.errors import ExecutionError, UnsupportedError
    from ...passes.framework.numeric import Samples

    drawing = DrawnInputs(_VERIFIED, sources=dict(arguments.input))
    try:
        _, sets = fitting_inputs(graph, drawing, evaluator(graph))
        return Samples.of(graph, [in_order(graph, each) for each in sets])
    except (ExecutionError, UnsupportedError) as error:
        remedy = "leave --verify numeric out, or give inputs that the model runs on: --input NAME=SOURCE, --dim NAME=N"
        raise UnsupportedError(error.message, where=error.where, remedy=remedy) from error


def _costs(graph: "Graph", sizes: Mapping[str, int]) -> dict[str, int | str | None]:
    from ...comparing.tables import bound_cost
    from ...ir.analysis import statistics

    facts = statistics(graph)
    return {
        "parameters": facts.parameters,
        "parameter_bytes": facts.parameter_bytes,
        "flops": bound_cost(facts.flops, sizes),
        "bytes": bound_cost(facts.bytes, sizes),
    }


def _target_notes(target: str, operators: Mapping[str, int], model: "ModelProto") -> list[str]:
    from ...frontends.onnx.contrib.convolutions import activations_for_cpu

    if target == "standard":
        return _not_standard_notes(operators)
    activations = activations_for_cpu(model)
    if activations:
        names = ", ".join(sorted(activations))
        return [f"--for ort: the model is for the CPU, as FusedConv on CUDA lacks {names}; there, use --for standard"]
    if any(name.startswith(_CONTRIB_DOMAIN) for name in operators):
        return []
    return ["--for ort: standard operators say it all; none of ONNX Runtime's own does several of its nodes at once"]


def _version_notes(graph: "Graph", model: "ModelProto", ir: int | None) -> list[str]:
    """Where the file's versions are not those of IN, and what its opset has no operators for."""
    from ...frontends.onnx.exporting.parts import PARTS
    from ...frontends.onnx.files.metadata import opset_reason, written_as_parts
    from ...frontends.onnx.files.writing import opset_of, source_ir_version

    notes = [reason] if (reason := opset_reason(model)) else []
    if ir is None and model.ir_version > source_ir_version(graph):
        notes.append(f"IR {model.ir_version}, as IR {source_ir_version(graph)} lacks something of what is written")
    parts = written_as_parts(model)
    if parts:
        named = ", ".join(f"{name} ({number})" for name, number in parts.items())
        newest = max(PARTS[name].since for name in parts)
        notes.append(f"written as parts, as opset {opset_of(model)} lacks them: {named}; --opset {newest} has all")
    return notes


def _not_standard_notes(operators: Mapping[str, int]) -> list[str]:
    from ...frontends.onnx.files.operator_counts import not_standard

    kept = ", ".join(f"{name} ({number})" for name, number in sorted(not_standard(operators).items()))
    return [f"--for standard: kept, for they are not standard and have no standard form here: {kept}"] if kept else []


# ---- writing


def _write(
    graph: "Graph", arguments: Namespace, sizes: Mapping[str, int]
) -> tuple["ModelProto", "Comparison | None", Path | None]:
    """Writes the model, its comparison where that is asked for, and where the options of its sessions are.

    Nothing is put in place before all of it is there and the model was found to mean the same. A link is followed.
    """
    from ... import __version__
    from ...frontends.onnx.context.dialect import Dialect
    from ...frontends.onnx.exporting.saving import save_model
    from ...frontends.onnx.files.metadata import own_metadata
    from ...frontends.onnx.files.writing import file_to_write, part_prefix
    from ...ir.errors import ResourceError

    output, dialect = file_to_write(arguments.output), Dialect(arguments.target)
    said = own_metadata(__version__, str(chosen_pipeline(arguments)), arguments.target)
    save = partial(save_model, graph, opset=arguments.opset, ir_version=arguments.ir, keep_form=True, dialect=dialect)
    save = partial(save, metadata=said)
    if not arguments.check and not arguments.session_options:
        return save(output), None, None
    options = _options_path(arguments.output) if arguments.session_options else None
    try:
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=part_prefix(output)) as folder:
            draft = Path(folder) / output.name
            model = save(draft, folder=output.parent)
            found = _compared(graph, arguments, draft, sizes) if arguments.check else None
            if options is not None:  # they go beside OUT, which may be a link to another disk
                shutil.move(_write_options(graph, model, arguments, draft), file_to_write(options))
            for part in sorted(Path(folder).iterdir(), key=lambda part: part == draft):  # the model last
                part.replace(output.parent / part.name)
    except OSError as error:
        raise ResourceError(f"{output} cannot be written: {error}", remedy="check the disk and the folder") from error
    return model, found, options


def _compared(graph: "Graph", arguments: Namespace, draft: Path, sizes: Mapping[str, int]) -> "Comparison":
    from ...comparing.comparison import compare
    from ...comparing.fitting_inputs import DrawnInputs
    from ...ir.analysis import input_symbols
    from ...ir.errors import ExecutionError, UnsupportedError

    drawn = {name: size for name, size in sizes.items() if name in input_symbols(graph)}
    drawing = DrawnInputs(arguments.check, drawn, dict(arguments.input))
    try:
        found = compare(graph, arguments.model, draft, drawing, chosen_tolerance(arguments))
    except (ExecutionError, UnsupportedError) as error:
        remedy = f"leave --check out, or {error.remedy}"
        raise type(error)(error.message, where=error.where, remedy=remedy) from error
    if not found.is_close:
        worst = found.outputs[0]
        raise ExecutionError(
            f"output {worst.name} of the optimized model differs by {worst.relative:.3g} of its largest value, where "
            f"{worst.allowed:.3g} may be{f' ({worst.held_to})' if worst.held_to else ''}",
            remedy=f"nothing was written; find the guilty rewrite with: capgraph bisect {arguments.model}",
        )
    return replace(found, sizes={**sizes, **found.sizes})


def _options_path(output: Path) -> Path:
    from ...sources import needs_onnx

    with needs_onnx():
        from ...executors.ort.session_options import options_path
    return options_path(output)


def _write_options(graph: "Graph", model: "ModelProto", arguments: Namespace, path: Path) -> Path:
    from ...executors.ort.session_options import session_options, write_session_options

    level = DEFAULT_LEVEL if arguments.level is None else arguments.level
    return write_session_options(session_options(graph, model, level), path)


# ---- the text


def _text(facts: Mapping[str, Any]) -> str:
    seconds = facts["seconds"]
    parts = [
        f"{facts['model']} -> {facts['output']}, {_target_text(facts)}",
        _operator_table(facts).text(),
        _cost_table(facts["costs"]).text(),
        _pass_table(facts["passes"]).text() if facts["passes"] else "no passes were asked for",
    ]
    if facts["check"] is not None:
        parts.append(check_text(facts["check"]))
    parts += [f"note: {note}" for note in facts["notes"]]
    if facts["session_options"] is not None:
        parts.append(f"options of sessions: {facts['session_options']}")
    parts.append(
        f"{seconds['read']:.2f} s to read, {seconds['optimize']:.2f} to optimize, {seconds['write']:.2f} to write"
    )
    return "\n\n".join(parts)


def _target_text(facts: Mapping[str, Any]) -> str:
    if facts["for"] == "ort":
        return "for ONNX Runtime"
    return "standard operators, and others (see the note)" if facts["not_standard"] else "standard operators only"


def _operator_table(facts: Mapping[str, Any]) -> Table:
    """The operators whose numbers changed most, the rest in one row, and all."""
    before, after = facts["operators"]["before"], facts["operators"]["after"]
    rows = [(name, before.get(name, 0), after.get(name, 0)) for name in dict.fromkeys((*before, *after))]
    rows.sort(key=lambda row: (-abs(row[2] - row[1]), -row[1], row[0]))
    shown, rest = rows[:_SHOWN_OPERATORS], rows[_SHOWN_OPERATORS:]
    if rest:
        shown.append((f"{len(rest)} others", sum(row[1] for row in rest), sum(row[2] for row in rest)))
    total = ("all nodes", facts["nodes"]["before"], facts["nodes"]["after"])
    return _before_after("operator", [*shown, total])


def _cost_table(costs: Mapping[str, Any]) -> Table:
    names = {"parameters": "parameters", "parameter_bytes": "parameter bytes", "flops": "FLOPs", "bytes": "bytes moved"}
    before, after = costs["before"], costs["after"]
    return _before_after("", [(text, before[name], after[name]) for name, text in names.items()])


def _before_after(first: str, rows: Sequence[tuple[str, Any, Any]]) -> Table:
    return Table(
        (first, "before", "after", "change"),
        [(name, _cell(old), _cell(new), _change(old, new)) for name, old, new in rows],
    )


def _change(old: Any, new: Any) -> int | None:
    both = isinstance(old, int) and isinstance(new, int)
    return new - old if both and old != new else None


def _cell(cost: Any) -> Cell:
    """A number as it is; an expression of symbols if it is short enough for a table."""
    if isinstance(cost, int):
        return cost
    if cost is None:
        return "unknown"
    return str(cost) if len(str(cost)) <= _WIDEST_COST else "depends on sizes (--dim)"


def _pass_table(passes: Sequence[Mapping[str, Any]]) -> Table:
    rows: list[list[Cell]] = [
        [each["name"], each["runs"], each["rewrites"], each["nodes"], round(1e3 * each["seconds"], 1)]
        for each in passes
    ]
    return Table(("pass", "runs", "rewrites", "nodes", "ms"), rows)


COMMAND = Command("optimize", "Write a smaller and faster model that means the same.", configure, run)
