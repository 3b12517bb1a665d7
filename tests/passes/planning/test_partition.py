from dataclasses import replace

import pytest
from capgraph.ir.plan import CutReason, Plan
from capgraph.ir.target import HOST
from capgraph.passes.planning.partition import CapturePolicy

from tests.passes.planning.planned import UNBOUNDED, planned

ALL = CapturePolicy(min_kernels=1)


def segments(plan: Plan) -> list[str]:
    """The segments: `captured` or the reasons of an eager one, with the names of the results."""
    described: list[str] = []
    for segment in plan.segments:
        reasons = "/".join(dict.fromkeys(cut.reason.name for cut in segment.cuts))
        names = " ".join(step.node.outputs[0].name for step in plan.steps_of(segment) if step.node.inputs)
        described.append(f"{reasons or 'captured'}: {names}")
    return described


CHAIN = """
    graph @main(%x: f32[4]) {
      %a: f32[4] = exp(%x)
      %b: f32[4] = sigmoid(%a)
      %c: f32[4] = relu(%b)
      return %c
    }"""


def test_a_plain_graph_is_one_segment() -> None:
    assert segments(planned(CHAIN)) == ["captured: a b c"]


def test_nothing_is_captured_when_that_is_off() -> None:
    assert segments(planned(CHAIN, capture=CapturePolicy(captures=False))) == ["MODE_NONE: a b c"]


def test_a_policy_keeps_an_op_outside() -> None:
    policy = CapturePolicy(keep_outside=frozenset({"sigmoid"}), min_kernels=1)
    assert segments(planned(CHAIN, capture=policy)) == ["captured: a", "KEPT_OUTSIDE: b", "captured: c"]


def test_a_target_names_ops_that_it_cannot_capture() -> None:
    target = replace(HOST, uncapturable=frozenset({"sigmoid"}))
    assert segments(planned(CHAIN, target=target, capture=ALL))[1] == "NOT_CAPTURABLE_ON_TARGET: b"


def test_small_segments_are_joined_with_the_eager_ones_around_them() -> None:
    policy = CapturePolicy(keep_outside=frozenset({"sigmoid"}), min_kernels=2)
    assert segments(planned(CHAIN, capture=policy)) == ["TOO_SMALL/KEPT_OUTSIDE: a b c"]


def test_without_a_least_number_every_segment_that_does_work_is_captured() -> None:
    policy = CapturePolicy(keep_outside=frozenset({"sigmoid", "reshape"}), min_kernels=0)
    assert segments(planned(CHAIN, capture=policy)) == ["captured: a", "KEPT_OUTSIDE: b", "captured: c"]
    plan = planned(
        """
        graph @main(%x: f32[4]) {
          %k: f32[] = constant() {value = dense<f32[]: 2.0>}
          %a: f32[4] = sigmoid(%x)
          return %a, %k
        }""",
        capture=policy,
    )
    assert [segment.is_captured for segment in plan.segments] == [False]


def test_views_and_constants_do_not_count_as_work() -> None:
    plan = planned(
        """
        graph @main(%x: f32[4]) {
          %k: f32[] = constant() {value = dense<f32[]: 2.0>}
          %a: f32[4] = mul(%x, %k)
          %r: f32[2, 2] = reshape(%a) {shape = [2, 2]}
          return %r
        }""",
        capture=CapturePolicy(min_kernels=2),
    )
    assert [segment.is_captured for segment in plan.segments] == [False]


def test_sizes_that_depend_on_data_cut_the_graph() -> None:
    plan = planned(
        """
        graph @main(%x: f32[4], %w: f32[4]) {
          %a: f32[4] = exp(%x)
          %b: f32[4] = add(%a, %w)
          %n: i64[1, u0] = non_zero(%b)
          %m: i64[1, u0] = neg(%n)
          %s: i64[1] = reduce_sum(%m) {axes = [1], keep_dims = false}
          %t: i64[1] = abs(%s)
          %u: i64[1] = neg(%t)
          return %u
        }""",
        target=UNBOUNDED,
        capture=ALL,
    )
    assert segments(plan) == ["captured: a b", "DATA_DEPENDENT_SHAPE: n m s", "captured: t u"]


LOOP = """
    graph @main(%x: f32[4], %n: i64[]) {
      %a: f32[4] = exp(%x)
      %b: f32[4] = relu(%a)
      %l: f32[4] = loop(%n, _, %b) {body = @body, carried = 1}
      %c: f32[4] = sqrt(%l)
      %d: f32[4] = neg(%c)
      return %d
    }

    graph @body(%i: i64[], %go: bool[], %p: f32[4]) {
      %q: f32[4] = add(%p, %p)
      return %go, %q
    }
    """


def test_a_loop_whose_count_depends_on_data_runs_between_two_segments() -> None:
    assert segments(planned(LOOP)) == ["captured: a b", "CONTROL_FLOW: l", "captured: c d"]


def test_a_foreign_op_in_the_middle() -> None:
    plan = planned("""
        graph @main(%x: f32[4]) {
          %a: f32[4] = exp(%x)
          %b: f32[4] = relu(%a)
          %f: f32[4] = onnx.Foo(%b)
          %c: f32[4] = sqrt(%f)
          %d: f32[4] = neg(%c)
          return %d
        }""")
    assert segments(plan) == ["captured: a b", "FOREIGN: f", "captured: c d"]


def test_what_is_no_tensor_of_numbers_runs_eagerly() -> None:
    plan = planned("""
        graph @main(%x: string[4]) {
          %a: f32[4] = cast(%x) {to = f32}
          %b: f32[4] = relu(%a)
          %c: f32[4] = exp(%b)
          return %c
        }""")
    assert segments(plan) == ["NOT_A_TENSOR: a", "captured: b c"]


def test_values_read_on_the_host() -> None:
    plan = planned("""
        graph @main(%x: f32[4], %axis: i64[]) {
          %a: f32[4] = dynamic_cumsum(%x, %axis)
          %b: f32[4] = relu(%a)
          %c: f32[4] = exp(%b)
          return %c
        }""")
    assert segments(plan) == ["READS_ON_HOST: a", "captured: b c"]


BRANCHES = """
    graph @main(%x: f32[4], %y: f32[4]) {
      %a: f32[4] = exp(%x)
      %f: f32[4] = onnx.Foo(%a)
      %b: f32[4] = sqrt(%f)
      %c: f32[4] = relu(%y)
      %g: f32[4] = onnx.Foo(%c)
      %d: f32[4] = neg(%g)
      %e: f32[4] = add(%b, %d)
      return %e
    }"""


def test_independent_branches_are_gathered_into_few_segments() -> None:
    assert segments(planned(BRANCHES)) == ["captured: a c", "FOREIGN: f g", "captured: b d e"]


@pytest.mark.parametrize("reason", CutReason)
def test_every_reason_is_explained(reason: CutReason) -> None:
    assert len(reason.value) > 15
