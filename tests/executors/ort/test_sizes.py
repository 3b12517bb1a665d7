from capgraph.executors.ort.wrong_numbers import size_givers
from capgraph.ir.text.parser import parse


def test_inputs_that_tell_sizes_are_found() -> None:
    graph = parse(
        """graph @main(%x: f32[B, 2*T], %y: f32[T], %z: f32[3]) {
  %s: i64[2] = dims() {values = [B, 3]}
  %f: f32[T, B] = full() {shape = [T, B], value = dense<f32[]: 1.0>}
  %n: f32[3] = neg(%z)
  return %s, %f, %n
}"""
    )
    s, f, n = graph.nodes
    x, y, z = graph.inputs
    assert size_givers(graph, [s], []) == [x]
    assert size_givers(graph, [f], []) == [x, y]
    assert size_givers(graph, [f], [y]) == [x]
    assert size_givers(graph, [n], [z]) == []


def test_sizes_in_bodies_count() -> None:
    graph = parse(
        """graph @main(%x: f32[B], %c: bool[], %z: i64[1]) {
  %y: i64[1] = if(%c, %z) {then_body = @then, else_body = @else}
  return %y
}

graph @then(%p: i64[1]) {
  %0: i64[1] = dims() {values = [B]}
  return %0
}

graph @else(%q: i64[1]) {
  return %q
}"""
    )
    (node,) = graph.nodes
    assert size_givers(graph, [node], node.operands) == [graph.inputs[0]]


def test_what_tells_sizes_of_which_operands_have_products_is_found() -> None:
    graph = parse(
        """graph @main(%s: i64[3], %x: f32[B, 2]) {
  %all: f32[u0, u1, u2] = dynamic_full(%s) {value = dense<f32[]: 1.0>}
  %flat: f32[u0, u1*u2] = reshape(%all) {shape = [u0, u1*u2]}
  %left: f32[u0, u1*u2] = softmax(%flat)
  %back: f32[u0, u1, u2] = reshape(%left) {shape = [u0, u1, u2]}
  %same: f32[u0*u1*u2] = reshape(%left) {shape = [u0*u1*u2]}
  return %back, %same
}"""
    )
    whole, _, softmax, back, _ = graph.nodes
    assert size_givers(graph, [back], back.operands) == [whole.output]
    assert size_givers(graph, [softmax], softmax.operands) == []
    assert size_givers(graph, graph.nodes, graph.inputs) == []
