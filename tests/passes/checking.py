"""The one helper of pass tests: text before, text after, and everything that the contract of a pass promises."""

from textwrap import dedent

from capgraph.ir.equality import first_difference
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse
from capgraph.ir.text.printer import print_graph
from capgraph.ir.verify import verify
from capgraph.passes.framework.base import Pass
from capgraph.passes.framework.numeric import Samples
from capgraph.passes.framework.pipeline import Pipeline


def check_pass(each: Pass, before: str, after: str | None, *, numeric: bool = True) -> Graph:
    """Runs `each` on `before` and holds it to `after` (None: nothing changes).

    Also held: the result verifies and means the same, a second run changes nothing, and the changed flag is true
    exactly when the graph differs. `numeric=False` is for graphs that cannot be evaluated on drawn inputs.
    """
    original = parse(dedent(before))
    graph = original.clone()
    samples = Samples.drawn(original) if numeric else None
    report = Pipeline(((each,),)).run(graph, check="structure")
    verify(graph)
    expected = parse(dedent(after)) if after is not None else original
    difference = first_difference(graph, expected)
    assert difference is None, f"{difference}\n\nresult:\n{print_graph(graph)}"
    assert report.changed == (first_difference(original, graph) is not None)
    if samples is not None:
        assert samples.first_difference(graph, each.exactness) == ""
    assert not Pipeline(((each,),)).run(graph).changed, "a second run changes the graph again"
    return graph
