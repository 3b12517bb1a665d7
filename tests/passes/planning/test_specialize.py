from textwrap import dedent

import pytest
from capgraph.ir.builder import Builder
from capgraph.ir.dims import parse_dim
from capgraph.ir.equality import first_difference
from capgraph.ir.errors import ShapeError
from capgraph.ir.text.parser import parse
from capgraph.ir.types import TensorType
from capgraph.ir.verify import verify
from capgraph.passes.framework.exactness import Exactness
from capgraph.passes.framework.numeric import Samples
from capgraph.passes.framework.pipeline import PassRun, Pipeline
from capgraph.passes.planning.specialize import Specialize, specialize

GRAPH = """
graph @main(%x: f32[B, T], %cache: f32[B, T]) {
  %a: f32[T*B] = reshape(%x) {shape = [B*T]}
  %n: i64[] = dim() {value = B + 1}
  %c: f32[B, T] = add(%cache, %x)
  return %a, %n, %c -> %cache
}
"""


def test_sizes_take_the_place_of_symbols_in_types_and_attributes() -> None:
    graph = parse(dedent(GRAPH))
    bound = specialize(graph, {"B": 2, "T": 3})
    verify(bound)
    assert [str(value.type) for value in bound.outputs] == ["f32[6]", "i64[]", "f32[2, 3]"]
    assert bound.value("n").producer.attrs["value"] == 3  # type: ignore[union-attr]
    assert bound.states == graph.states
    assert bound.output_names == graph.output_names


def test_the_graph_stays_as_it_was() -> None:
    graph = parse(dedent(GRAPH))
    before = graph.clone()
    specialize(graph, {"B": 2, "T": 3})
    assert first_difference(graph, before) is None


def test_regions_are_bound_too() -> None:
    graph = parse(
        dedent("""
        graph @main(%c: bool[], %x: f32[B]) {
          %a: f32[B] = if(%c, %x) {then_body = @yes, else_body = @no}
          return %a
        }

        graph @yes(%p: f32[B]) {
          %e: f32[B] = exp(%p)
          return %e
        }

        graph @no(%p: f32[B]) {
          return %p
        }
        """)
    )
    bound = specialize(graph, {"B": 2})
    verify(bound)
    assert str(bound.outputs[0].type) == "f32[2]"


AGREEING = """
graph @main(%c: bool[], %x: f32[B], %y: f32[2]) {
  %a: f32[u0] = if(%c, %x, %y) {then_body = @yes, else_body = @no}
  %d: f32[u0, u0] = expand(%a) {shape = [u0, u0]}
  %b: f32[u1] = if(%c, %a, %y) {then_body = @yes_too, else_body = @no_too}
  return %d, %b
}

graph @yes(%p: f32[m], %q: f32[2]) {
  %e: f32[m] = exp(%p)
  return %e
}

graph @no(%p: f32[m], %q: f32[2]) {
  %n: f32[2] = neg(%q)
  return %n
}

graph @yes_too(%p: f32[m], %q: f32[2]) {
  %e: f32[m] = exp(%p)
  return %e
}

graph @no_too(%p: f32[m], %q: f32[2]) {
  %n: f32[2] = neg(%q)
  return %n
}
"""


def test_sizes_that_branches_agree_on_are_bound() -> None:
    graph = parse(dedent(AGREEING))
    verify(graph)
    bound = specialize(graph, {"B": 2})
    verify(bound)
    assert [str(value.type) for value in bound.outputs] == ["f32[2, 2]", "f32[2]"]
    other = specialize(graph, {"B": 3})
    verify(other)
    assert [str(value.type) for value in other.outputs] == ["f32[u0, u0]", "f32[u1]"]


def test_sizes_that_branches_in_a_region_agree_on_are_bound() -> None:
    inner = AGREEING.replace("@main", "@around")
    outer = """
graph @main(%c: bool[], %x: f32[B], %y: f32[2]) {
  %d: f32[v0, v1], %b: f32[v2] = if(%c, %c, %x, %y) {then_body = @around, else_body = @other}
  return %d, %b
}

graph @other(%c: bool[], %x: f32[B], %y: f32[2]) {
  %d: f32[2, B] = expand(%x) {shape = [2, B]}
  return %d, %y
}
"""
    graph = parse(outer + inner)
    verify(graph)
    bound = specialize(graph, {"B": 2})
    verify(bound)
    assert [str(value.type) for value in bound.outputs] == ["f32[2, 2]", "f32[2]"]


@pytest.mark.parametrize(
    ("sizes", "problem"), [({"B": 2}, "no size is given for T"), ({"B": 2, "T": -1}, "size T is -1")]
)
def test_missing_and_negative_sizes_are_refused(sizes: dict[str, int], problem: str) -> None:
    with pytest.raises(ShapeError, match=problem):
        specialize(parse(dedent(GRAPH)), sizes)


def test_a_constraint_that_the_sizes_break_is_refused() -> None:
    graph = parse(
        dedent("""
        graph @main(%x: f32[B], %y: f32[3]) {
          %a: f32[3] = add(%x, %y)
          return %a
        }""")
    )
    assert str(specialize(graph, {"B": 3}).outputs[0].type) == "f32[3]"
    with pytest.raises(ShapeError):
        specialize(graph, {"B": 4})


@pytest.mark.parametrize("budget", range(5))
def test_within_a_budget_some_nodes_have_sizes_and_all_mean_the_same(budget: int) -> None:
    """Of which the inputs keep theirs open, so that bisect can run what is in between."""
    graph = parse(dedent(GRAPH))
    samples = Samples.drawn(graph, sizes={"B": 2, "T": 3})
    run = PassRun(Specialize((("B", 2), ("T", 3))), budget)
    run.on(graph)
    verify(graph)
    assert samples.first_difference(graph, Exactness.EXACT) == ""
    assert run.rewrites.total() == min(budget, 3)
    assert sum(value.type.is_static for value in graph.outputs if isinstance(value.type, TensorType)) <= 1 + budget
    assert graph.inputs[0].tensor.is_static == (budget >= 3)


def test_a_second_run_finds_nothing() -> None:
    graph = parse(dedent(GRAPH))
    each = Specialize((("B", 2), ("T", 3)))
    assert Pipeline(((each,),)).run(graph).changed
    assert not Pipeline(((each,),)).run(graph).changed
    assert str(each) == "specialize{B=2, T=3}"


@pytest.mark.parametrize("name", ["self", "node"])
def test_attributes_of_foreign_operators_have_any_name(name: str) -> None:
    b = Builder()
    x = b.input("x", "f32[B]")
    graph = b.finish(b.foreign("aten.pool", [x], [x.type], {name: (parse_dim("2*B"), 3)}))
    node = next(iter(specialize(graph, {"B": 2}).nodes))
    assert node.attrs[name] == (4, 3)
