"""What is written behind attention whose hidden rows are NaN: NaN where the mask hides all keys, emulated."""

from pathlib import Path

import numpy as np
import pytest
from capgraph.ir.text.parser import parse

from tests.executors.cuda.codegen.cases import Case
from tests.executors.cuda.codegen.emulated import emulated_problems


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_rows_that_a_mask_hides_become_nan(dtype: str, tmp_path: Path) -> None:
    graph = parse(
        f"""graph @main(%a: {dtype}[2, 2, 5, 8], %m: bool[1, 2, 5, 7]) {{
          %zero: f32[] = constant() {{value = dense<f32[]: 0.0>}}
          %low: f32[] = constant() {{value = dense<f32[]: -inf>}}
          %nan: {dtype}[] = constant() {{value = dense<{dtype}[]: nan>}}
          %w: f32[1, 2, 5, 7] = where(%m, %zero, %low)
          %h: f32[1, 2, 5, 1] = reduce_max(%w) {{axes = [-1]}}
          %i: bool[1, 2, 5, 1] = equal(%h, %low)
          %y: {dtype}[2, 2, 5, 8] = where(%i, %nan, %a)
          return %y
        }}"""
    )
    draw = np.random.default_rng(0)
    shown = draw.random((1, 2, 5, 7)) < 0.5
    shown[:, :, 1] = False
    a = draw.standard_normal((2, 2, 5, 8)).astype(np.float32 if dtype == "f32" else np.float16)
    assert emulated_problems([Case("hidden rows", graph, {}, [a, shown])], tmp_path) == []
