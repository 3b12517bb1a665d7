"""The whole table of canonical rules: every one can fire, and each is exact by the pass's promise."""

from capgraph.passes.cleanup.canonicalize import Canonicalize
from capgraph.passes.framework.exactness import Exactness

from tests.passes.aimed import aimed_graph, fires
from tests.passes.checking import check_pass

WITNESSES = 40


def test_rules_have_names_of_their_own() -> None:
    names = [rule.name for rule in Canonicalize().rules()]
    assert len(set(names)) == len(names)


def test_the_pass_is_exact() -> None:
    assert Canonicalize.exactness is Exactness.EXACT


def test_rules_feed_each_other() -> None:
    check_pass(
        Canonicalize(),
        """
        graph @main(%x: f32[B, 4]) {
          %one = constant() {value = dense<f32[]: 1.0>}
          %a = unsqueeze(%x) {axes = [1]}
          %b = mul(%a, %one)
          %c = transpose(%b) {perm = [1, 0, 2]}
          %d = neg(%c)
          %e = neg(%d)
          %f = reshape(%e) {shape = [B, 4]}
          %g = concat(%f) {axis = 0}
          return %g
        }""",
        """
        graph @main(%x: f32[B, 4]) {
          return %x as g
        }""",
    )


def test_expanding_to_nothing_is_a_constant() -> None:
    check_pass(
        Canonicalize(),
        """
        graph @main(%x: f32[1, B]) {
          %a = slice(%x) {axes = [1], starts = [0], ends = [1], steps = [1]}
          %b = expand(%a) {shape = [2, 0, 1]}
          %c = expand(%x) {shape = [0, B]}
          return %b, %c
        }""",
        """
        graph @main(%x: f32[1, B]) {
          %expand = constant() {value = dense<f32[2, 0, 1]: []>}
          %c = expand(%x) {shape = [0, B]}
          return %expand as b, %c
        }""",
    )


def test_squeezing_what_may_have_another_size_stays() -> None:
    check_pass(
        Canonicalize(),
        """
        graph @main(%x: f32[B, 4], %y: f32[1, 4]) {
          %a = squeeze(%x) {axes = [0]}
          %b = squeeze(%y) {axes = [0]}
          return %a, %b
        }""",
        """
        graph @main(%x: f32[B, 4], %y: f32[1, 4]) {
          %a: f32[4] = squeeze(%x) {axes = [0]}
          %b: f32[4] = reshape(%y) {shape = [4]}
          return %a, %b
        }""",
        numeric=False,
    )


def test_most_rules_fire_on_graphs_aimed_at_them() -> None:
    rules = Canonicalize().rules()
    silent = [
        rule.name for rule in rules if not any(fires(rule, aimed_graph(seed, [rule])) for seed in range(WITNESSES))
    ]
    assert len(silent) <= len(rules) // 3, silent
