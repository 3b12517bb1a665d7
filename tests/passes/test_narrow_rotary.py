"""Rotations in f32 of smaller floats."""

import pytest
from capgraph.passes.fold.rotary import NarrowRotary

from tests.passes.checking import check_pass


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_casts_around_a_rotation_go(dtype: str) -> None:
    arguments = f"%x: {dtype}[2, 4, 3, 8], %c: f32[2, 3, 3], %s: f32[2, 3, 3]"
    check_pass(
        NarrowRotary(),
        f"""
        graph @main({arguments}) {{
          %w: f32[2, 4, 3, 8] = cast(%x) {{to = f32}}
          %r: f32[2, 4, 3, 8] = rotary_embedding(%w, %c, %s, _) {{rotary_dim = 6}}
          %y: {dtype}[2, 4, 3, 8] = cast(%r) {{to = {dtype}}}
          return %y
        }}
        """,
        f"""
        graph @main({arguments}) {{
          %0: {dtype}[2, 4, 3, 8] = rotary_embedding(%x, %c, %s, _) {{rotary_dim = 6}}
          return %0 as y
        }}
        """,
    )


@pytest.mark.parametrize(
    ("narrow", "back", "returned"),
    [("f16", "bf16", "%y"), ("f16", "f16", "%y, %r"), ("f64", "f64", "%y")],
    ids=["another dtype", "read in f32", "a wider one"],
)
def test_other_casts_stay(narrow: str, back: str, returned: str) -> None:
    check_pass(
        NarrowRotary(),
        f"""
        graph @main(%x: {narrow}[2, 4, 3, 8], %c: f32[2, 3, 4], %s: f32[2, 3, 4]) {{
          %w: f32[2, 4, 3, 8] = cast(%x) {{to = f32}}
          %r: f32[2, 4, 3, 8] = rotary_embedding(%w, %c, %s, _)
          %y: {back}[2, 4, 3, 8] = cast(%r) {{to = {back}}}
          return {returned}
        }}
        """,
        None,
    )
