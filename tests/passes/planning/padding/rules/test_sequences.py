import pytest

from tests.passes.planning.padding.judging import maskable, safe, unsafe


def test_samples_and_queries_of_attention_are_safe() -> None:
    safe("""
        graph @main(%q: f32[S, 2, 3, 4], %k: f32[S, 2, 5, 4]) {
          %a: f32[S, 2, 3, 4] = attention(%q, %k, %k, _, _)
          return %a
        }""")
    safe("""
        graph @main(%q: f32[B, 2, S, 4], %k: f32[B, 1, 5, 4], %m: f32[S, 5]) {
          %a: f32[B, 2, S, 4] = attention(%q, %k, %k, %m, _)
          return %a
        }""")


@pytest.mark.parametrize(
    ("operands", "dtype"), [("_, _", "bool"), ("%m, _", "bool"), ("%m, _", "f32"), ("_, %l", "bool")]
)
def test_padded_keys_are_hidden_by_a_mask(operands: str, dtype: str) -> None:
    maskable(
        f"""
        graph @main(%q: f32[B, 2, 3, 4], %k: f32[B, 2, S, 4], %m: {dtype}[1, 1, 3, S], %l: i64[B]) {{
          %a: f32[B, 2, 3, 4] = attention(%q, %k, %k, {operands})
          return %a
        }}""",
        "behind the real keys of S",
    )


def test_a_mask_without_keys_is_given_some() -> None:
    maskable(
        """
        graph @main(%q: f32[B, 2, 3, 4], %k: f32[B, 2, S, 4], %m: f32[3, 1]) {
          %a: f32[B, 2, 3, 4] = attention(%q, %k, %k, %m, _)
          return %a
        }""",
        "behind the real keys of S",
    )


def test_keys_and_values_by_two_symbols_are_not_padded() -> None:
    for keys, values in (("S", "M"), ("M", "S")):
        unsafe(
            f"""
            graph @main(%q: f32[B, 2, 3, 4], %k: f32[B, 2, {keys}, 4], %v: f32[B, 2, {values}, 4]) {{
              %a: f32[B, 2, 3, 4] = attention(%q, %k, %v, _, _)
              return %a
            }}""",
            "one of keys and values",
        )


@pytest.mark.parametrize("dtype", ["f32", "bool"])
def test_a_mask_that_is_one_number_is_given_keys(dtype: str) -> None:
    maskable(
        f"""
        graph @main(%q: f32[B, 2, 3, 4], %k: f32[B, 2, S, 4], %m: {dtype}[]) {{
          %a: f32[B, 2, 3, 4] = attention(%q, %k, %k, %m, _)
          return %a
        }}""",
        "behind the real keys of S",
    )


def test_causal_attention_on_itself_only_needs_finite_values() -> None:
    masked = maskable(
        """
        graph @main(%x: f32[B, S, 8]) {
          %a: f32[B, S, 8] = attention(%x, %x, %x, _, _) {causal = true, heads = 2, kv_heads = 2}
          return %a
        }""",
        "values behind the real keys",
    )
    attention = next(node for node in masked.nodes if node.op.name == "attention")
    assert attention.inputs[3] is None


def test_causal_attention_with_lengths_counts_queries() -> None:
    unsafe(
        """
        graph @main(%q: f32[B, 2, S, 4], %k: f32[B, 2, 9, 4], %l: i64[B]) {
          %a: f32[B, 2, S, 4] = attention(%q, %k, %k, _, %l) {causal = true}
          return %a
        }""",
        "which keys a query sees depends on the number of queries",
    )


def test_lengths_of_padded_samples_are_filled() -> None:
    safe(
        """
        graph @main(%q: f32[S, 2, 3, 4], %k: f32[S, 2, 5, 4], %l: i64[S]) {
          %a: f32[S, 2, 3, 4] = attention(%q, %k, %k, _, %l) {causal = true}
          return %a
        }""",
        l=0,
    )


VARLEN = "varlen_attention(%q, %k, %v, %c, %l)"


def test_tokens_behind_the_last_sequence_are_of_none() -> None:
    safe(f"""
        graph @main(%q: f32[S + 3, 2, 4], %k: f32[3, 5, 1, 4], %v: f32[3, 5, 1, 2], %c: i64[3], %l: i64[3]) {{
          %a: f32[S + 3, 2, 2] = {VARLEN} {{longest = 4, causal = true}}
          %b: f32[] = reduce_sum(%a) {{axes = [0, 1, 2], keep_dims = false}}
          return %a, %b
        }}""")


def test_padded_sequences_have_no_tokens() -> None:
    safe(
        f"""
        graph @main(%q: f32[12, 2, 4], %k: f32[S, 5, 1, 4], %v: f32[S, 5, 1, 2], %c: i64[S], %l: i64[S]) {{
          %a: f32[12, 2, 2] = {VARLEN} {{longest = 4}}
          return %a
        }}""",
        c=0,
        l=0,
    )
    maskable(
        """
        graph @main(%q: f32[12, 2, 4], %k: f32[S, 5, 1, 4], %v: f32[S, 5, 1, 2], %c: i64[S], %l: i64[S]) {
          %d: i64[S] = min(%c, %l)
          %a: f32[12, 2, 2] = varlen_attention(%q, %k, %v, %d, %l) {longest = 4}
          return %a
        }""",
        "padded sequences of S can have tokens",
    )


def test_a_length_that_all_sequences_share_is_masked() -> None:
    maskable(
        """
        graph @main(%q: f32[12, 2, 4], %k: f32[S, 5, 1, 4], %c: i64[1], %l: i64[S]) {
          %d: i64[S] = expand(%c) {shape = [S]}
          %a: f32[12, 2, 4] = varlen_attention(%q, %k, %k, %d, %l) {longest = 4}
          return %a
        }""",
        "padded sequences of S can have tokens",
    )


def test_lengths_hide_padded_entries_of_caches() -> None:
    maskable(
        f"""
        graph @main(%q: f32[12, 2, 4], %k: f32[3, S, 1, 4], %v: f32[3, S, 1, 2], %c: i64[3], %l: i64[3]) {{
          %a: f32[12, 2, 2] = {VARLEN} {{longest = 4, causal = true}}
          return %a
        }}""",
        "values behind the real keys of S count",
    )


def test_the_longest_sequence_may_only_get_longer() -> None:
    text = f"""
        graph @main(%q: f32[12, 2, 4], %k: f32[3, 5, 1, 4], %v: f32[3, 5, 1, 2], %c: i64[3], %l: i64[3], %t: i64[S]) {{
          %a: f32[12, 2, 2] = {VARLEN} {{longest = LONGEST}}
          return %a
        }}"""
    safe(text.replace("LONGEST", "S"))
    unsafe(text.replace("LONGEST", "9 - S"), "its longest sequence gets shorter")


def test_heads_are_not_padded() -> None:
    unsafe(
        f"""
        graph @main(%q: f32[12, 2, S], %k: f32[3, 5, 1, S], %v: f32[3, 5, 1, 2], %c: i64[3], %l: i64[3]) {{
          %a: f32[12, 2, 2] = {VARLEN} {{longest = 4}}
          return %a
        }}""",
        "heads carry S",
    )


def test_rotary_positions() -> None:
    safe(
        """
        graph @main(%x: f32[B, 2, S, 4], %c: f32[9, 2], %p: i64[B, S]) {
          %a: f32[B, 2, S, 4] = rotary_embedding(%x, %c, %c, %p)
          return %a
        }""",
        p=0,
    )
    safe("""
        graph @main(%x: f32[B, 2, S, 4], %c: f32[1, S, 2]) {
          %a: f32[B, 2, S, 4] = rotary_embedding(%x, %c, %c, _)
          return %a
        }""")


CELL = "rnn(%x, %w, %r, _, _, _)"


def test_samples_of_a_recurrent_cell() -> None:
    safe(f"""
        graph @main(%x: f32[3, S, 4], %w: f32[1, 2, 4], %r: f32[1, 2, 2]) {{
          %y: f32[3, 1, S, 2], %h: f32[1, S, 2] = {CELL}
          return %y, %h
        }}""")


def test_steps_of_a_recurrent_cell_that_runs_forward() -> None:
    safe(f"""
        graph @main(%x: f32[S, 3, 4], %w: f32[1, 2, 4], %r: f32[1, 2, 2]) {{
          %y: f32[S, 1, 3, 2], %h: f32[1, 3, 2] = {CELL}
          return %y
        }}""")


def test_the_last_state_and_the_way_back_need_lengths() -> None:
    maskable(
        f"""
        graph @main(%x: f32[S, B, 4], %w: f32[1, 2, 4], %r: f32[1, 2, 2]) {{
          %y: f32[S, 1, B, 2], %h: f32[1, B, 2] = {CELL}
          return %y, %h
        }}""",
        "its last state",
    )
    maskable(
        f"""
        graph @main(%x: f32[S, B, 4], %w: f32[2, 2, 4], %r: f32[2, 2, 2]) {{
          %y: f32[S, 2, B, 2], %h: f32[2, B, 2] = {CELL} {{direction = "bidirectional"}}
          return %y
        }}""",
        "its way back",
    )
