from tests.passes.planning.padding.judging import maskable, safe


def test_the_dim_as_a_shape_is_safe() -> None:
    safe("""
        graph @main(%x: f32[S, 4]) {
          %z: f32[S, 4] = full() {shape = [S, 4], value = dense<f32[]: 2.0>}
          %n: i64[S] = arange() {limit = S}
          %f: f32[S] = cast(%n) {to = f32}
          %u: f32[S, 1] = reshape(%f) {shape = [S, 1]}
          %a: f32[S, 4] = add(%x, %z)
          %b: f32[S, 4] = mul(%a, %u)
          return %b
        }""")


def test_the_dim_as_a_number_becomes_the_real_one() -> None:
    maskable(
        """
        graph @main(%x: f32[S, 4]) {
          %n: i64[] = dim() {value = S + 1}
          %f: f32[] = cast(%n) {to = f32}
          %a: f32[S, 4] = div(%x, %f)
          return %a
        }""",
        "it gives the padded size S + 1 as a number",
    )


def test_sizes_that_only_running_reads_become_the_real_ones() -> None:
    maskable(
        """
        graph @main(%x: f32[S, 4]) {
          %n: i64[2] = shape(%x)
          return %n
        }""",
        "it gives a padded size",
    )
    safe("""
        graph @main(%x: f32[S, 4]) {
          %n: i64[1] = shape(%x) {start = 1}
          %a: f32[S, 4] = neg(%x)
          return %n, %a
        }""")


def test_what_nothing_reads_is_left_out() -> None:
    safe("""
        graph @main(%x: f32[S, 4]) {
          %n: i64[2] = shape(%x)
          %a: f32[S, 4] = neg(%x)
          return %a
        }""")
