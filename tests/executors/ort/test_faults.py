import pytest
from capgraph.executors.ort.faults import dims_to_watch, known_fault
from capgraph.ir.dims import symbol
from capgraph.ir.parser import parse

GRU = """graph @main(%x: f32[T, B, 3], %w: f32[1, 12, 3], %r: f32[1, 12, 4]) {
  %y: f32[T, 1, B, 4], %h: f32[1, B, 4] = gru(%x, %w, %r, _, _, _)
  return %h
}"""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("graph @main(%x: f64[2]) { %y: f64[2] = gelu(%x) return %y }", "f32"),
        ("graph @main(%x: f32[2]) { %y: f32[2] = gelu(%x) return %y }", ""),
        ("graph @main(%x: bool[2]) { %y: string[2] = cast(%x) {to = string} return %y }", "0 and 1"),
        ("graph @main(%x: f32[2]) { %y: string[2] = cast(%x) {to = string} return %y }", ""),
        ("graph @main(%x: f32[0, 2], %y: f32[B, 2]) { %z: f32[B, 2] = concat(%x, %y) {axis = 0} return %z }", ""),
        ("graph @main(%x: f32[0, 2]) { %y: f32[0, 2] = relu(%x) return %y }", ""),
        ("graph @main(%x: f32[0, 2]) { %y: f32[1, 2] = reduce_sum(%x) {axes = [0]} return %y }", "without elements"),
        ("graph @main(%x: string[2, 3]) { %y: string[2, 3] = roll(%x) {axes = [0], shifts = [1]} return %y }", "strin"),
        ("graph @main(%x: bool[]) { %y: i64[0, u0] = non_zero(%x) return %y }", "scalar"),
    ],
)
def test_known_faults(text: str, fault: str) -> None:
    (node,) = parse(text).nodes
    assert fault in known_fault(node)
    assert bool(fault) is bool(known_fault(node))


@pytest.mark.parametrize(("given", "fault"), [(", activation_alpha = [0.5]", "parameters"), ("", "")])
def test_parameters_of_activations(given: str, fault: str) -> None:
    text = GRU.replace("_, _, _)", f'_, _, _) {{activations = ["HardSigmoid", "Tanh"]{given}}}')
    assert fault in known_fault(list(parse(text).nodes)[-1])


def test_sizes_of_recurrent_cells_are_watched() -> None:
    assert dims_to_watch(parse(GRU)) == (symbol("T"), symbol("B"))
    assert dims_to_watch(parse("graph @main(%x: f32[T]) { %y: f32[T] = relu(%x) return %y }")) == ()


def test_sizes_that_only_running_tells_keep_recurrent_cells_out() -> None:
    text = GRU.replace("%x: f32[T, B, 3]", "%s: f32[N, B, 3], %m: bool[N]").replace("T, 1", "u0, 1")
    graph = parse(text.replace(") {\n", ") {\n  %x: f32[u0, B, 3] = compress(%s, %m) {axis = 0}\n"))
    assert "only running tells" in known_fault(list(graph.nodes)[-1])
    assert set(dims_to_watch(graph)) == {symbol("N"), symbol("B")}
