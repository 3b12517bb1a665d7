from tests.passes.planning.padding.judging import safe, unsafe


def test_numbers_behind_the_real_ones_are_safe() -> None:
    safe("""
        graph @main(%x: f32[S, 4], %s: u64[2]) {
          %n: f32[S, 4] = keyed_random_normal(%s) {shape = [S, 4], dtype = f32, stream = 1}
          %a: f32[S, 4] = add(%x, %n)
          return %a
        }""")
    safe("""
        graph @main(%x: f32[S, 4], %s: u64[2]) {
          %n: f32[1, 2*S, 4] = keyed_random_uniform(%s) {shape = [1, 2*S, 4], dtype = f32}
          return %x, %n
        }""")
    safe("""
        graph @main(%x: f32[S, 4], %s: u64[2]) {
          %n: bool[S, 4] = keyed_bernoulli(%x, %s) {dtype = bool}
          %m: i64[S, 3] = keyed_multinomial(%x, %s) {dtype = i64, sample_size = 3}
          return %n, %m
        }""")


def test_rows_that_get_longer_draw_other_numbers() -> None:
    unsafe(
        """
        graph @main(%x: f32[4, S], %s: u64[2]) {
          %n: f32[4, S] = keyed_random_normal(%s) {shape = [4, S], dtype = f32}
          %a: f32[4, S] = add(%x, %n)
          return %a
        }""",
        "elements lie elsewhere",
    )
    unsafe(
        """
        graph @main(%x: f32[4, S], %s: u64[2]) {
          %n: bool[4, S] = keyed_bernoulli(%x, %s) {dtype = bool}
          return %n
        }""",
        "elements lie elsewhere",
    )


def test_padded_classes_are_drawn_from() -> None:
    unsafe(
        """
        graph @main(%x: f32[4, S], %s: u64[2]) {
          %n: i64[4, 3] = keyed_multinomial(%x, %s) {dtype = i64, sample_size = 3}
          return %n
        }""",
        "the classes carry S",
    )
