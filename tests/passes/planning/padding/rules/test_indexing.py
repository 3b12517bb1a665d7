import numpy as np
import pytest
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.text.parser import parse
from capgraph.passes.planning.padding import padding_safety

from tests.passes.planning.padding.judging import maskable, safe, unsafe


def test_indices_of_a_caller_are_filled() -> None:
    safe(
        """
        graph @main(%ids: i64[B, S], %table: f32[5, 4]) {
          %flat: i64[B*S] = reshape(%ids) {shape = [B*S]}
          %a: f32[B*S, 4] = gather(%table, %flat)
          %b: f32[B, S, 4] = reshape(%a) {shape = [B, S, 4]}
          return %b
        }""",
        ids=0,
    )


def test_computed_indices_are_masked() -> None:
    maskable(
        """
        graph @main(%ids: i64[S], %table: f32[5, 4]) {
          %one: i64[] = constant() {value = dense<i64[]: 1>}
          %next: i64[S] = add(%ids, %one)
          %a: f32[S, 4] = gather(%table, %next)
          return %a
        }""",
        "padded indices can be out of range",
    )


def test_positions_are_in_range_up_to_the_largest_size() -> None:
    safe("""
        graph @main(%x: f32[S, 4], %table: f32[8, 4]) {
          %n: i64[S] = arange() {limit = S}
          %a: f32[S, 4] = gather(%table, %n)
          %b: f32[S, 4] = add(%x, %a)
          return %b
        }""")
    maskable(
        """
        graph @main(%x: f32[S, 4], %table: f32[7, 4]) {
          %n: i64[S] = arange() {limit = S}
          %a: f32[S, 4] = gather(%table, %n)
          %b: f32[S, 4] = add(%x, %a)
          return %b
        }""",
        "padded indices can be out of range",
    )


@pytest.mark.parametrize("types", [("u32", "i32"), ("u64", "i64")])
def test_a_great_index_may_become_negative(types: tuple[str, str]) -> None:
    text = """
        graph @main(%x: f32[S, 4], %i: {}[3]) {{
          %j: {}[3] = cast(%i) {{to = {}}}
          %a: f32[3, 4] = gather(%x, %j)
          return %a
        }}"""
    unsafe(text.format(types[0], types[1], types[1]), "an index may count from the end")
    assert padding_safety(parse(text.format("u32", "i64", "i64")), "S", largest=8, least=1).is_safe


@pytest.mark.parametrize("op", ["add", "mul"])
def test_what_wraps_around_may_become_negative(op: str) -> None:
    text = f"""
        graph @main(%x: f32[S, 4], %i: u16[3]) {{
          %a: i32[3] = cast(%i) {{to = i32}}
          %b: i32[3] = {op}(%a, %a)
          %z: i32[] = constant() {{value = dense<i32[]: 0>}}
          %j: i32[3] = min(%b, %z)
          %y: f32[3, 4] = gather(%x, %j)
          return %y
        }}"""
    unsafe(text, "an index may count from the end")


@pytest.mark.parametrize("result", ["add(%c, %c)", "add(%c, %n)", "add(%n, %c)", "mul(%c, %c)", "mul(%c, %n)"])
@pytest.mark.parametrize("most", [2**63 - 1, 2**62])
def test_what_comes_near_the_greatest_integer_may_wrap_around(result: str, most: int) -> None:
    size = "[R]" if "%n" in result else "[]"
    unsafe(
        f"""
        graph @main(%x: f32[S, 4], %y: f32[R, 4]) {{
          %c: i64[] = constant() {{value = dense<i64[]: {most}>}}
          %n: i64[R] = arange() {{limit = R}}
          %a: i64{size} = {result}
          %z: i64[] = constant() {{value = dense<i64[]: 0>}}
          %j: i64{size} = min(%a, %z)
          %g: f32{size.replace("]", ", 4]") if "R" in size else "[4]"} = gather(%x, %j)
          return %g
        }}""",
        "an index may count from the end",
    )


def test_an_index_into_the_dim_may_not_count_from_its_end() -> None:
    unsafe(
        """
        graph @main(%x: f32[S, 4], %i: i64[B]) {
          %a: f32[B, 4] = gather(%x, %i)
          return %a
        }""",
        "an index may count from the end",
    )
    safe(
        """
        graph @main(%x: f32[S, 4]) {
          %i: i64[1] = constant() {value = dense<i64[1]: [0]>}
          %a: f32[1, 4] = gather(%x, %i)
          return %a
        }""",
        least=1,
    )
    unsafe(
        """
        graph @main(%x: f32[S, 4]) {
          %i: i64[1] = constant() {value = dense<i64[1]: [-1]>}
          %a: f32[1, 4] = gather(%x, %i)
          return %a
        }""",
        "an index may count from the end",
    )


def test_elements_by_index_along_another_axis() -> None:
    safe(
        """
        graph @main(%x: f32[S, 4], %i: i64[S, 2]) {
          %a: f32[S, 2] = gather_elements(%x, %i) {axis = 1}
          return %a
        }""",
        i=0,
    )


def test_classes_of_each_row() -> None:
    safe("""
        graph @main(%i: i64[S], %v: f32[2]) {
          %a: f32[S, 3] = one_hot(%i, %v) {depth = 3}
          return %a
        }""")


def test_each_sample_has_a_cache_of_its_own() -> None:
    safe(
        """
        graph @main(%c: f32[S, 2, 6, 4], %u: f32[S, 2, 3, 4], %p: i64[S]) {
          %a: f32[S, 2, 6, 4] = tensor_scatter(%c, %u, %p)
          return %a
        }""",
        p=0,
    )
    unsafe(
        """
        graph @main(%c: f32[B, 2, 9, 4], %u: f32[B, 2, S, 4], %p: i64[B]) {
          %a: f32[B, 2, 9, 4] = tensor_scatter(%c, %u, %p)
          return %a
        }""",
        "padded steps of S would be written",
    )


def test_padded_rows_of_a_scatter_write_its_last_row_again() -> None:
    maskable(
        """
        graph @main(%x: f32[S, 4], %c: f32[9, 4]) {
          %n: i64[S] = arange() {limit = S}
          %i: i64[S, 1] = reshape(%n) {shape = [S, 1]}
          %a: f32[9, 4] = scatter_nd(%c, %i, %x)
          return %a -> %c
        }""",
        "padded rows of S would be written",
    )


def test_a_scatter_of_no_rows_writes_nothing() -> None:
    masked = maskable(
        """
        graph @main(%c: f32[9, 4], %i: i64[S, 1], %u: f32[S, 4]) {
          %a: f32[9, 4] = scatter_nd(%c, %i, %u)
          return %a
        }""",
        "padded rows of S would be written",
    )
    target = np.arange(36, dtype=np.float32).reshape(9, 4)
    given = [target, np.full((8, 1), 99), np.full((8, 4), np.nan, np.float32), np.array(0)]
    np.testing.assert_array_equal(evaluate_graph(masked, given)[0], target)


@pytest.mark.parametrize("dtype", ["i4", "u2", "i8", "u64"])
@pytest.mark.parametrize("reduction", ["max", "min"])
def test_every_integer_has_a_greatest_and_a_least(dtype: str, reduction: str) -> None:
    graph = parse(f"""
        graph @main(%c: {dtype}[9], %i: i64[S, 1], %u: {dtype}[S]) {{
          %a: {dtype}[9] = scatter_nd(%c, %i, %u) {{reduction = "{reduction}"}}
          return %a
        }}""")
    assert not padding_safety(graph, "S").is_safe  # a verdict, not an error


def test_of_equal_indices_the_last_stays() -> None:
    masked = maskable(
        """
        graph @main(%c: f32[9, 4], %i: i64[S, 1], %u: f32[S, 4]) {
          %a: f32[9, 4] = scatter_nd(%c, %i, %u)
          return %a
        }""",
        "padded rows of S would be written",
    )
    target, updates = np.zeros((9, 4), np.float32), np.arange(20, dtype=np.float32).reshape(5, 4)
    indices = np.array([[2], [5], [2], [99], [99]])
    expected = target.copy()
    expected[[5, 2]] = updates[1:3]
    np.testing.assert_array_equal(evaluate_graph(masked, [target, indices, updates, np.array(3)])[0], expected)


def test_a_scatter_of_no_rows_needs_a_row_of_the_target() -> None:
    maskable(
        """
        graph @main(%c: f32[B, 4], %i: i64[S, 1], %u: f32[S, 4]) {
          %a: f32[B, 4] = scatter_nd(%c, %i, %u)
          return %a
        }""",
        "padded rows of S would be written",
        least=1,
    )


def test_an_index_may_not_lie_in_the_padding() -> None:
    unsafe(
        """
        graph @main(%x: f32[S, 4], %i: u8[3]) {
          %two: u8[] = constant() {value = dense<u8[]: 2>}
          %twice: u8[3] = mul(%i, %two)
          %j: i64[3] = cast(%twice) {to = i64}
          %a: f32[3, 4] = gather(%x, %j)
          return %a
        }""",
        "an index may lie in the padding",
    )
    unsafe(
        """
        graph @main(%x: f32[S, 4]) {
          %i: i64[1] = constant() {value = dense<i64[1]: [2]>}
          %a: f32[1, 4] = gather(%x, %i)
          return %a
        }""",
        "an index may lie in the padding",
    )


def test_a_scatter_of_other_axes() -> None:
    safe("""
        graph @main(%c: f32[9, S], %i: i64[B, 1], %u: f32[B, S]) {
          %a: f32[9, S] = scatter_nd(%c, %i, %u)
          return %a
        }""")


ADDED = "graph @main(%d: f32[4, 3], %i: i64[{index}], %u: f32[S, 3]) {{ %y: f32[4, 3] = {op} return %y }}"


@pytest.mark.parametrize(
    ("index", "op"),
    [
        ("S, 1", 'scatter_nd(%d, %i, %u) {reduction = "add"}'),
        ("S, 1", 'scatter_nd(%d, %i, %u) {reduction = "mul"}'),
        ("S, 1", 'scatter_nd(%d, %i, %u) {reduction = "max"}'),
        ("S, 3", 'scatter_elements(%d, %i, %u) {axis = 0, reduction = "add"}'),
        ("S, 3", 'scatter_elements(%d, %i, %u) {axis = 0, reduction = "mul"}'),
        ("S, 3", 'scatter_elements(%d, %i, %u) {axis = 0, reduction = "max"}'),
        ("S, 3", 'scatter_elements(%d, %i, %u) {axis = 0, reduction = "min"}'),
    ],
)
def test_padded_rows_are_taken_in_as_what_changes_nothing(index: str, op: str) -> None:
    masked = maskable(ADDED.format(index=index, op=op), "padded rows of S would be taken in")
    assert padding_safety(masked, "S", 8).fills == {"i": 0}
