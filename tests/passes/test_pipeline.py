"""Stages of passes: what runs, how often, and what is left when something fails."""

from capgraph.ir.parser import parse
from capgraph.passes.canonicalise import Canonicalise
from capgraph.passes.eliminate_dead_code import EliminateDeadCode
from capgraph.passes.pipeline import Pipeline


def test_a_pass_that_found_nothing_waits_until_another_changes_the_graph() -> None:
    graph = parse("graph @main(%x: f32[2]) { %y = relu(%x) %z = relu(%y) return %z }")
    clean = (EliminateDeadCode(), Canonicalise())
    report = Pipeline((clean, clean)).run(graph)
    assert [(run.name, run.changed) for run in report.runs] == [
        ("eliminate-dead-code", False),
        ("canonicalise", True),
        ("eliminate-dead-code", False),
        ("canonicalise", False),
    ]
