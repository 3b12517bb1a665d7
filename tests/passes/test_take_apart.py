from capgraph.passes.fuse.take_apart import TakeApart

from tests.passes.checking import check_pass

FUSED = """
graph @main(%x: f32[4]) {
  %a: f32[4] = exp(%x)
  %b: f32[4] = fused(%a) {body = @body}
  return %b
}

graph @body(%p: f32[4]) {
  %q: f32[4] = neg(%p)
  %r: f32[4] = tanh(%q)
  return %r
}
"""
APART = """
graph @main(%x: f32[4]) {
  %a: f32[4] = exp(%x)
  %q: f32[4] = neg(%a)
  %r: f32[4] = tanh(%q)
  return %r as b
}
"""


def test_what_no_kernel_can_do_is_taken_apart() -> None:
    check_pass(TakeApart(captures=lambda node: node.op.name != "fused"), FUSED, APART)


def test_what_holds_an_op_that_is_kept_is_taken_apart() -> None:
    check_pass(TakeApart(("tanh",), lambda _node: True), FUSED, APART)


def test_other_regions_stay() -> None:
    check_pass(TakeApart(("sin",), lambda _node: True), FUSED, None)
