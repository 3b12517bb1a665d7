"""The text of a plan: columns that line up, and what it says of eager steps, states and bodies."""

from capgraph.ir.target import CUDA, HOST
from capgraph.ir.text.parser import parse
from capgraph.ir.text.plan_printer import print_plan
from capgraph.passes.planning.planner import make_plan

TEXT = """graph @main(%x: f32[B, 4], %cache: f32[2, 4]) {
  %h: f32[B, 4] = softmax(%x)
  %w: f32[4, 1] = constant() {value = dense<f32[4, 1]: [1.0, 2.0, 3.0, 4.0]>}
  %t: f32[4, B] = transpose(%h) {perm = [1, 0]}
  %m: f32[B, 1] = matmul(%h, %w)
  %f: f32[B, 1] = onnx.Foo(%m)
  %c: f32[2, 4] = add(%h, %cache)
  return %t, %f, %c -> %cache
}
"""
PLAN = """plan @main at B=2: arena of 768 bytes, at least 768, aligned to 256
buffers
  #0  arena     +256  32 bytes  before..0      x
  #1  state           32 bytes  before..after  cache
  #2  arena     +0    32 bytes  0..after       h
  #3  constant        16 bytes  1..3           w
  #4  arena     +256  8 bytes   3..5           m
  #5  arena     +512  8 bytes   5..after       f
steps
  0..4 captured
    0  compute  #2                  by lanes, host  %h: f32[2, 4] = softmax(%x)
    1  alias    #3                                  %w: f32[4, 1] = constant() {value = dense<f32[4, 1]: [1.0, 2.0, 3.0, 4.0]>}
    2  alias    #2 strides [4, 16]                  %t: f32[4, 2] = transpose(%h) {perm = [1, 0]}
    3  compute  #4                                  %m: f32[2, 1] = matmul(%h, %w)
    4  compute  #1                                  %c: f32[2, 4] = add(%h, %cache)
  5..5 eager - 5: it runs through another framework
    5  compute  #5                                  %f: f32[2, 1] = onnx.Foo(%m)
"""  # noqa: E501


def test_a_plan_is_a_text_in_columns() -> None:
    plan = make_plan(parse(TEXT), {"B": 2}, CUDA)
    assert print_plan(plan, {0: ("lanes", "host")}) == PLAN


def test_bodies_follow_with_plans_of_their_own() -> None:
    graph = parse("""graph @main(%n: i64[], %x: f32[4]) {
  %y: f32[4] = loop(%n, _, %x) {body = @step, carried = 1}
  return %y
}
graph @step(%i: i64[], %go: bool[], %a: f32[4]) {
  %b: f32[4] = exp(%a)
  return %go, %b
}""")
    first, body = print_plan(make_plan(graph, {}, HOST)).split("\n\n")
    assert first.startswith("plan @main: arena of ")
    assert "eager - 0: it runs regions as often as values say" in first
    assert body.startswith("plan @step: arena of ")


def test_a_state_that_is_copied_is_told() -> None:
    graph = parse("graph @main(%s: f32[4], %r: f32[4]) { return %r -> %s, %s -> %r }")
    assert print_plan(make_plan(graph, {}, HOST)).endswith("copy %0 into state %s\ncopy %1 into state %r\n")
