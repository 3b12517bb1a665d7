from tests.passes.planning.padding.judging import maskable, safe, unsafe

FUSED = """
graph @main(%x: f32[B, S, 4]) {{
  %a: {type} = fused(%x) {{body = @body}}
  return %a
}}

graph @body(%p: f32[B, S, 4]) {{
  %e: f32[B, S, 4] = exp(%p)
  %r: {type} = {last}
  return %r
}}
"""


def test_a_fused_body_is_judged_like_its_nodes() -> None:
    safe(FUSED.format(type="f32[B, S, 4]", last="softmax(%e)"))


def test_a_fused_body_that_fails_is_inlined_and_masked() -> None:
    masked = maskable(
        FUSED.format(type="f32[B, 4]", last="reduce_sum(%e) {axes = [1], keep_dims = false}"), "it reduces axis 1"
    )
    assert not any(node.op.name == "fused" for node in masked.nodes)


BRANCHES = """
graph @main(%c: bool[], %x: f32[S, 4]) {{
  %a: f32[S, 4] = if(%c, %x) {{then_body = @yes, else_body = @no}}
  return %a
}}

graph @yes(%p: f32[S, 4]) {{
  %e: f32[S, 4] = exp(%p)
  return %e
}}

graph @no(%p: f32[S, 4]) {{
  %e: f32[S, 4] = {last}
  return %e
}}
"""


def test_both_branches_must_be_safe() -> None:
    safe(BRANCHES.format(last="softmax(%p)"))
    unsafe(BRANCHES.format(last="reverse(%p) {axes = [0]}"), "it mixes the elements along axis 0")


def test_loops_that_the_dim_reaches_are_unsafe() -> None:
    unsafe(
        """
        graph @main(%x: f32[S, 4], %n: i64[]) {
          %a: f32[S, 4] = loop(%n, _, %x) {body = @body, carried = 1}
          return %a
        }

        graph @body(%i: i64[], %c: bool[], %p: f32[S, 4]) {
          %e: f32[S, 4] = exp(%p)
          return %c, %e
        }
        """,
        "loop has no rule",
    )


def test_foreign_and_random_ops_that_the_dim_reaches_are_unsafe() -> None:
    unsafe(
        """
        graph @main(%x: f32[S, 4]) {
          %a: f32[S, 4] = onnx.Foo(%x)
          return %a
        }""",
        "onnx.Foo has no rule",
    )
    unsafe(
        """
        graph @main(%x: f32[S, 4]) {
          %a: bool[S, 4] = bernoulli(%x) {dtype = bool}
          return %a
        }""",
        "bernoulli has no rule",
    )
