"""Deformable convolutions: samples as columns of a matmul, and the kernel that does without."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import KernelLaunch
from capgraph.executors.cuda.kernels.conv.deformed import lower_deform_conv

from tests.executors.cuda.codegen.cases import Drawn, made
from tests.executors.cuda.emulator import HAS_COMPILER
from tests.executors.cuda.solving import Setting, setting

OF_THE_LARGEST = {"f16": 3e-3, "f32": 1e-5, "f64": 1e-12}
"""Columns are rounded to the dtype, as PyTorch's are."""
ATTRS = {"strides": (1, 2), "pads": (1, 0, 0, 1), "dilations": (1, 1)}


def deformed(dtype: str, groups: int, offset_groups: int, *, has_bias: bool = False, has_mask: bool = False) -> Setting:
    """Two images of 4 channels, windows of 2 x 3, 6 results a place."""
    d = Drawn()
    x, weight = d.array(dtype, 2, 4, 6, 7), d.array(dtype, 6, 4 // groups, 2, 3)
    offset = d.array(dtype, 2, offset_groups * 2 * 6, 6, 3)
    bias = [d.array(dtype, 6)] if has_bias else []
    mask = [d.array(dtype, 2, offset_groups * 6, 6, 3)] if has_mask else []

    def built(b: Any, x: Any, weight: Any, offset: Any, *rest: Any) -> Any:
        bias_value = rest[0] if has_bias else None
        mask_value = rest[-1] if has_mask else None
        settings = {**ATTRS, "groups": groups, "offset_groups": offset_groups}
        return b.op("deform_conv", x, weight, offset, bias_value, mask_value, **settings)

    case = made("deformed", built, x, weight, offset, *bias, *mask)
    names = [value.name for value in case.graph.inputs]
    return setting(case.graph, dict(zip(names, case.inputs, strict=True)))


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
@pytest.mark.parametrize(
    ("dtype", "groups", "offset_groups", "options"),
    [
        ("f32", 1, 1, {}),
        ("f16", 2, 1, {"has_bias": True}),
        ("f64", 1, 2, {"has_mask": True}),
        ("f32", 2, 4, {"has_bias": True, "has_mask": True}),
    ],
)
def test_windows_that_the_model_moves(
    dtype: str, groups: int, offset_groups: int, options: dict[str, bool], tmp_path: Path
) -> None:
    step = deformed(dtype, groups, offset_groups, **options)
    by_candidate = {each.name: each for each in lower_deform_conv(step.task)}
    assert list(by_candidate) == ["columns", "samples"]
    for name, candidate in by_candidate.items():
        (found,) = step.found(candidate, tmp_path)
        error = np.abs(found.astype(np.float64) - step.expected[0]).max() / np.abs(step.expected[0]).max()
        assert error <= OF_THE_LARGEST[dtype], name


def test_a_weight_that_is_no_matrix_is_read_where_it_lies() -> None:
    d = Drawn()
    arrays = d.array("f32", 1, 2, 4, 4), d.array("f32", 3, 2, 2, 2), d.array("f32", 1, 8, 3, 3)
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
    case = made("rows", lambda b, x, w, o: b.op("deform_conv", x, w, o, None, None, **attrs), *arrays)
    names = [value.name for value in case.graph.inputs]
    lies = {names[1]: lambda w: w.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)}
    step = setting(case.graph, dict(zip(names, case.inputs, strict=True)), lies)
    (candidate,) = lower_deform_conv(step.task)
    assert [type(launch) for launch in candidate.launches] == [KernelLaunch]
