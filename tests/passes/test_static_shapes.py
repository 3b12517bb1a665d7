"""Dynamic ops with known operands become static, and the symbols of their results go."""

import pytest
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse
from capgraph.passes.cleanup.static_shapes import StaticShapes
from capgraph.passes.framework.exactness import Exactness
from capgraph.passes.framework.numeric import Samples
from capgraph.passes.framework.pipeline import Pipeline

from tests.passes.checking import check_pass

VECTOR = "%v = constant() {{value = dense<i64[{}]: {}>}}"
SCALAR = "%s = constant() {{value = dense<i64[]: {}>}}"


@pytest.mark.parametrize(
    ("dynamic", "static"),
    [
        (f"{VECTOR.format(2, [0, -1])} %y = dynamic_reshape(%x, %v)", "%y = reshape(%x) {shape = [B, 12]}"),
        (f"{VECTOR.format(3, [1, 3, 1])} %y = dynamic_expand(%x, %v)", "%y = expand(%x) {shape = [B, 3, 4]}"),
        (f"{VECTOR.format(3, [1, 2, 1])} %y = dynamic_tile(%x, %v)", "%y = tile(%x) {repeats = [1, 2, 1]}"),
        (f"{VECTOR.format(1, [0])} %y = dynamic_unsqueeze(%x, %v)", "%y = unsqueeze(%x) {axes = [0]}"),
        (f"{SCALAR.format(1)} %y = dynamic_trilu(%x, %s) {{upper = true}}", "%y = trilu(%x) {diagonal = 1}"),
        (f"{SCALAR.format(1)} %y = dynamic_cumsum(%x, %s)", "%y = cumsum(%x) {axis = 1}"),
        (
            f'{VECTOR.format(1, [1])} %y = dynamic_reduce(%x, %v) {{kind = "max", keep_dims = false}}',
            "%y = reduce_max(%x) {axes = [1], keep_dims = false}",
        ),
        (
            f"{VECTOR.format(2, [1, 0])} %w = constant() {{value = dense<i64[2]: [3, 2]>}} "
            "%y = dynamic_slice(%x, %v, %w, %v, _)",
            "%y = slice(%x) {axes = [1, 0], starts = [1, 0], ends = [3, 2], steps = [1, 1]}",
        ),
        (
            f"{VECTOR.format(2, [1, 2])} %w = constant() {{value = dense<i64[1]: [1]>}} "
            '%y = dynamic_pad(%x, %v, _, %w) {mode = "constant"}',
            '%y = pad(%x, _) {pads = [0, 1, 0, 0, 2, 0], mode = "constant"}',
        ),
    ],
)
def test_constants(dynamic: str, static: str) -> None:
    """Unused constants go with the dynamic node."""
    check_pass(
        StaticShapes(),
        f"graph @main(%x: f32[B, 3, 4]) {{ {dynamic} return %y }}",
        f"graph @main(%x: f32[B, 3, 4]) {{ {static} return %y }}",
    )


def test_a_size_that_breaks_what_follows_stays_dynamic() -> None:
    text = f"""graph @main(%x: f32[1]) {{
      {VECTOR.format(1, [1])}
      %y: f32[u0] = dynamic_reshape(%x, %v)
      %p, %q = split(%y) {{axis = 0, sizes = [2, u0 - 2]}}
      return %q
    }}"""
    check_pass(StaticShapes(), text, None, numeric=False)


def test_sizes_that_may_be_one_stay_dynamic() -> None:
    text = """graph @main(%x: f32[A, 2], %o: f32[B, 2]) {
      %s: i64[2] = shape(%o)
      %y: f32[u0, 2] = dynamic_expand(%x, %s)
      return %y
    }"""
    check_pass(StaticShapes(), text, None, numeric=False)


def test_several_results() -> None:
    check_pass(
        StaticShapes(),
        """
        graph @main(%x: f32[B, 5]) {
          %v = constant() {value = dense<i64[2]: [2, 3]>}
          %a, %b = dynamic_split(%x, %v) {axis = 1}
          %k = constant() {value = dense<i64[1]: [2]>}
          %c, %d = dynamic_top_k(%b, %k) {axis = -1}
          return %a, %c, %d
        }""",
        """
        graph @main(%x: f32[B, 5]) {
          %a, %b = split(%x) {axis = 1, sizes = [2, 3]}
          %c, %d = top_k(%b) {k = 2, axis = -1}
          return %a, %c, %d
        }""",
    )


def test_sizes_of_the_inputs_and_what_depends_on_them() -> None:
    check_pass(
        StaticShapes(),
        """
        graph @main(%x: f32[B, T]) {
          %v = dims() {values = [T, B]}
          %a: f32[u0, u1] = dynamic_reshape(%x, %v)
          %b: f32[u0, u1] = relu(%a)
          %c: f32[u0*u1] = reshape(%b) {shape = [u0*u1]}
          return %c
        }""",
        """
        graph @main(%x: f32[B, T]) {
          %a = reshape(%x) {shape = [T, B]}
          %b = relu(%a)
          %c = reshape(%b) {shape = [B*T]}
          return %c
        }""",
    )


def test_ranges() -> None:
    check_pass(
        StaticShapes(),
        """
        graph @main(%x: f32[T]) {
          %zero = constant() {value = dense<i64[]: 0>}
          %one = constant() {value = dense<i64[]: 1>}
          %t = dim() {value = T}
          %a = dynamic_arange(%zero, %t, %one)
          %f = constant() {value = dense<f32[]: 0.0>}
          %g = constant() {value = dense<f32[]: 1.0>}
          %h = constant() {value = dense<f32[]: 0.5>}
          %b = dynamic_arange(%f, %g, %h)
          return %a, %b
        }""",
        """
        graph @main(%x: f32[T]) {
          %a = arange() {limit = T}
          %b = constant() {value = dense<f32[2]: [0.0, 0.5]>}
          return %a, %b
        }""",
    )


@pytest.mark.parametrize(
    ("shape", "wanted", "attrs", "is_known"),
    [
        ("B*T, 768", "B, T, 12, 64", "", False),  # [0, 768, 12, 64] for B = T = 0
        ("B*12, 768", "B, 12, 12, 64", "", True),
        ("B, T, 768", "B*T, 768", "", True),
        ("B, T, 768", "B, -1", "", True),
        ("2, B, 3", "B, 2, 3", "", True),  # without elements it copies the 2, and these are too many
        ("2, B, 3", "B, -1", "", False),  # [2, 0] for B = 0
        ("2, B, 3, T", "B, T, 6", "", False),  # [2, 0, 6] for B = T = 0
        ("B, T", "B*T, 1", "", True),
        ("B, T, 3", "B*T, -1", "", False),  # [B, 0] for T = 0
        ("B + 1, T, 5", "1, B*T + T, -1", "", False),  # [1, 0, 5*B + 5] for T = 0
        ("4, B, 1, T", "2, 2, B, 0", "", False),  # [2, 2, 1, 0] for B = T = 0: the literal 0 copies T
        ("B, T, 3", "B*T, -1", "{allow_zero = true}", True),  # nothing is defined for T = 0
    ],
)
def test_a_size_that_may_be_zero_copies_none(shape: str, wanted: str, attrs: str, is_known: bool) -> None:
    graph = parse(
        f"graph @main(%x: f32[{shape}]) {{ %v: i64[{wanted.count(',') + 1}] = dims() {{values = [{wanted}]}} "
        f"%y = dynamic_reshape(%x, %v) {attrs} return %y }}"
    )
    samples = [samples_for(graph, {"B": b, "T": t}) for b in (0, 2) for t in (0, 3)]
    Pipeline(((StaticShapes(),),)).run(graph, check="structure")
    assert ("reshape" in {node.op.name for node in graph.nodes}) is is_known
    for each in samples:
        assert each is None or each.first_difference(graph, Exactness.EXACT) == ""


def samples_for(graph: Graph, sizes: dict[str, int]) -> Samples | None:
    """What the graph gives at these sizes; None where nothing is defined."""
    try:
        return Samples.drawn(graph, count=1, sizes=sizes)
    except UnsupportedError:
        return None


@pytest.mark.parametrize(
    "body",
    [
        "%y = dynamic_reshape(%x, %given)",  # only running can tell
        "%n = non_zero(%x) %s = shape(%n) {start = 1, end = 2} %y = dynamic_reshape(%x, %s)",
        f"{VECTOR.format(2, [3, 5])} %y = dynamic_reshape(%x, %v)",  # true for one size only
        f"{VECTOR.format(1, [9])} %y = dynamic_unsqueeze(%x, %v)",  # an error, which belongs to the run
    ],
)
def test_stays(body: str) -> None:
    text = f"graph @main(%x: f32[B, 3], %given: i64[2]) {{ {body} return %y }}"
    check_pass(StaticShapes(), text, None, numeric=False)
