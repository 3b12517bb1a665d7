import pytest
from capgraph.ir.text.parser import parse
from capgraph.passes.planning.padding import mask_padding, padding_safety

from tests.passes.planning.padding.judging import maskable, safe, unsafe


def test_zeros_behind_the_real_elements_are_not_found() -> None:
    safe("""
        graph @main(%x: f32[4], %y: f32[S]) {
          %n: i64[1, u0] = non_zero(%x)
          %e: f32[S] = exp(%y)
          return %n, %e
        }""")
    maskable(
        """
        graph @main(%x: f32[S, 3]) {
          %n: i64[2, u0] = non_zero(%x)
          return %n
        }""",
        "it would find padding of S",
    )


def test_rows_that_are_found_are_rows_that_there_are() -> None:
    maskable(
        """
        graph @main(%x: f32[S, 3], %t: f32[S, 2]) {
          %n: i64[2, u0] = non_zero(%x)
          %r: i64[1, u0] = slice(%n) {axes = [0], starts = [0], ends = [1], steps = [1]}
          %i: i64[u0] = squeeze(%r) {axes = [0]}
          %y: f32[u0, 2] = gather(%t, %i) {axis = 0}
          %p: i64[u0, 2] = transpose(%n) {perm = [1, 0]}
          %z: f32[u0] = gather_nd(%x, %p)
          return %y, %z
        }""",
        "it would find padding of S",
    )


def test_columns_that_are_found_may_not_be_rows() -> None:
    unsafe(
        """
        graph @main(%x: f32[S, 9], %t: f32[S, 2]) {
          %n: i64[2, u0] = non_zero(%x)
          %r: i64[1, u0] = slice(%n) {axes = [0], starts = [1], ends = [2], steps = [1]}
          %i: i64[u0] = squeeze(%r) {axes = [0]}
          %y: f32[u0, 2] = gather(%t, %i) {axis = 0}
          return %y
        }""",
        "it would find padding of S",
    )


@pytest.mark.parametrize(
    ("x", "condition", "axis", "result"),
    [("S, 3", "S", 0, "u0, 3"), ("S, 3", "2", 1, "S, u0"), ("S", "S", "none", "u0"), ("4, S", "4", 0, "u0, S")],
)
def test_slices_are_chosen_among_the_real_ones(x: str, condition: str, axis: int | str, result: str) -> None:
    text = f"""
        graph @main(%x: f32[{x}], %c: bool[{condition}]) {{
          %y: f32[{result}] = compress(%x, %c) {{axis = {axis}}}
          return %y
        }}"""
    if condition == "S":
        maskable(text, "it would find padding of S")
    else:
        safe(text)


def test_rows_of_a_flat_tensor_do_not_move() -> None:
    unsafe(
        """
        graph @main(%x: f32[3, S], %c: bool[3]) {
          %y: f32[u0] = compress(%x, %c)
          return %y
        }""",
        "elements of S lie elsewhere",
    )


def test_boxes_below_the_threshold_are_not_selected() -> None:
    head = "graph @main(%b: f32[1, S, 4], %s: f32[1, 2, S], %m: i64[], %o: f32[], %t: f32[]) {"
    text = head + "%n: i64[u0, 3] = non_max_suppression(%b, %s, %m, %o, {}) return %n }}"
    maskable(text.replace("{}", "%t").replace("}}", "}"), "it would find padding of S")
    unsafe(text.replace("{}", "_").replace("}}", "}"), "without a threshold it may select padding of S")


def test_what_is_distinct_may_be_padding() -> None:
    unsafe(
        """
        graph @main(%x: f32[S]) {
          %d: f32[u0], %f: i64[u1], %w: i64[S], %c: i64[u2] = unique(%x)
          return %d
        }""",
        "carries S",
    )


def test_the_count_of_a_twin_is_the_real_size() -> None:
    graph = parse("""
        graph @main(%x: f32[6], %y: f32[6]) {
          %n: i64[1, u0], %c: i64[] = bounded_non_zero(%x) {size = u0}
          %i: i64[u0] = squeeze(%n) {axes = [0]}
          %z: f32[u0] = gather(%y, %i) {axis = 0}
          %s: f32[] = reduce_sum(%z) {axes = [0], keep_dims = false}
          return %s
        }""")
    assert not padding_safety(graph, "u0", 6).is_safe
    masked = mask_padding(graph, "u0", 6)
    assert masked is not None
    assert [value.name for value in masked.inputs] == ["x", "y"]
    (less,) = (node for node in masked.nodes if node.op.name == "less")
    assert less.operands[1].name == "c"
