"""`Program`: a model that is ready to run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .exact_sizes import ExactSizes
from .executors.base import Coverage, Covered, Drawing, Executor
from .executors.cuda.run.profile import Profile, Profiling
from .executors.memory import size_text
from .executors.replay.counters import Counting, Stats
from .ir.analysis import all_nodes, parameter_bytes, parameter_count
from .ir.errors import CapgraphError, ExecutionError, InputError, ResourceError, UnsupportedError, out_of_memory
from .ir.graph import Graph, Node
from .ir.philox import fresh_state
from .ir.types import Type
from .passes.framework.pipeline import PipelineReport
from .sources import needs_onnx
from .version import __version__

_NAMED_NODES = 3  # how many nodes of one foreign op explain() names
REMEDY = 'check the values that lead there; executor="eager" with level=0 runs the model as it was imported'


class Program:
    """A graph compiled by an executor. Made by `capgraph.optimize`; a context manager that closes itself.

    `graph` is what runs, after the passes; `report` says what they did.
    It may be called from several threads at once, unless it is one of "ort" on a GPU, which belongs to one thread.
    """

    def __init__(
        self,
        graph: Graph,
        executor: Executor,
        *,
        level: int = 0,
        strict: bool = False,
        notes: Sequence[str] = (),
        report: PipelineReport | None = None,
        exact: ExactSizes | None = None,
    ) -> None:
        self._exact = exact
        self.graph = graph
        self.level = level
        self.report = report or PipelineReport()
        self.strict = strict
        self.notes = tuple(notes)
        self.target = executor.target()
        try:
            self._executable = executor.compile(graph)
        except (ExecutionError, ResourceError) as error:  # of nodes that depend on no input
            error.of_model(graph.name, REMEDY)
            raise
        except MemoryError as error:
            raise out_of_memory().of_model(graph.name, REMEDY) from error

    def __repr__(self) -> str:
        return f"Program({self.graph.name}, {len(self.graph)} nodes, {self.target.executor} on {self.target.device})"

    def __reduce_ex__(self, _protocol: Any) -> Any:
        raise UnsupportedError(
            "a program cannot be copied or pickled: it holds sessions or recordings",
            remedy="optimize the model again where it is to run, or write it with save_onnx",
        )

    @property
    def inputs(self) -> dict[str, Type]:
        """The types of the inputs by name, in order; symbols in shapes are sizes that each call chooses."""
        return {value.name: value.type for value in self.graph.inputs}

    @property
    def optional_inputs(self) -> frozenset[str]:
        """The inputs that have a default: initializers that the model lets callers override."""
        return frozenset(self.graph.defaults)

    @property
    def outputs(self) -> dict[str, Type]:
        """The types of the outputs by name, in order."""
        return {name: value.type for name, value in zip(self.graph.output_names, self.graph.outputs, strict=True)}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The output, or all in a tuple, for arrays in the order of `inputs`, or by name; otherwise as `run`."""
        names = list(self.inputs)
        given = dict(zip(names, args, strict=False))
        twice = [name for name in kwargs if name in given]
        if len(args) > len(names) or twice:
            what = f"input {twice[0]!r} was given twice" if twice else f"{len(args)} inputs were given"
            raise InputError(what, remedy=f"the inputs are {', '.join(map(repr, names)) or 'none'}")
        found = tuple(self.run({**given, **kwargs}).values())
        return found[0] if len(found) == 1 else found

    def run(self, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The outputs by name, in the order of `outputs`, for NumPy arrays by name.

        Arrays need not be contiguous but must have the input's dtype; nothing is cast. Outputs share no memory with
        inputs. Raises `InputError` for an input that is missing, unknown, or of another dtype or shape,
        `ExecutionError` when a node fails, `ResourceError` when memory does not suffice. All name the model, the latter
        two also the node and its origin.
        """
        given = {} if inputs is None else inputs
        try:
            found = None if self._exact is None else self._exact.run(given)
            return self._executable.run(given) if found is None else found
        except CapgraphError as error:
            if isinstance(error, ExecutionError) and self._exact is not None:
                again = self._exact.run_failed(given)
                if again is not None:
                    return again
            error.of_model(self.graph.name, REMEDY)
            raise
        except MemoryError as error:
            raise out_of_memory().of_model(self.graph.name, REMEDY) from error

    def seed(self, seed: int) -> None:
        """Has the calls from now on draw the random numbers that follow from `seed`, any integer.

        Without it they follow from the system's entropy. Raises `UnsupportedError` where ONNX Runtime draws.
        """
        if not isinstance(self._executable, Drawing):
            raise UnsupportedError(
                f"executor {self.target.executor!r} on {self.target.device} keeps its own random numbers",
                remedy='use executor="graph" or executor="eager"',
            )
        self._executable.set_random_state(fresh_state(seed))
        if self._exact is not None:
            self._exact.seed(seed)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the executor has to say of how the program runs, such as segments and the reasons for them."""
        own = () if self._exact is None else self._exact.remarks
        return (*getattr(self._executable, "remarks", ()), *own)

    @property
    def coverage(self) -> Coverage | None:
        """In how many segments the latest call ran, and how many nodes outside; None where there are no segments."""
        return self._executable.coverage() if isinstance(self._executable, Covered) else None

    def explain(self) -> str:
        """What the program is, how it runs, what the import had to say, and which ops it does not know natively."""
        graph = self.graph
        parameters = f"{_counted(parameter_count(graph), 'parameter')} ({size_text(parameter_bytes(graph))})"
        lines = [f"program {graph.name}: {_counted(len(graph), 'node')}, {parameters}", *_io_lines(self)]
        lines.append(f"executor: {self.target.executor} on {self.target.device}, {_manner(self)}")
        lines += [f"  {remark}" for remark in self.remarks]
        lines += _pass_lines(self.level, self.report)
        lines += _foreign_lines(graph)
        lines += [f"note: {note}" for note in (*self.notes, *self.report.notes)]
        return "\n".join(lines)

    def stats(self) -> Stats:
        """What a recorded program has counted so far: calls, replays, padding, captures, memory.

        Raises `UnsupportedError` for a program that records nothing.
        """
        if not isinstance(self._executable, Counting):
            raise UnsupportedError(f"executor {self.target.executor!r} counts nothing", remedy='use executor="graph"')
        stats = self._executable.stats()
        return stats if self._exact is None else self._exact.counted(stats)

    def profile(self, inputs: Mapping[str, Any] | None = None) -> Profile:
        """How long each launch of a call with these inputs takes on the GPU, with its bytes and FLOPs, by node.

        `print` shows a table. Raises `UnsupportedError` for a program that does not run on a GPU.
        """
        if not isinstance(self._executable, Profiling):
            raise UnsupportedError(
                f"executor {self.target.executor!r} on {self.target.device} has no launches to time",
                remedy='use device="cuda"',
            )
        return self._executable.profile({} if inputs is None else inputs)

    def save_onnx(
        self, path: str | Path, *, target: str = "standard", opset: int | None = None, ir_version: int | None = None
    ) -> None:
        """Writes the program's graph, after the passes, to an ONNX file.

        `target` "standard" takes no operators but standard ones and those of the model without a standard form, "ort"
        also ONNX Runtime's own. `opset` and `ir_version` are by default those of the ONNX file that the model came
        from (of PyTorch: opset 20), or the next ones that have every operator; newer ops are written as their parts.
        Weights lie beside the file where the model's did or they pass 2 GB: in a file of the same name if nothing else
        has it there, else in PATH.<hash>.data. The file is written as a whole or not at all; its metadata is that of
        the model, with `capgraph.version`, `capgraph.passes` and `capgraph.target`.

        Raises `UnsupportedError` for another target, or versions that lack a node, `InputError` where `path` holds
        weights of the model or is no regular file, `ResourceError` when it cannot be written, `MissingPackageError`
        without the package onnx.
        """
        with needs_onnx():
            from .frontends.onnx.context.dialect import Dialect
            from .frontends.onnx.exporting.saving import save_model
            from .frontends.onnx.files.metadata import own_metadata
        if target not in ("standard", "ort"):
            raise UnsupportedError(f"target={target!r} is not known", remedy='"standard" or "ort"')
        save = partial(save_model, self.graph, path, opset=opset, ir_version=ir_version, keep_form=True)
        try:
            save(dialect=Dialect(target), metadata=own_metadata(__version__, self.report.pipeline, target))
        except MemoryError as error:
            raise out_of_memory(f"the file of {self.graph.name}") from error

    def close(self) -> None:
        """Gives back memory; the program cannot run afterwards."""
        self._executable.close()
        if self._exact is not None:
            self._exact.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


def _manner(program: Program) -> str:
    if program.target.captures:
        return "recorded and replayed"
    coverage = program.coverage
    return (
        "in sessions" if coverage is not None and coverage.segments else "one node after another: it captures nothing"
    )


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _io_lines(program: Program) -> list[str]:
    optional = program.optional_inputs
    lines = [f"input: {n}: {ty}{' (optional)' if n in optional else ''}" for n, ty in program.inputs.items()]
    return lines + [f"output: {name}: {ty}" for name, ty in program.outputs.items()]


def _pass_lines(level: int, report: PipelineReport) -> list[str]:
    """One line for all passes and one for each that changed something, its runs taken together."""
    if not report.runs:
        return [f"level: {level}, no passes: the graph runs as it was imported"]
    nodes = f"{_counted(report.runs[0].nodes_before, 'node')} became {report.runs[-1].nodes_after:,}"
    lines = [f"level: {level}, {nodes} by {_counted(report.rewrites, 'rewrite')} in {1e3 * report.seconds:.1f} ms"]
    for each in (each for each in report.totals() if each.rewrites):
        work = f"{_counted(each.rewrites, 'rewrite')}, {each.nodes:+,} nodes"
        lines.append(f"  {each.name}: {work}, {1e3 * each.seconds:.1f} ms")
    return lines


def foreign_nodes(graph: Graph) -> dict[str, list[Node]]:
    """The nodes of `graph` and its regions that are not native, by op name."""
    found: dict[str, list[Node]] = {}
    for node in all_nodes(graph):
        if node.op.is_foreign:
            found.setdefault(node.op.name, []).append(node)
    return found


def _foreign_lines(graph: Graph) -> list[str]:
    foreign = foreign_nodes(graph)
    if not foreign:
        return ["foreign ops: none"]
    counts = Counter({name: len(nodes) for name, nodes in foreign.items()})
    lines = [f"foreign ops: {_counted(counts.total(), 'node')} run through their own ecosystem"]
    for name, count in counts.most_common():
        where = [str(node.origin or node) for node in foreign[name][:_NAMED_NODES]]
        more = ", ..." if count > _NAMED_NODES else ""
        lines.append(f"  {name} x {count}: {', '.join(where)}{more}")
    return lines
