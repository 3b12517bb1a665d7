"""What recorded programs ask of padding safety; the proofs themselves are an analysis of the planner."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...ir.analysis import input_symbols
from ...ir.dims import symbols
from ...ir.graph import Graph
from ...ir.types import DType, TensorType, type_symbols


class SafetyVerdict(Protocol):
    """Whether padding one dim leaves the real rows untouched: the proof, or the node where it fails and why.

    `fills` are inputs whose padded part must hold a certain number; others may hold anything there. The proof holds for
    calls all of whose sizes are at least `least`. `is_refuted` says that a checker did not accept a proof.
    """

    @property
    def is_safe(self) -> bool: ...

    @property
    def proof(self) -> tuple[str, ...]: ...

    @property
    def failure(self) -> str: ...

    @property
    def fills(self) -> Mapping[str, Any]: ...

    @property
    def least(self) -> int: ...

    @property
    def is_refuted(self) -> bool: ...


@dataclass(frozen=True)
class _Unproven:
    is_safe: bool = False
    proof: tuple[str, ...] = ()
    failure: str = "no analysis has proven that padding is safe"
    fills: Mapping[str, Any] = field(default_factory=dict[str, Any])
    least: int = 0
    is_refuted: bool = False


class Prove(Protocol):
    """Judges one dim that is padded up to `largest`, for calls whose sizes are at least `least`."""

    def __call__(self, graph: Graph, dim: str, /, *, largest: int | None, least: int) -> SafetyVerdict: ...


class Repair(Protocol):
    """A graph in which one dim is safe, by means of its real size if need be, or the same graph; with its report."""

    def __call__(
        self, graph: Graph, dim: str, /, *, largest: int | None, least: int
    ) -> tuple[Graph, SafetyVerdict]: ...


def _unproven(_graph: Graph, _dim: str, /, *, largest: int | None, least: int) -> SafetyVerdict:
    return _Unproven(least=least)


def _no_input(_graph: Graph, _dim: str) -> str | None:
    return None


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
    """How dims are judged: by default nothing is proven, so nothing is padded.

    `prove` judges a dim, `repair` gives a graph in which it is safe by means of its real size, and `real_size` names
    the input of that graph which takes the real size.
    """

    prove: Prove = _unproven
    repair: Repair | None = None
    real_size: Callable[[Graph, str], str | None] = _no_input


@dataclass(frozen=True)
class PaddedGraph:
    """A graph made ready for padding: `reports` on each dim, and how each was made safe.

    `real_sizes` are the further inputs behind those of the original, in order: the dims whose real size they take.
    `masked` are the dims that needed one or other repair. The sizes of calls are at least `least`.
    `refuted` are the proofs that the checker did not accept.
    """

    graph: Graph
    reports: Mapping[str, SafetyVerdict]
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

    def _line(self, name: str, report: SafetyVerdict) -> str:
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
    reports: dict[str, SafetyVerdict] = {}
    refuted: list[str] = []
    for dim in dims:
        if unpaddable[dim]:
            reports[dim] = _Unproven(failure=unpaddable[dim])
            continue
        repaired, reports[dim] = _repaired(graph, dim, analysis, limits.get(dim), least, refuted)
        if repaired is not graph:
            graph = repaired
            masked.add(dim)
    for dim in dims if masked else ():
        if reports[dim].is_safe:  # masks of another dim may have come since
            reports[dim] = analysis.prove(graph, dim, largest=limits.get(dim), least=reports[dim].least)
            refuted += [f"{dim}, masked: {reports[dim].failure}"] if reports[dim].is_refuted else []
    takers = {analysis.real_size(graph, dim): dim for dim in dims}
    real_sizes = tuple(takers[value.name] for value in graph.inputs if value.name in takers)
    return PaddedGraph(graph, reports, real_sizes, frozenset(masked), least, tuple(refuted))


def _repaired(
    graph: Graph, dim: str, analysis: Analysis, largest: int | None, least: int, refuted: list[str]
) -> tuple[Graph, SafetyVerdict]:
    """`graph` where the dim is safe or cannot be made safe, else a masked copy; safe from the least size that is."""
    report: SafetyVerdict = _Unproven()
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
