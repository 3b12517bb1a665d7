"""Decided branches are inlined, counted loops written out, and regions get only what they need."""

import pytest
from capgraph.passes.cleanup.static_shapes import StaticShapes
from capgraph.passes.control_flow.simplify_control_flow import SimplifyControlFlow
from capgraph.passes.framework.pipeline import Pipeline

from tests.passes.checking import check_pass

TRUE = "%t = constant() {value = dense<bool[]: true>}"
FALSE = "%t = constant() {value = dense<bool[]: false>}"
TRIPS = "%n = constant() {{value = dense<i64[]: {}>}}"


def check(before: str, after: str | None, **options: int) -> None:
    check_pass(SimplifyControlFlow(**options), before, after)


# ---- if

BRANCHES = """
    graph @yes(%a: f32[N]) { %r = neg(%a) return %r }
    graph @no(%a: f32[N]) { %r = exp(%a) return %r }
"""


@pytest.mark.parametrize(("condition", "op"), [(TRUE, "neg"), (FALSE, "exp")])
def test_the_branch_that_is_taken(condition: str, op: str) -> None:
    check(
        f"""graph @main(%x: f32[B]) {{
          {condition}
          %y = if(%t, %x) {{then_body = @yes, else_body = @no}}
          return %y
        }}{BRANCHES}""",
        f"graph @main(%x: f32[B]) {{ %y = {op}(%x) return %y }}",
    )


def test_a_branch_that_the_run_takes_stays() -> None:
    check(
        f"""graph @main(%x: f32[B], %t: bool[]) {{
          %y = if(%t, %x) {{then_body = @yes, else_body = @no}}
          return %y
        }}{BRANCHES}""",
        None,
    )


def test_branches_that_do_the_same() -> None:
    check(
        """graph @main(%x: f32[B], %t: bool[]) {
          %y = if(%t, %x) {then_body = @yes, else_body = @no}
          return %y
        }
        graph @yes(%a: f32[N]) { %r = neg(%a) return %r }
        graph @no(%b: f32[N]) { %s = neg(%b) return %s }""",
        "graph @main(%x: f32[B], %t: bool[]) { %y = neg(%x) return %y }",
    )


def test_a_branch_that_hands_on_what_it_captures() -> None:
    check(
        f"""graph @main(%x: f32[B]) {{
          {TRUE}
          %y = if(%t, %x) {{then_body = @yes, else_body = @no}}
          %z = exp(%y)
          return %z
        }}
        graph @yes(%a: f32[N]) {{ return %a }}
        graph @no(%a: f32[N]) {{ %r = exp(%a) return %r }}""",
        "graph @main(%x: f32[B]) { %z = exp(%x) return %z }",
    )


SIZES = """
    graph @yes(%a: f32[N]) { return %a }
    graph @no(%a: f32[N]) { %r = concat(%a, %a) {axis = 0} return %r }
"""


def test_a_size_of_the_result_becomes_known_below() -> None:
    check(
        f"""graph @main(%x: f32[B]) {{
          {FALSE}
          %y: f32[u0] = if(%t, %x) {{then_body = @yes, else_body = @no}}
          %z = reshape(%y) {{shape = [u0, 1]}}
          %w = full() {{shape = [2], value = dense<f32[]: 1.0>}}
          %v = expand(%z) {{shape = [u0, 2]}}
          return %v, %w
        }}{SIZES}""",
        """graph @main(%x: f32[B]) {
          %y = concat(%x, %x) {axis = 0}
          %z = reshape(%y) {shape = [2*B, 1]}
          %w = full() {shape = [2], value = dense<f32[]: 1.0>}
          %v = expand(%z) {shape = [2*B, 2]}
          return %v, %w
        }""",
    )


def test_a_size_of_the_result_becomes_known_in_regions_below() -> None:
    check(
        f"""graph @main(%x: f32[4], %c: bool[]) {{
          {FALSE}
          %y: f32[u0] = if(%t, %x) {{then_body = @yes, else_body = @no}}
          %z: f32[u0, 1] = if(%c, %y) {{then_body = @flat, else_body = @round}}
          return %z
        }}{SIZES}
        graph @flat(%a: f32[u0]) {{ %r = reshape(%a) {{shape = [u0, 1]}} return %r }}
        graph @round(%a: f32[M]) {{ %e = exp(%a) %r = reshape(%e) {{shape = [M, 1]}} return %r }}""",
        """graph @main(%x: f32[4], %c: bool[]) {
          %y = concat(%x, %x) {axis = 0}
          %z = if(%c, %y) {then_body = @flat, else_body = @round}
          return %z
        }
        graph @flat(%a: f32[8]) { %r = reshape(%a) {shape = [8, 1]} return %r }
        graph @round(%a: f32[M]) { %e = exp(%a) %r = reshape(%e) {shape = [M, 1]} return %r }""",
    )


def test_a_body_whose_size_nothing_in_it_tells_stays() -> None:
    """Outside, `full` would mention a size that none of its operands has."""
    check_pass(
        SimplifyControlFlow(),
        f"""graph @main(%x: f32[B]) {{
          {TRUE}
          %i = non_zero(%x)
          %y = if(%t, %i) {{then_body = @yes, else_body = @no}}
          return %y
        }}
        graph @yes(%a: i64[1, N]) {{ %r = full() {{shape = [N], value = dense<f32[]: 1.0>}} return %r }}
        graph @no(%a: i64[1, N]) {{ %r = full() {{shape = [N], value = dense<f32[]: 2.0>}} return %r }}""",
        None,
    )


def test_branches_within_branches() -> None:
    check(
        f"""graph @main(%x: f32[B], %c: bool[]) {{
          %y = if(%c, %x) {{then_body = @outer, else_body = @other}}
          return %y
        }}
        graph @outer(%a: f32[N]) {{
          {TRUE}
          %r = if(%t, %a) {{then_body = @yes, else_body = @no}}
          return %r
        }}
        graph @other(%a: f32[N]) {{ %r = abs(%a) return %r }}{BRANCHES}""",
        """graph @main(%x: f32[B], %c: bool[]) {
          %y = if(%c, %x) {then_body = @outer, else_body = @other}
          return %y
        }
        graph @outer(%a: f32[N]) { %r = neg(%a) return %r }
        graph @other(%a: f32[N]) { %r = abs(%a) return %r }""",
    )


def test_regions_get_and_give_only_what_is_needed() -> None:
    check(
        """graph @main(%x: f32[4], %w: f32[3], %c: bool[]) {
          %y, %z = if(%c, %x, %w) {then_body = @yes, else_body = @no}
          return %y
        }
        graph @yes(%a: f32[4], %b: f32[3]) { %r = neg(%a) return %r, %b }
        graph @no(%a: f32[4], %b: f32[3]) { %r = exp(%a) return %r, %b }""",
        """graph @main(%x: f32[4], %w: f32[3], %c: bool[]) {
          %y = if(%c, %x) {then_body = @yes, else_body = @no}
          return %y
        }
        graph @yes(%a: f32[4]) { %r = neg(%a) return %r }
        graph @no(%a: f32[4]) { %r = exp(%a) return %r }""",
    )


def test_a_captured_value_whose_size_is_needed_stays() -> None:
    check(
        """graph @main(%x: f32[4], %w: f32[B], %c: bool[]) {
          %y = if(%c, %x, %w) {then_body = @yes, else_body = @no}
          return %y
        }
        graph @yes(%a: f32[4], %b: f32[N]) { %r = full() {shape = [N], value = dense<f32[]: 1.0>} return %r }
        graph @no(%a: f32[4], %b: f32[N]) { %r = full() {shape = [N], value = dense<f32[]: 2.0>} return %r }""",
        """graph @main(%x: f32[4], %w: f32[B], %c: bool[]) {
          %y = if(%c, %w) {then_body = @yes, else_body = @no}
          return %y
        }
        graph @yes(%b: f32[N]) { %r = full() {shape = [N], value = dense<f32[]: 1.0>} return %r }
        graph @no(%b: f32[N]) { %r = full() {shape = [N], value = dense<f32[]: 2.0>} return %r }""",
    )


# ---- loop

LOOP = """graph @main(%x: f32[B], %w: f32[B]) {{
      {trips} {condition}
      %y, %s = loop({operands}, %x, %w) {{{{body = @body, carried = 1}}}}
      return {returned}
    }}
    graph @body(%i: i64[], %c: bool[], %a: f32[N], %b: f32[N]) {{
      {goes_on}
      %r = mul(%a, %b)
      return {last}, %r, %a
    }}"""


def looped(
    trips: int,
    *,
    operands: str = "%n, _",
    condition: str = "",
    goes_on: str = "",
    last: str = "%c",
    returned: str = "%y, %s",
) -> str:
    counted = TRIPS.format(trips) if "%n" in operands else ""
    text = LOOP.format(
        trips=counted, condition=condition, operands=operands, goes_on=goes_on, last=last, returned=returned
    )
    return text.replace("{{", "{").replace("}}", "}")


TWICE = """graph @main(%x: f32[B], %w: f32[B]) {
  %a = mul(%x, %w)
  %y = mul(%a, %w)
  %p = unsqueeze(%x) {axes = [0]}
  %q = unsqueeze(%a) {axes = [0]}
  %s = concat(%p, %q) {axis = 0}
  return %y, %s
}"""
ONCE = """graph @main(%x: f32[B], %w: f32[B]) {
  %y = mul(%x, %w)
  %s = unsqueeze(%x) {axes = [0]}
  return %y, %s
}"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (looped(2), TWICE),
        (looped(2, operands="%n, %t", condition=TRUE), TWICE),
        (looped(2, operands="%n, %t", condition=TRUE, goes_on=TRUE, last="%t"), TWICE),
        (looped(2, goes_on=FALSE, last="%t"), TWICE),  # a loop without condition does not ask
        (looped(2, operands="%n, %t", condition=TRUE, goes_on=FALSE, last="%t"), ONCE),
        (looped(0, operands="_, %t", condition=TRUE, goes_on=FALSE, last="%t"), ONCE),
        (looped(1), ONCE),
    ],
)
def test_a_counted_loop_is_written_out(before: str, after: str) -> None:
    check(before, after)


@pytest.mark.parametrize(
    "before",
    [
        looped(0, returned="%y"),
        looped(-3, returned="%y"),
        looped(9, operands="%n, %t", condition=FALSE, returned="%y"),
    ],
)
def test_a_loop_of_no_iterations_hands_on_what_it_was_given(before: str) -> None:
    check(
        before.replace("return %y\n", "%z = neg(%y) return %z\n", 1),
        "graph @main(%x: f32[B], %w: f32[B]) { %z = neg(%x) return %z }",
    )


def test_a_loop_of_no_iterations_stacks_nothing() -> None:
    check(
        looped(0, returned="%s").replace("[B]", "[3]"),
        """graph @main(%x: f32[3], %w: f32[3]) {
          %s = constant() {value = dense<f32[0, 3]: []>}
          return %s
        }""",
    )


@pytest.mark.parametrize(
    "before",
    [
        looped(300),  # past the limit
        looped(2, operands="%m, _"),
        looped(2, operands="%n, %u"),
        looped(
            2,
            operands="%n, %t",
            condition=TRUE,
            goes_on="%k = reduce_sum(%a) {axes = [0], keep_dims = false} %d = is_nan(%k)",
            last="%d",
        ),
        looped(2, operands="_, %u", goes_on=FALSE, last="%t"),
    ],
)
def test_a_loop_that_the_run_counts_stays(before: str) -> None:
    check(before.replace("%w: f32[B])", "%w: f32[B], %m: i64[], %u: bool[])", 1), None)


def test_a_stack_of_nothing_whose_size_is_not_known_stays() -> None:
    check(looped(0, returned="%s"), None)


def test_the_limit_counts_iterations_times_nodes() -> None:
    check(looped(2), None, limit=1)
    check(looped(2), TWICE, limit=2)


def test_numbers_of_iterations_are_constants_and_sizes_grow() -> None:
    check(
        f"""graph @main(%x: f32[2]) {{
          {TRIPS.format(2)}
          %y: f32[u0] = loop(%n, _, %x) {{body = @body, carried = 1}}
          %z = reshape(%y) {{shape = [u0, 1]}}
          return %z
        }}
        graph @body(%i: i64[], %c: bool[], %a: f32[N]) {{
          %f = cast(%i) {{to = f32}}
          %b = add(%a, %f)
          %r = concat(%a, %b) {{axis = 0}}
          return %c, %r
        }}""",
        """graph @main(%x: f32[2]) {
          %i = constant() {value = dense<i64[]: 0>}
          %f = cast(%i) {to = f32}
          %b = add(%x, %f)
          %r = concat(%x, %b) {axis = 0}
          %j = constant() {value = dense<i64[]: 1>}
          %g = cast(%j) {to = f32}
          %d = add(%r, %g)
          %y = concat(%r, %d) {axis = 0}
          %z = reshape(%y) {shape = [8, 1]}
          return %z
        }""",
    )


@pytest.mark.parametrize(
    ("body", "after"),
    [
        (
            "%k = cast(%i) {to = bool} return %k, %i, %i",
            """%p = constant() {value = dense<i64[]: 0>}
               %y = constant() {value = dense<i64[]: 1>}
               %q = unsqueeze(%p) {axes = [0]}
               %r = unsqueeze(%y) {axes = [0]}""",
        ),
        (
            "%k = cast(%a) {to = bool} %b = constant() {value = dense<i64[]: 3>} return %k, %b, %b",
            """%p = constant() {value = dense<i64[]: 3>}
               %y = constant() {value = dense<i64[]: 3>}
               %q = unsqueeze(%p) {axes = [0]}
               %r = unsqueeze(%y) {axes = [0]}""",
        ),
    ],
)
def test_an_unread_condition_goes_without_what_is_handed_on(body: str, after: str) -> None:
    check(
        f"""graph @main(%x: i64[]) {{
          {TRIPS.format(2)}
          %y, %s = loop(%n, _, %x) {{body = @body, carried = 1}}
          return %y, %s
        }}
        graph @body(%i: i64[], %c: bool[], %a: i64[]) {{ {body} }}""",
        f"graph @main(%x: i64[]) {{ {after} %s = concat(%q, %r) {{axis = 0}} return %y, %s }}",
    )


SPLIT = "%p, %q = split(%y) {axis = 0, sizes = [2, u0 - 2]}"
PERHAPS = "%q: f32[u1] = if(%t, %y) {then_body = @some, else_body = @all}"
SOME = f"""
    graph @some(%y: f32[u0]) {{ {SPLIT} return %q }}
    graph @all(%y: f32[u0]) {{ %r = neg(%y) return %r }}
"""


@pytest.mark.parametrize("reader", [SPLIT, PERHAPS])
def test_a_loop_whose_sizes_break_what_follows_stays(reader: str) -> None:
    """The run raises, where it gets there."""
    text = f"""graph @main(%x: f32[2], %t: bool[]) {{
      {TRIPS.format(1)}
      %y: f32[u0] = loop(%n, _, %x) {{body = @body, carried = 1}}
      {reader}
      return %q
    }}
    graph @body(%i: i64[], %c: bool[], %a: f32[N]) {{
      %r = slice(%a) {{axes = [0], starts = [1], ends = [N], steps = [1]}}
      return %c, %r
    }}"""
    check_pass(SimplifyControlFlow(), text + SOME * (reader is PERHAPS), None, numeric=False)


def test_a_loop_whose_sizes_break_a_branch_in_it_stays() -> None:
    text = f"""graph @main(%x: f32[1], %t: bool[]) {{
      {TRIPS.format(1)}
      %y: f32[u2] = loop(%n, _, %x, %t) {{body = @body, carried = 1}}
      return %y
    }}
    graph @body(%i: i64[], %c: bool[], %y: f32[u0], %t: bool[]) {{ {PERHAPS} return %c, %q }}"""
    check_pass(SimplifyControlFlow(), text + SOME, None, numeric=False)


def test_loops_within_loops() -> None:
    """The inner one runs as often as the outer one's iteration says."""
    check(
        f"""graph @main(%x: f32[B]) {{
          {TRIPS.format(3)}
          %y = loop(%n, _, %x) {{body = @outer, carried = 1}}
          return %y
        }}
        graph @outer(%i: i64[], %c: bool[], %a: f32[N]) {{
          %r = loop(%i, _, %a) {{body = @inner, carried = 1}}
          return %c, %r
        }}
        graph @inner(%j: i64[], %d: bool[], %b: f32[M]) {{ %r = sin(%b) return %d, %r }}""",
        "graph @main(%x: f32[B]) { %a = sin(%x) %b = sin(%a) %y = sin(%b) return %y }",
    )


def test_a_loop_stays_whose_iterations_may_give_other_sizes() -> None:
    """The inner one gives as many values as the outer one's iteration says, which its type does not tell."""
    check_pass(
        SimplifyControlFlow(),
        f"""graph @main(%x: f32[2]) {{
          {TRIPS.format(2)}
          %y, %z = loop(%n, _, %x) {{body = @outer, carried = 1}}
          return %z
        }}
        graph @outer(%i: i64[], %c: bool[], %a: f32[2]) {{
          %r, %s = loop(%i, _, %a) {{body = @inner, carried = 1}}
          return %c, %r, %s
        }}
        graph @inner(%j: i64[], %d: bool[], %b: f32[2]) {{ %r = sin(%b) return %d, %r, %b }}""",
        None,
        numeric=False,
    )


def test_a_loop_gets_and_gives_only_what_is_needed() -> None:
    check(
        """graph @main(%x: f32[4], %w: f32[3], %m: i64[]) {
          %y, %z, %v = loop(%m, _, %x, %w, %x) {body = @body, carried = 1}
          return %y, %v
        }
        graph @body(%i: i64[], %c: bool[], %a: f32[4], %b: f32[3], %d: f32[4]) {
          %r = mul(%a, %d)
          return %c, %r, %b, %a
        }""",
        """graph @main(%x: f32[4], %w: f32[3], %m: i64[]) {
          %y, %v = loop(%m, _, %x, %x) {body = @body, carried = 1}
          return %y, %v
        }
        graph @body(%i: i64[], %c: bool[], %a: f32[4], %d: f32[4]) {
          %r = mul(%a, %d)
          return %c, %r, %a
        }""",
    )


# ---- scan

SCAN_BODY = """
    graph @body(%a: f32[N], %b: f32[N]) {
      %r = mul(%a, %b)
      return %r, %r
    }"""


def test_a_scan_over_a_static_axis_is_written_out() -> None:
    check(
        f"""graph @main(%x: f32[B], %w: f32[B, 2]) {{
          %y, %s = scan(%x, %w) {{body = @body, states = 1, scan_inputs = 1, input_axes = [1], output_axes = [1],
            input_reverse = [1], output_reverse = [1]}}
          return %y, %s
        }}{SCAN_BODY}""",
        """graph @main(%x: f32[B], %w: f32[B, 2]) {
          %p, %q = split(%w) {axis = 1, sizes = [1, 1]}
          %v = squeeze(%p) {axes = [1]}
          %u = squeeze(%q) {axes = [1]}
          %a = mul(%x, %u)
          %y = mul(%a, %v)
          %d = unsqueeze(%y) {axes = [1]}
          %e = unsqueeze(%a) {axes = [1]}
          %s = concat(%d, %e) {axis = 1}
          return %y, %s
        }""",
    )


@pytest.mark.parametrize("length", ["T", "400"])
def test_a_scan_stays(length: str) -> None:
    check(
        f"""graph @main(%x: f32[B], %w: f32[{length}, B]) {{
          %y, %s = scan(%x, %w) {{body = @body, states = 1, scan_inputs = 1}}
          return %y, %s
        }}{SCAN_BODY}""",
        None,
    )


# ---- with other passes


def test_random_nodes_stay_apart() -> None:
    check_pass(
        SimplifyControlFlow(),
        f"""graph @main(%x: f32[2]) {{
          {TRIPS.format(2)}
          %y = loop(%n, _, %x) {{body = @body, carried = 1}}
          return %y
        }}
        graph @body(%i: i64[], %c: bool[], %a: f32[2]) {{
          %b = random_normal() {{shape = [2], dtype = f32}}
          %r = add(%a, %b)
          return %c, %r
        }}""",
        """graph @main(%x: f32[2]) {
          %a = random_normal() {shape = [2], dtype = f32}
          %b = add(%x, %a)
          %c = random_normal() {shape = [2], dtype = f32}
          %y = add(%b, %c)
          return %y
        }""",
        numeric=False,
    )


def test_shapes_become_static_beside_control_flow() -> None:
    before = """graph @main(%x: f32[B, 4], %c: bool[]) {
      %v = constant() {value = dense<i64[2]: [0, 4]>}
      %a: f32[B, u0] = dynamic_reshape(%x, %v)
      %y: f32[B, u0] = if(%c, %a) {then_body = @yes, else_body = @no}
      return %y
    }
    graph @yes(%a: f32[B, u0]) { %r = neg(%a) return %r }
    graph @no(%a: f32[B, u0]) { %r = exp(%a) return %r }"""
    after = """graph @main(%x: f32[B, 4], %c: bool[]) {
      %a = reshape(%x) {shape = [B, 4]}
      %y = if(%c, %a) {then_body = @yes, else_body = @no}
      return %y
    }
    graph @yes(%a: f32[B, 4]) { %r = neg(%a) return %r }
    graph @no(%a: f32[B, 4]) { %r = exp(%a) return %r }"""
    graph = check_pass(StaticShapes(), before, after)
    assert not Pipeline(((SimplifyControlFlow(), StaticShapes()),)).run(graph).changed
