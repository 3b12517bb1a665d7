import pytest

from tests.passes.planning.padding.judging import maskable, safe, unsafe


def test_a_broadcast_keeps_rows_apart() -> None:
    safe("""
        graph @main(%x: f32[S, 4], %y: f32[4], %z: f32[S, 1]) {
          %a: f32[S, 4] = add(%x, %y)
          %b: f32[S, 4] = mul(%a, %z)
          return %b
        }""")


def test_an_axis_that_carries_the_dim_may_not_meet_a_fixed_one() -> None:
    unsafe(
        """
        graph @main(%x: f32[S, 4], %y: f32[3, 4]) {
          %a: f32[3, 4] = add(%x, %y)
          return %a
        }""",
        "meets one of size 3",
    )


def test_merged_axes_meet_only_where_their_real_elements_do() -> None:
    safe("""
        graph @main(%x: f32[S, 2, 3], %y: f32[S, 2, 3]) {
          %a: f32[2*S, 3] = reshape(%x) {shape = [2*S, 3]}
          %b: f32[2*S, 3] = reshape(%y) {shape = [2*S, 3]}
          %c: f32[2*S, 3] = add(%a, %b)
          return %c
        }""")
    unsafe(
        """
        graph @main(%x: f32[S, 2, 3], %y: f32[2, S, 3]) {
          %a: f32[2*S, 3] = reshape(%x) {shape = [2*S, 3]}
          %b: f32[2*S, 3] = reshape(%y) {shape = [2*S, 3]}
          %c: f32[2*S, 3] = add(%a, %b)
          return %c
        }""",
        "different places",
    )


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("operands", ["%x", "%x, %y", "%x, %y, %z"])
def test_an_extremum_of_any_number_of_operands_keeps_rows_apart(op: str, operands: str) -> None:
    safe(f"""
        graph @main(%x: f32[S, 4], %y: f32[4], %z: f32[S, 1]) {{
          %a: f32[S, 4] = {op}({operands})
          return %a
        }}""")


def test_a_fill_goes_through_elementwise_work() -> None:
    # exp(-inf) is 0, so that the sum needs no second mask.
    masked = maskable(
        """
        graph @main(%x: f32[4, S]) {
          %e: f32[4, S] = exp(%x)
          %s: f32[4] = reduce_sum(%e) {axes = [1], keep_dims = false}
          %m: f32[4] = reduce_max(%x) {axes = [1], keep_dims = false}
          return %s, %m
        }""",
        "it reduces axis 1",
    )
    assert sum(node.op.name == "where" for node in masked.nodes) == 2


def test_texts_that_are_no_numbers_cannot_be_cast() -> None:
    unsafe(
        """
        graph @main(%x: string[S]) {
          %a: f32[S] = cast(%x) {to = f32}
          return %a
        }""",
        "a padded text may not be a number",
    )


def test_a_condition_selects_what_stands_behind_the_real_elements() -> None:
    masked = maskable(
        """
        graph @main(%x: f32[4, S]) {
          %s: f32[4, 1] = reduce_sum(%x) {axes = [1]}
          return %s
        }""",
        "it reduces axis 1",
    )
    safe_text = [node.op.name for node in masked.nodes]
    assert safe_text == ["arange", "less", "reshape", "constant", "where", "reduce_sum"]
