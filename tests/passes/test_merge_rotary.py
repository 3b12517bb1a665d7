"""Rotations of the parts of one matmul become one."""

import pytest
from capgraph.ir.text.parser import parse
from capgraph.passes.cleanup.canonicalize import Canonicalize
from capgraph.passes.cleanup.redundancy import EliminateDeadCode
from capgraph.passes.fold.rotary import MergeRotary
from capgraph.passes.framework.pipeline import Pipeline

from tests.passes.checking import check_pass


def test_what_reads_another_part_may_come_before() -> None:
    graph = parse(
        """
        graph @main(%x: f32[2, 3, 32], %z: f32[2, 3, 2]) {
          %q: f32[2, 3, 16], %k: f32[2, 3, 8], %v: f32[2, 3, 8] = split(%x) {axis = 2, sizes = [16, 8, 8]}
          %w: f32[2, 3, 8] = neg(%v)
          %c: f32[2, 3, 2] = cos(%z)
          %a: f32[2, 3, 16] = rotary_embedding(%q, %c, %z, _) {heads = 4}
          %b: f32[2, 3, 8] = rotary_embedding(%k, %c, %z, _) {heads = 2}
          return %a, %b, %w
        }
        """
    )
    assert Pipeline(((MergeRotary(),),)).run(graph, check="numeric").changed


def test_queries_and_keys_are_rotated_together() -> None:
    check_pass(
        MergeRotary(),
        """
        graph @main(%x: f32[2, 3, 32], %c: f32[2, 3, 2], %s: f32[2, 3, 2]) {
          %q: f32[2, 3, 16], %k: f32[2, 3, 8], %v: f32[2, 3, 8] = split(%x) {axis = 2, sizes = [16, 8, 8]}
          %a: f32[2, 3, 16] = rotary_embedding(%q, %c, %s, _) {heads = 4}
          %b: f32[2, 3, 8] = rotary_embedding(%k, %c, %s, _) {heads = 2}
          return %a, %b, %v
        }
        """,
        """
        graph @main(%x: f32[2, 3, 32], %c: f32[2, 3, 2], %s: f32[2, 3, 2]) {
          %0: f32[2, 3, 24], %1: f32[2, 3, 8] = split(%x) {axis = 2, sizes = [24, 8]}
          %2: f32[2, 3, 24] = rotary_embedding(%0, %c, %s, _) {heads = 6}
          %3: f32[2, 3, 16], %4: f32[2, 3, 8] = split(%2) {axis = 2, sizes = [16, 8]}
          return %3 as a, %4 as b, %1 as v
        }
        """,
    )


@pytest.mark.parametrize("steps", [1, 3])
def test_heads_as_an_axis(steps: int) -> None:
    by_head = steps > 1
    made = [f"[2, {steps}, {heads}, 4]" if by_head else f"[2, {heads}, 1, 4]" for heads in (4, 2)]
    parts = ", ".join(f"%{name}: f32[2, {steps}, {size}]" for name, size in (("q", 16), ("k", 8), ("v", 8)))
    graph = parse(
        f"""
        graph @main(%x: f32[2, {steps}, 32], %c: f32[2, {steps}, 2], %s: f32[2, {steps}, 2]) {{
          {parts} = split(%x) {{axis = 2, sizes = [16, 8, 8]}}
          %qr: f32{made[0]} = reshape(%q) {{shape = {made[0]}}}
          %kr: f32{made[1]} = reshape(%k) {{shape = {made[1]}}}
          {f"%qh: f32[2, 4, {steps}, 4] = transpose(%qr) {{perm = [0, 2, 1, 3]}}" if by_head else ""}
          {f"%kh: f32[2, 2, {steps}, 4] = transpose(%kr) {{perm = [0, 2, 1, 3]}}" if by_head else ""}
          %a: f32[2, 4, {steps}, 4] = rotary_embedding({"%qh" if by_head else "%qr"}, %c, %s, _)
          %b: f32[2, 2, {steps}, 4] = rotary_embedding({"%kh" if by_head else "%kr"}, %c, %s, _)
          return %a, %b, %v
        }}
        """
    )
    Pipeline(((MergeRotary(),),)).run(graph, check="numeric")
    assert [node.op.name for node in graph.nodes].count("rotary_embedding") == 1


@pytest.mark.parametrize(
    ("cosines", "order", "read"),
    [("%d", "%q, %k, %v", "%v"), ("%c", "%q, %v, %k", "%v"), ("%c", "%q, %k, %v", "%k")],
)
def test_other_angles_other_neighbors_and_other_readers(cosines: str, order: str, read: str) -> None:
    names = {"%q": 16, "%k": 8, "%v": 8}
    parts = ", ".join(f"{name}: f32[2, 3, {names[name]}]" for name in order.split(", "))
    sizes = ", ".join(str(names[name]) for name in order.split(", "))
    check_pass(
        MergeRotary(),
        f"""
        graph @main(%x: f32[2, 3, 32], %c: f32[2, 3, 2], %d: f32[2, 3, 2], %s: f32[2, 3, 2]) {{
          {parts} = split(%x) {{axis = 2, sizes = [{sizes}]}}
          %a: f32[2, 3, 16] = rotary_embedding(%q, %c, %s, _) {{heads = 4}}
          %b: f32[2, 3, 8] = rotary_embedding(%k, {cosines}, %s, _) {{heads = 2}}
          return %a, %b, %v, {read}
        }}
        """,
        None,
    )


def test_an_axis_that_is_parted_before_it_is_split() -> None:
    pipeline = Pipeline(((MergeRotary(), Canonicalize(), EliminateDeadCode()),))
    by_head, flat = "f32[2, 3, 4, 4]", "f32[2, 3, 1, 4, 4]"
    graph = parse(
        f"""
        graph @main(%x: f32[2, 3, 48], %c: f32[2, 3, 2], %s: f32[2, 3, 2]) {{
          %p: f32[2, 3, 3, 4, 4] = reshape(%x) {{shape = [2, 3, 3, 4, 4]}}
          %q: {flat}, %k: {flat}, %v: {flat} = split(%p) {{axis = 2, sizes = [1, 1, 1]}}
          %qr: {by_head} = reshape(%q) {{shape = [2, 3, 4, 4]}}
          %kr: {by_head} = reshape(%k) {{shape = [2, 3, 4, 4]}}
          %qt: f32[2, 4, 3, 4] = transpose(%qr) {{perm = [0, 2, 1, 3]}}
          %kt: f32[2, 4, 3, 4] = transpose(%kr) {{perm = [0, 2, 1, 3]}}
          %a: f32[2, 4, 3, 4] = rotary_embedding(%qt, %c, %s, _)
          %b: f32[2, 4, 3, 4] = rotary_embedding(%kt, %c, %s, _)
          return %a, %b, %v
        }}
        """
    )
    assert pipeline.run(graph, check="numeric").changed
    assert sum(node.op.name == "rotary_embedding" for node in graph.nodes) == 1
