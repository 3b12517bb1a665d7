import pytest

from tests.passes.planning.padding.judging import maskable, safe, unsafe


def test_merging_behind_and_splitting_again_finds_the_axis() -> None:
    safe("""
        graph @main(%x: f32[B, S, 6], %w: f32[6, 6]) {
          %a: f32[B*S, 6] = reshape(%x) {shape = [B*S, 6]}
          %b: f32[B*S, 6] = matmul(%a, %w)
          %c: f32[B, S, 2, 3] = reshape(%b) {shape = [B, S, 2, 3]}
          %d: f32[B, 2, S, 3] = transpose(%c) {perm = [0, 2, 1, 3]}
          return %d
        }""")


def test_an_output_needs_its_real_elements_first() -> None:
    unsafe(
        """
        graph @main(%x: f32[B, S, 6]) {
          %a: f32[B*S, 6] = reshape(%x) {shape = [B*S, 6]}
          return %a
        }""",
        "output a has its real elements between padding",
    )


def test_two_axes_of_the_dim_cannot_be_merged() -> None:
    unsafe(
        """
        graph @main(%x: f32[S, S, 4]) {
          %a: f32[S*S, 4] = reshape(%x) {shape = [S*S, 4]}
          return %a
        }""",
        "merges it",
    )


def test_a_reshape_may_not_tear_the_dim_apart() -> None:
    unsafe(
        """
        graph @main(%x: f32[2*S]) {
          %a: f32[2, S] = reshape(%x) {shape = [2, S]}
          return %a
        }""",
        "tears axis 0",
    )


END = 2**63 - 1


@pytest.mark.parametrize(
    ("start", "end", "size"),
    [(0, END, "S"), (1, END, "max(0, S - 1)"), (0, 2, "min(2, S)"), (0, -1, "max(0, S - 1)")],
)
def test_a_slice_from_a_fixed_place_takes_real_elements_first(start: int, end: int, size: str) -> None:
    safe(f"""
        graph @main(%x: f32[S, 4]) {{
          %a: f32[{size}, 4] = slice(%x) {{axes = [0], starts = [{start}], ends = [{end}], steps = [1]}}
          return %a
        }}""")


@pytest.mark.parametrize(("end", "step", "size"), [(END, 1, "min(1, S)"), (-END, -1, "S")])
def test_a_slice_from_the_end_takes_padding(end: int, step: int, size: str) -> None:
    unsafe(
        f"""
        graph @main(%x: f32[S, 4]) {{
          %a: f32[{size}, 4] = slice(%x) {{axes = [0], starts = [-1], ends = [{end}], steps = [{step}]}}
          return %a
        }}""",
        "depends on S",
    )


def test_a_table_cut_to_the_dim_carries_it() -> None:
    safe("""
        graph @main(%x: f32[S, 4], %table: f32[8, 4]) {
          %rows: f32[min(8, S), 4] = slice(%table) {axes = [0], starts = [0], ends = [S], steps = [1]}
          %a: f32[S, 4] = add(%x, %rows)
          return %a
        }""")


def test_the_first_element_of_the_dim_is_real() -> None:
    safe("""
        graph @main(%x: f32[B, S, 4]) {
          %a: f32[B, min(1, S), 4] = slice(%x) {axes = [1], starts = [0], ends = [1], steps = [1]}
          return %a
        }""")


def test_the_dim_may_be_appended_and_nothing_may_follow_it() -> None:
    safe("""
        graph @main(%x: f32[S, 4], %past: f32[P, 4]) {
          %a: f32[P + S, 4] = concat(%past, %x) {axis = 0}
          return %a
        }""")
    unsafe(
        """
        graph @main(%x: f32[S, 4], %past: f32[P, 4]) {
          %a: f32[P + S, 4] = concat(%x, %past) {axis = 0}
          return %a
        }""",
        "padding of S in the middle",
    )


def test_what_stands_behind_the_dim_moves_up() -> None:
    maskable(
        """
        graph @main(%x: f32[S, 4], %y: f32[3, 4]) {
          %a: f32[S + 3, 4] = concat(%x, %y) {axis = 0}
          return %a
        }""",
        "padding of S in the middle",
    )


def test_parts_before_the_dim_stay() -> None:
    maskable(
        """
        graph @main(%x: f32[4, S], %y: f32[4, 3], %z: f32[4, 1]) {
          %a: f32[4, S + 5] = concat(%z, %x, %y, %z) {axis = 1}
          return %a
        }""",
        "padding of S in the middle",
    )


def test_parts_behind_the_dim_may_have_sizes_that_are_known_of_all_calls() -> None:
    maskable(
        """
        graph @main(%x: f32[S, 4], %b: f32[B, 4]) {
          %y: f32[min(B, 2), 4] = slice(%b) {starts = [0], ends = [2], axes = [0], steps = [1]}
          %a: f32[S + min(B, 2), 4] = concat(%x, %y) {axis = 0}
          return %a
        }""",
        "padding of S in the middle",
        least=2,
    )


def test_parts_side_by_side_agree() -> None:
    safe("""
        graph @main(%x: f32[S, 4]) {
          %a: f32[S, 1], %b: f32[S, 3] = split(%x) {axis = 1, sizes = [1, 3]}
          %c: f32[S, 4] = concat(%b, %a) {axis = 1}
          return %c
        }""")


def test_repeating_and_expanding() -> None:
    safe("""
        graph @main(%x: f32[S, 1, 4], %y: f32[1, 4]) {
          %a: f32[S, 3, 4] = expand(%x) {shape = [S, 3, 4]}
          %b: f32[S, 4] = expand(%y) {shape = [S, 4]}
          %c: f32[S, 6, 4] = tile(%a) {repeats = [1, 2, 1]}
          return %b, %c
        }""")


def test_padding_in_front_only_moves_the_dim() -> None:
    safe("""
        graph @main(%x: f32[S, 4]) {
          %a: f32[S + 1, 7] = pad(%x, _) {pads = [1, 1, 0, 2]}
          return %a
        }""")
    unsafe(
        """
        graph @main(%x: f32[S, 4]) {
          %a: f32[S + 1, 4] = pad(%x, _) {pads = [0, 0, 1, 0]}
          return %a
        }""",
        "it pads axis 0",
    )


def test_triangles_keep_their_rows_and_columns() -> None:
    safe("""
        graph @main(%x: f32[S, S]) {
          %a: f32[S, S] = trilu(%x)
          return %a
        }""")
