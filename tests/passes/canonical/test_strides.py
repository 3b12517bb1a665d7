"""Strided slices that a concat joins are space to depth."""

import pytest
from capgraph.passes.cleanup.canonicalize import Canonicalize

from tests.passes.checking import check_pass

STARTS = [(0, 0), (1, 0), (0, 1), (1, 1)]


def slices(starts: list[tuple[int, int]], step: int = 2, end: int = 2**63 - 1) -> str:
    lines = [
        f"%s{i} = slice(%x) {{axes = [2, 1], starts = [{b}, {a}], ends = [{end}, {end}], steps = [{step}, {step}]}}"
        for i, (a, b) in enumerate(starts)
    ]
    return "\n".join(lines)


def test_patches_are_merged() -> None:
    check_pass(
        Canonicalize(),
        f"""
        graph @main(%x: f32[B, 6, 4, C]) {{
          {slices(STARTS)}
          %y = concat(%s0, %s1, %s2, %s3) {{axis = -1}}
          return %y
        }}""",
        """
        graph @main(%x: f32[B, 6, 4, C]) {
          %a = reshape(%x) {shape = [B, 3, 2, 2, 2, C]}
          %b = transpose(%a) {perm = [0, 1, 3, 4, 2, 5]}
          %y = reshape(%b) {shape = [B, 3, 2, 4*C]}
          return %y
        }""",
    )


@pytest.mark.parametrize(
    "body",
    [
        f"{slices([(0, 0), (0, 1), (1, 1), (1, 0)])} %y = concat(%s0, %s1, %s2, %s3) {{axis = 3}} return %y",
        f"{slices(STARTS[:3])} %y = concat(%s0, %s1, %s2) {{axis = 3}} return %y",
        f"{slices(STARTS, end=4)} %y = concat(%s0, %s1, %s2, %s3) {{axis = 3}} return %y",
        f"{slices(STARTS)} %y = concat(%s0, %s1, %s2, %s3) {{axis = 1}} return %y",
        f"{slices(STARTS)} %y = concat(%s0, %s1, %s2, %s3) {{axis = 3}} return %y, %s0",
    ],
)
def test_stays(body: str) -> None:
    check_pass(Canonicalize(), f"graph @main(%x: f32[B, 6, 6, C]) {{ {body} }}", None)
