"""What a faulty rule or pass raises, of whatever class, comes out as an error that names it and the node."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest
from capgraph.ir.errors import InternalError
from capgraph.ir.graph import Graph, Value
from capgraph.ir.text.parser import parse
from capgraph.passes.framework.base import Pass, PatternPass
from capgraph.passes.framework.pattern import Capture, Found, Match, Rule
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.framework.rewriter import Rewriter


class OwnError(Exception):
    """An exception class of the author of a pass."""


@dataclass(frozen=True)
class FaultyRule(PatternPass):
    """Has one rule, which raises."""

    name: ClassVar[str] = "faulty"
    error: BaseException

    def rules(self) -> Sequence[Rule]:
        return (Rule("raises", Match("neg", Capture("x")), self._raise),)

    def _raise(self, _rewriter: Rewriter, _found: Found) -> Value:
        raise self.error


@dataclass(frozen=True)
class FaultyPass(Pass):
    """Raises at its first node."""

    name: ClassVar[str] = "faulty"
    error: BaseException

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        rewriter.may_rewrite("edit", next(iter(graph.nodes)))
        raise self.error


TEXT = 'graph @main(%x: f32[4]) { %y = neg(%x) loc("here") return %y }'
FAULTS = (
    ValueError("w"),
    Exception("w"),
    OwnError("w"),
    OSError("w"),
    EOFError("w"),
    StopIteration("w"),
    StopIteration(),
)


@pytest.mark.parametrize("error", FAULTS, ids=repr)
def test_whatever_a_rule_or_pass_raises_names_it_and_the_node(error: Exception) -> None:
    said = f"{type(error).__name__}{': w' if error.args else ''}"
    for each, what in ((FaultyRule(error), "rule raises failed: "), (FaultyPass(error), "")):
        with pytest.raises(InternalError) as caught:
            Pipeline(((each,),)).run(parse(TEXT))
        assert caught.value.message == f"pass faulty failed: {what}{said}"
        assert "%y = neg(%x)" in (caught.value.where or "")
        assert "here" in (caught.value.where or "")


@pytest.mark.parametrize("error", [MemoryError("w"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_interrupts_exits_and_memory_that_runs_out_are_nobodys_fault(error: BaseException) -> None:
    for each in (FaultyRule(error), FaultyPass(error)):
        with pytest.raises(type(error)) as caught:
            Pipeline(((each,),)).run(parse(TEXT))
        assert caught.value is error
