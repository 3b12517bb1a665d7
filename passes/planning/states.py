"""States before they are planned: what one takes over from another is copied apart, old content is read first."""

from dataclasses import dataclass
from typing import ClassVar

from ...ir.analysis import ancestors, reaches
from ...ir.graph import Graph, Value
from ...ir.op import Trait
from ..framework.base import Pass
from ..framework.rewriter import Rewriter
from .storage import is_planned


@dataclass(frozen=True)
class SeparateStates(Pass):
    """Copies what a state would otherwise take over from the memory of a state, itself included.

    Two states that change places would overwrite each other, however the copies after the last step are ordered.
    """

    name: ClassVar[str] = "separate-states"
    runs_once: ClassVar[bool] = True

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        old = {graph.inputs[state.input] for state in graph.states}
        for state in graph.states:
            new = graph.outputs[state.output]
            if new is graph.inputs[state.input] or not is_planned(new) or _viewed(new) not in old:
                continue
            node = new.producer or graph.last
            if node is None or rewriter.may_rewrite("copy", node):
                rewriter.at(None)
                rewriter.set_output(state.output, _copied(rewriter, new))


@dataclass(frozen=True)
class ReadStatesFirst(Pass):
    """Moves what reads the old content of a state before the node that makes the new one, where it does not need that.

    The update can then be done in place.
    """

    name: ClassVar[str] = "read-states-first"
    runs_once: ClassVar[bool] = True

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        for state in graph.states:
            writer = graph.outputs[state.output].producer
            readers = graph.inputs[state.input].users
            if writer is None or not all(reader is writer or not reaches(writer, reader) for reader in readers):
                continue
            needed = ancestors([value for reader in readers if reader is not writer for value in reader.outputs])
            for node in [node for node in graph.nodes if node in needed and writer.precedes(node)]:
                if rewriter.may_rewrite("move", node):
                    rewriter.move_before(node, writer)


def _viewed(value: Value) -> Value:
    """The value whose memory a chain of views may show."""
    while value.producer is not None and value.producer.op.has(Trait.VIEW):
        source = value.producer.inputs[0]
        assert source is not None  # a view has something to show
        value = source
    return value


def _copied(rewriter: Rewriter, value: Value) -> Value:
    shape = value.shape
    if not shape:
        value = rewriter.op("reshape", value, shape=(1,))
    value = rewriter.op("concat", value, axis=0)
    return value if shape else rewriter.op("reshape", value, shape=())
