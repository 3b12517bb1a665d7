"""Which dims of a recorded program may be padded: proofs of the planner, as they are, or after masks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...ir.analysis import input_symbols
from ...ir.dims import symbols
from ...ir.graph import Graph
from ...ir.types import DType, TensorType, type_symbols
from ...passes.planning.padding import SafetyReport, padding_safety, real_size_input


class Prove(Protocol):
    """Judges one dim that is padded up to `largest`, for calls whose sizes are at least `least`."""

    def __call__(self, graph: Graph, dim: str, /, *, largest: int | None, least: int) -> SafetyReport: ...


class Repair(Protocol):
    """A graph in which one dim is safe, by means of its real size if need be, or the same graph; with its report."""

    def __call__(self, graph: Graph, dim: str, /, *, largest: int | None, least: int) -> tuple[Graph, SafetyReport]: ...


def _unpaddable_input(graph: Graph, dim: str) -> str:
    """Why padding a dim is out of the question whatever the graph does; empty when it is not."""
    for value in graph.inputs:
        is_planned = isinstance(value.type, TensorType) and value.type.dtype is not DType.STRING
        if not is_planned and dim in type_symbols(value.type):
            return f"input {value.name} is no tensor of numbers"
    given = frozenset(input_symbols(graph))
    for value, name in zip(graph.outputs, graph.output_names, strict=True):
        for size in value.type.shape or () if isinstance(value.type, TensorType) else ():
            if dim in symbols(size) and not symbols(size) <= given:
                return f"output {name} has an axis of size {size}, which only running tells"
    return ""


@dataclass(frozen=True)
class Analysis:
    """How dims are judged: `prove` judges one, `repair` gives a graph in which it is safe by means of its real size."""

    prove: Prove = padding_safety
    repair: Repair | None = None


@dataclass(frozen=True)
class PaddedGraph:
    """A graph made ready for padding: `reports` on each dim, and how each was made safe.

    `real_sizes` are the further inputs behind those of the original, in order: the dims whose real size they take.
    `masked` are the dims that needed one or other repair. The sizes of calls are at least `least`.
    `refuted` are the proofs that the checker did not accept.
    """

    graph: Graph
    reports: Mapping[str, SafetyReport]
    real_sizes: tuple[str, ...]
    masked: frozenset[str]
    least: int = 0
    refuted: tuple[str, ...] = ()

    @property
    def safe(self) -> frozenset[str]:
        """The dims that may be padded."""
        return frozenset(name for name, report in self.reports.items() if report.is_safe)

    def safe_for(self, sizes: Iterable[int]) -> frozenset[str]:
        """The dims that may be padded in a call with these sizes."""
        smallest = min(sizes, default=0)
        return frozenset(name for name in self.safe if self.reports[name].least <= smallest)

    @property
    def fills(self) -> dict[str, Any]:
        """What the padded part of an input must hold, by name."""
        return {name: fill for report in self.reports.values() for name, fill in report.fills.items()}

    def lines(self) -> tuple[str, ...]:
        """One line for each dim, and for each proof that was not accepted, for reports."""
        lines = (self._line(name, report) for name, report in self.reports.items())
        return (*lines, *(f"a proof was not accepted, {each}" for each in self.refuted))

    def _line(self, name: str, report: SafetyReport) -> str:
        if not report.is_safe:
            return f"{name} is not padded: {report.failure}"
        how = "masked by its real size" if name in self.masked else "as it is"
        from_where = f" from size {report.least} on" if report.least > self.least else ""
        return f"{name} may be padded {how}{from_where}, proven at {len(report.proof)} nodes"


def padded_graph(
    graph: Graph, dims: Sequence[str], analysis: Analysis, largest: Mapping[str, int] | None = None, least: int = 0
) -> PaddedGraph:
    """`graph`, masked where that makes one of `dims` safe to pad, for calls whose sizes are at least `least`.

    `largest` is what each dim is padded to at most. A dim that is not safe from size 0 on may be so from 1 on.
    """
    masked: set[str] = set()
    unpaddable = {dim: _unpaddable_input(graph, dim) for dim in dims}
    limits = largest or {}
    reports: dict[str, SafetyReport] = {}
    refuted: list[str] = []
    for dim in dims:
        if unpaddable[dim]:
            reports[dim] = SafetyReport(False, failure=unpaddable[dim])
            continue
        repaired, reports[dim] = _repaired(graph, dim, analysis, limits.get(dim), least, refuted)
        if repaired is not graph:
            graph = repaired
            masked.add(dim)
    for dim in dims if masked else ():
        if reports[dim].is_safe:  # masks of another dim may have come since
            reports[dim] = analysis.prove(graph, dim, largest=limits.get(dim), least=reports[dim].least)
            refuted += [f"{dim}, masked: {reports[dim].failure}"] if reports[dim].is_refuted else []
    takers = {real_size_input(graph, dim): dim for dim in dims}
    real_sizes = tuple(takers[value.name] for value in graph.inputs if value.name in takers)
    return PaddedGraph(graph, reports, real_sizes, frozenset(masked), least, tuple(refuted))


def _repaired(
    graph: Graph, dim: str, analysis: Analysis, largest: int | None, least: int, refuted: list[str]
) -> tuple[Graph, SafetyReport]:
    """`graph` where the dim is safe or cannot be made safe, else a masked copy; safe from the least size that is."""
    report = SafetyReport(False)
    for lowest in (0, 1) if least == 0 else (1,):
        report = analysis.prove(graph, dim, largest=largest, least=lowest)
        if report.is_safe:
            return graph, report
        if analysis.repair is None:
            continue
        repaired, report = analysis.repair(graph, dim, largest=largest, least=lowest)
        if report.is_safe:
            return repaired, report
        if report.is_refuted:
            refuted.append(f"{dim} from size {lowest} on: {report.failure}")
    return graph, report
