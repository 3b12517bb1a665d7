"""False facts, planted in what each rule gives: the checker refuses every one, so that a wrong rule does no harm."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capgraph.ir.analysis import input_symbols, op_counts
from capgraph.ir.dims import symbol
from capgraph.ir.errors import CapgraphError
from capgraph.ir.graph import Graph, Node
from capgraph.ir.op import Trait
from capgraph.ir.ops import OPS
from capgraph.ir.text.parser import parse
from capgraph.passes.planning.padding import attempts, checker, claims, made_safe, mask_padding, real_size_input, walk
from capgraph.passes.planning.padding.checker import refuted
from capgraph.passes.planning.padding.claims import Certificate
from capgraph.passes.planning.padding.rules import RULES
from capgraph.passes.planning.padding.rules.elementwise import elementwise
from capgraph.passes.planning.padding.rules.facts import Case, Fact, Rule, Same, Tail, plain, prefix_tails
from capgraph.passes.planning.padding.samples import Pair, refutation
from capgraph.passes.planning.padding.walk import Walk, walked

from tests.passes.planning.padding.poison import leaks
from tests.strategies.draw import Subject
from tests.strategies.graphs import random_graph, random_inputs

LARGEST = 8
SEEDS = 60
SITES = 1
"""In how many graphs each op is planted."""

FOUND = {"gather": 6, "gather_elements": 6, "gather_nd": 6, "scatter_nd": 6, "scatter_elements": 8} | {
    "gemm": 9,
    "reduce_mean": 1,
    "reduce_prod": 3,
    "unique": 7,
    "argmin": 3,
}
"""Graphs in which the checker once missed what a careless rule claimed."""


@dataclass(frozen=True)
class Site:
    """A node that the padded dim reaches, in a graph of which all facts hold."""

    graph: Graph
    node: Node
    symbol: str
    walk: Walk

    def certificate(self, facts: Mapping[Any, Fact] | None = None) -> Certificate:
        known = self.walk.facts if facts is None else facts
        real_size = real_size_input(self.graph, self.symbol)
        return Certificate(self.graph, self.symbol, known, self.walk.fills, self.walk.together, real_size, LARGEST, 1)


WINDOW = "{kernel = [2], strides = [2], pads = [0, 0], dilations = [1]}"
SLIDING = "{strides = [1], pads = [1, 1], dilations = [1]}"
TEXTS = (
    f"graph @main(%x: f32[S, 2, 5], %w: f32[3, 2, 3]) {{ %a: f32[S, 3, 5] = conv(%x, %w, _) {SLIDING} return %a }}",
    f"graph @main(%x: u8[S, 2, 5], %w: u8[3, 2, 3]) {{ "
    f"%a: i32[S, 3, 5] = conv_integer(%x, %w, _, _) {SLIDING} return %a }}",
    f"graph @main(%x: f32[S, 2, 4]) {{ %a: f32[S, 2, 2] = average_pool(%x) {WINDOW} return %a }}",
    f"graph @main(%x: f32[S, 2, 4]) {{ %a: f32[S, 2, 2] = lp_pool(%x) {WINDOW} return %a }}",
    f"graph @main(%x: f32[S, 2, 4]) {{ "
    f"%a: f32[S, 2, 2], %i: i64[S, 2, 2] = max_pool_with_indices(%x) {WINDOW} return %a, %i }}",
    'graph @main(%x: f32[S, 4], %w: f32[4, 3]) { %a: f32[S, 3] = einsum(%x, %w) {equation = "ij,jk->ik"} return %a }',
    "graph @main(%x: f32[S, 3, 3]) { %a: f32[S] = det(%x) return %a }",
    "graph @main(%x: f32[5, S, 4], %w: f32[1, 2, 4], %r: f32[1, 2, 2]) { "
    "%y: f32[5, 1, S, 2], %h: f32[1, S, 2] = rnn(%x, %w, %r, _, _, _) return %y, %h }",
    "graph @main(%x: f32[5, S, 4], %w: f32[1, 6, 4], %r: f32[1, 6, 2]) { "
    "%y: f32[5, 1, S, 2], %h: f32[1, S, 2] = gru(%x, %w, %r, _, _, _) return %y, %h }",
    "graph @main(%x: f32[5, S, 4], %w: f32[1, 8, 4], %r: f32[1, 8, 2]) { %y: f32[5, 1, S, 2], %h: f32[1, S, 2], "
    "%c: f32[1, S, 2] = lstm(%x, %w, %r, _, _, _, _, _) return %y, %h, %c }",
    "graph @main(%q: f32[S + 3, 2, 4], %k: f32[3, 5, 1, 4], %v: f32[3, 5, 1, 2], %c: i64[3], %l: i64[3]) { "
    "%a: f32[S + 3, 2, 2] = varlen_attention(%q, %k, %v, %c, %l) {longest = 4, causal = true} return %a }",
    "graph @main(%x: f32[S, 2, 3]) { %a: f32[S, 4, 5, 2] = affine_grid(%x) {size = [4, 5]} return %a }",
    "graph @main(%x: f32[S, 4, 9]) { %a: f32[S, 1, 4, 4] = col2im(%x) {image = [4, 4], block = [2, 2], "
    "strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1]} return %a }",
    "graph @main(%x: f32[S, 10, 1]) { %a: f32[S, 4, 3, 2] = stft(%x, _) {frame_step = 2, frame_length = 4} return %a }",
    "graph @main(%x: f32[S, 6, 1]) { %a: f32[S, 6, 2] = dft(%x) {axis = 1} return %a }",
    "graph @main(%x: f32[S, 2, 5], %w: f32[2, 3, 3]) { %a: f32[S, 3, 5] = conv_transpose(%x, %w, _) "
    "{strides = [1], pads = [1, 1], output_padding = [0], dilations = [1]} return %a }",
    "graph @main(%x: u8[S, 2, 5], %s: f32[], %z: u8[], %w: u8[3, 2, 3]) { "
    f"%a: u8[S, 3, 5] = qlinear_conv(%x, %s, %z, %w, %s, %z, %s, %z, _) {SLIDING} return %a }}",
    # numbers that the dim does not reach, of which more than nothing is known
    "graph @main(%x: f32[S]) { %a: i64[2] = constant() {value = dense<i64[2]: [3, 3]>} return %a }",
    "graph @main(%x: f32[S, 3], %y: f32[2, 3]) { %a: i64[] = size(%y) return %a }",
    "graph @main(%x: f32[S, 3]) { %a: i64[] = dim() {value = 3} return %a }",
    "graph @main(%x: f32[S, 3]) { %a: i64[2] = dims() {values = [3, 5]} return %a }",
    "graph @main(%x: f32[S, 3]) { %a: i64[1] = shape(%x) {start = 1, end = 2} return %a }",
    # sizes that only running tells
    "graph @main(%x: f32[S]) { %c: i64[1, u0] = non_zero(%x) return %c }",
    "graph @main(%x: f32[4, S], %c: bool[4]) { %a: f32[u0, S] = compress(%x, %c) {axis = 0} return %a }",
    "graph @main(%x: f32[S], %y: f32[6]) { "
    "%d: f32[u0], %f: i64[u0], %i: i64[6], %n: i64[u0] = unique(%y) return %d, %f, %i, %n }",
    "graph @main(%b: f32[1, S, 4], %s: f32[1, 2, S], %m: i64[], %o: f32[], %t: f32[]) { "
    "%n: i64[u0, 3] = non_max_suppression(%b, %s, %m, %o, %t) return %n }",
)


@cache
def _graphs_of_rule_tests() -> tuple[Graph, ...]:
    """The graphs that stand in the tests of the rules, where they are plain text."""
    found = [parse(text) for text in TEXTS]
    for path in sorted((Path(__file__).parent / "rules").glob("test_*.py")):
        for text in re.findall(r'"""\s*(graph @main.*?)"""', path.read_text(encoding="utf-8"), re.DOTALL):
            try:
                found.append(parse(text.replace("{{", "{").replace("}}", "}")))
            except CapgraphError:
                continue  # a template
    return tuple(found)


@cache
def sites(op: str) -> tuple[Site, ...]:
    """Graphs with a node of this op of whose result its rule knows something, masked where that needs masks."""
    found: list[Site] = []
    drawn = (random_graph(seed, ops=[op], max_nodes=1, subject=Subject(op)) for seed in range(SEEDS))
    for given in chain((each for each in _graphs_of_rule_tests() if op in op_counts(each)), drawn):
        for name in input_symbols(given):
            graph: Graph | None = given
            if walked(given, name, LARGEST, 1).failure is not None:
                graph = mask_padding(given, name, LARGEST, 1)
            if graph is None:
                continue
            outcome = walked(graph, name, LARGEST, 1)
            nodes = [node for node in graph.nodes if node.op.name == op and _is_known(node, outcome.walk)]
            if nodes:
                found.append(Site(graph, nodes[-1], name, outcome.walk))
        if len(found) >= SITES:
            break
    return tuple(found[:SITES])


def _is_known(node: Node, made: Walk) -> bool:
    """Whether the dim reaches a result, or an operand, or more than nothing is known of a result."""
    given = any(made.facts[value].is_padded for value in node.operands)
    used = [value for value in node.outputs if value.has_uses and 0 not in value.shape]
    return any(given or made.facts[value] != plain(value) for value in used)


def false_facts(fact: Fact, dtype: np.dtype[Any], site: Site) -> Iterator[tuple[str, Fact]]:
    """What a wrong rule may claim of the same value, each untrue whatever the value holds."""
    for axis, tail in enumerate(fact.tails):
        if tail is None:
            padded = (*fact.tails[:axis], Tail(symbol(site.symbol)), *fact.tails[axis + 1 :])
            yield f"padding along axis {axis}", replace(fact, tails=padded)
            continue
        others: list[tuple[str, Tail | None]] = [
            ("no padding", None),
            ("one more real element", replace(tail, extent=tail.extent + 1, is_free=False)),
            ("another structure", replace(tail, outer=tail.outer * 2, is_free=False)),
            ("a state behind them", tail.filled(Same("nothing"))),
        ]
        if dtype.kind != "b":
            others.append(("another fill", replace(tail, fill=77)))
        elif tail.fill is not None:  # what a truth value happens to be is half of all there is
            others.append(("another fill", replace(tail, fill=not tail.fill)))
        for what, other in others:
            tails = tuple(other if i == axis else each for i, each in enumerate(fact.tails))
            yield f"{what} along axis {axis}", replace(fact, tails=tails)
    if dtype.kind not in "bO":
        yield "one number", replace(fact, number=77)
        yield "the real size", replace(fact, real_extent=symbol(site.symbol) + 77)
    if dtype.kind in "iu":
        yield "a bound", replace(fact, most=-5)
    yield "an input's elements", replace(fact, source="nothing")


RULED = sorted({*RULES, *(name for name, op in OPS.items() if op.has(Trait.ELEMENTWISE))} & OPS.keys())


@pytest.mark.parametrize("op", RULED)
def test_false_facts_are_refused(op: str) -> None:
    planted = 0
    for site in sites(op):
        assert refuted(site.certificate()) == ""
        for value in site.node.outputs:
            if not value.has_uses or 0 in value.shape:
                continue
            fact = site.walk.facts[value]
            for what, false in false_facts(fact, value.tensor.dtype.numpy, site):
                problem = refuted(site.certificate({**site.walk.facts, value: false}))
                assert problem, f"{what}, claimed of %{value.name}, at {site.node!r}"
                planted += 1
    assert planted, f"no graph reaches the rule of {op}"


def careless(rule: Rule) -> Rule:
    """A rule that finds nothing unsafe: real elements come first along every axis, whatever the op does."""

    def judge(case: Case) -> list[Fact]:
        results = case.node.outputs
        return [Fact(prefix_tails([*case.result_shape(i)], case.symbol)) for i in range(len(results))]

    return judge


def test_unsigned_numbers_are_tried_as_great_as_they_get() -> None:
    graph = parse("graph @main(%x: f32[S], %i: u32[3]) { %j: i32[3] = cast(%i) {to = i32} return %j }")
    made = walked(graph, "S", LARGEST, 1).walk
    site = Site(graph, next(iter(graph.nodes)), "S", made)
    (cast,) = graph.outputs
    assert refuted(site.certificate()) == ""
    assert "negative" in refuted(site.certificate({**made.facts, cast: replace(made.facts[cast], natural=True)}))


def test_large_results_are_tried_in_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a size that a call makes, here 100 of 100 + 0, is one of those that get smaller."""
    graph = parse(
        """graph @main(%x: f32[S + 100, 1, 100]) {
          %y: f32[S + 100, 300, 100] = expand(%x) {shape = [S + 100, 300, 100]}
          %z: f32[S + 100, 300, 100] = relu(%y)
          return %z
        }"""
    )
    largest = [0]

    def recorded(fact: Fact, result: Pair, *others: Any) -> str:
        largest.append(max(array.size for array in result))
        return refutation(fact, result, *others)

    monkeypatch.setattr(attempts, "refutation", recorded)
    _, report = made_safe(graph, "S")
    assert report.is_safe
    assert 0 < max(largest) <= attempts.MANY_ELEMENTS


def test_the_sizes_of_inputs_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[Graph] = []

    def recorded(graph: Graph) -> tuple[str, ...]:
        looked_up.append(graph)
        return input_symbols(graph)

    monkeypatch.setattr(claims, "input_symbols", recorded)
    lines = [f"%v{i + 1}: f32[S] = relu(%v{i})" for i in range(20)]
    _, report = made_safe(parse("\n".join(["graph @main(%v0: f32[S]) {", *lines, "return %v20 }"])), "S")
    assert report.is_safe
    assert len(looked_up) == 1


def test_what_is_tried_of_a_constant_is_known_of_calls_alike_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call of the first graph is small enough to be tried."""
    monkeypatch.setattr(checker, "_verdicts", {})
    text = """graph @main(%x: f32[SIZE]) {
      %c: f32[] = constant() {value = dense<f32[]: 2.0>}
      %y: f32[SIZE] = mul(%x, %c)
      return %y
    }"""
    for size, is_safe in (("S - 10", False), ("S", True)):
        assert made_safe(parse(text.replace("SIZE", size)), "S")[1].is_safe is is_safe


@pytest.mark.parametrize("op", RULED)
def test_a_rule_that_finds_everything_safe_does_no_harm(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever such a rule claims is refused, or is so: no garbage gets through."""
    monkeypatch.setattr(walk, "RULES", {**RULES, op: careless(RULES.get(op, elementwise))})
    for seed in {0, 1, FOUND.get(op, 2)}:
        graph = random_graph(seed, ops=[op], max_nodes=1, subject=Subject(op))
        sizes, arrays = random_inputs(graph, seed)
        assert leaks(graph, sizes, arrays, seed) == "", f"graph {seed}"
