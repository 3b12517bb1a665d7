"""Convolutions against ONNX Runtime and onnx's reference, for drawn strides, pads, dilations and groups."""

from typing import Any

import numpy as np
import pytest
from capgraph.ir.dims import evaluate, symbol
from capgraph.ir.errors import ShapeError, TypeRuleError
from capgraph.ir.ops import native
from capgraph.ir.ops.nn import conv, windows
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.ops.onnx_oracle import assert_close, random, reference, run, runtime

small = st.integers(1, 3)


@st.composite
def window_cases(draw: st.DrawFn) -> dict[str, Any]:
    rank = draw(st.integers(1, 3))
    kernel = draw(st.lists(small, min_size=rank, max_size=rank))
    dilations = draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank))
    pads = draw(st.lists(st.integers(0, 2), min_size=2 * rank, max_size=2 * rank))
    extents = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    sizes = [
        draw(st.integers(max(1, extent - pads[axis] - pads[rank + axis]), 7)) for axis, extent in enumerate(extents)
    ]
    return {
        "kernel": kernel,
        "sizes": sizes,
        "strides": draw(st.lists(small, min_size=rank, max_size=rank)),
        "pads": pads,
        "dilations": dilations,
        "groups": draw(small),
        "batch": draw(st.integers(0, 3)),
        "channels": draw(st.tuples(small, small)),
        "has_bias": draw(st.booleans()),
    }


def onnx_attrs(case: dict[str, Any]) -> dict[str, Any]:
    return {name: case[name] for name in ("strides", "pads", "dilations")} | {"group": case["groups"]}


def native_attrs(case: dict[str, Any]) -> dict[str, Any]:
    return {name: case[name] for name in ("strides", "pads", "dilations", "groups")}


def operands(case: dict[str, Any], *, transposed: bool) -> tuple[Any, Any, Any]:
    per_group, out_per_group = case["channels"]
    groups = case["groups"]
    x = random(1, case["batch"], per_group * groups, *case["sizes"])
    rows = (per_group * groups, out_per_group) if transposed else (out_per_group * groups, per_group)
    weight = random(2, *rows, *case["kernel"])
    return x, weight, random(3, out_per_group * groups) if case["has_bias"] else None


@given(window_cases())
def test_conv_agrees_with_onnx_runtime(case: dict[str, Any]) -> None:
    given_operands = operands(case, transposed=False)
    (found,) = run("conv", *given_operands, **native_attrs(case))
    if case["batch"]:
        assert_close(found, runtime("Conv", *given_operands, **onnx_attrs(case))[0])


@given(window_cases(), st.data())
def test_conv_transpose_agrees_with_onnx_runtime(case: dict[str, Any], data: st.DataObject) -> None:
    extra = [data.draw(st.integers(0, stride - 1)) for stride in case["strides"]]
    case["pads"] = [0] * len(case["pads"])
    natural = [
        s * (n - 1) + d * (k - 1) + 1
        for s, n, d, k in zip(case["strides"], case["sizes"], case["dilations"], case["kernel"], strict=True)
    ]
    rank = len(natural)
    for axis, size in enumerate(natural):
        case["pads"][axis] = data.draw(st.integers(0, min(2, size - 1)))
        case["pads"][rank + axis] = data.draw(st.integers(0, min(2, size - 1 - case["pads"][axis])))
    given_operands = operands(case, transposed=True)
    (found,) = run("conv_transpose", *given_operands, output_padding=extra, **native_attrs(case))
    if case["batch"]:
        expected = runtime("ConvTranspose", *given_operands, output_padding=extra, **onnx_attrs(case))[0]
        assert_close(found, expected)


@given(window_cases(), st.integers(200, 2000))
def test_tiles_do_not_change_a_convolution(case: dict[str, Any], tile: int) -> None:
    given_operands = operands(case, transposed=False)
    (whole,) = run("conv", *given_operands, **native_attrs(case))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "TILE_BYTES", tile)
        (tiled,) = run("conv", *given_operands, **native_attrs(case))
    assert_close(tiled, whole)


@given(window_cases())
def test_the_transposed_convolution_is_the_adjoint(case: dict[str, Any]) -> None:
    case["has_bias"] = False
    x, weight, _ = operands(case, transposed=False)
    (y,) = run("conv", x, weight, None, **native_attrs(case))
    cotangent = random(5, *y.shape)
    rank = len(case["sizes"])
    # What the stride leaves over at the end is the transposed convolution's output padding.
    extra = [
        (n + p + q - d * (k - 1) - 1) % s
        for n, p, q, d, k, s in zip(
            case["sizes"], case["pads"], case["pads"][rank:], case["dilations"], case["kernel"], case["strides"],
            strict=False,
        )
    ]  # fmt: skip
    (back,) = run("conv_transpose", cotangent, weight, None, output_padding=extra, **native_attrs(case))
    assert back.shape == x.shape
    assert np.vdot(cotangent, y) == pytest.approx(np.vdot(back, x), rel=1e-3, abs=1e-3)


@given(window_cases())
def test_col2im_agrees_with_the_reference(case: dict[str, Any]) -> None:
    rank, channels = len(case["sizes"]), case["channels"][0]
    if rank == 1:  # the operator wants at least two spatial axes
        return
    attrs = {name: case[name] for name in ("strides", "pads", "dilations")}
    counts = windows.window_counts(case["sizes"], case["kernel"], case["strides"], case["pads"], case["dilations"])
    blocks = int(np.prod(case["kernel"]))
    x = random(1, case["batch"], channels * blocks, int(np.prod(np.array(counts))))
    (found,) = run("col2im", x, image=case["sizes"], block=case["kernel"], **attrs)
    if case["batch"]:
        expected = reference("Col2Im", x, np.array(case["sizes"]), np.array(case["kernel"]), **attrs)[0]
        assert_close(found, expected)


PLAIN = {"strides": [1, 1], "pads": [0, 0, 0, 0], "dilations": [1, 1]}


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F64])
def test_small_floats_are_summed_in_f32_and_rounded_once(dtype: DType) -> None:
    x, weight, bias = (random(i, *s).astype(dtype.numpy) for i, s in enumerate([(1, 64, 4, 4), (3, 64, 3, 3), (3,)]))
    (found,) = run("conv", x, weight, bias, **PLAIN)
    wide = (array.astype(np.float64 if dtype is DType.F64 else np.float32) for array in (x, weight, bias))
    (exact,) = run("conv", *wide, **PLAIN)
    assert found.tobytes() == exact.astype(dtype.numpy).tobytes()


def test_negative_pads_of_a_transposed_convolution_add_zeros() -> None:
    x, weight = random(1, 1, 2, 3), random(2, 2, 1, 2)
    (plain,) = run("conv_transpose", x, weight, None, strides=[2], pads=[0, 0], dilations=[1], output_padding=[0])
    (wider,) = run("conv_transpose", x, weight, None, strides=[2], pads=[-2, -1], dilations=[1], output_padding=[0])
    np.testing.assert_array_equal(wider, np.pad(plain, ((0, 0), (0, 0), (2, 1))))


def test_the_operand_of_a_convolution_may_be_any_view() -> None:
    x = random(1, 2, 6, 7, 3).transpose(0, 3, 2, 1)[:, :, ::-1, ::2]
    weight = random(2, 3, 5, 2, 2).swapaxes(0, 1)[:, :, ::-1]
    np.testing.assert_allclose(
        run("conv", x, weight, None, **PLAIN)[0],
        run("conv", np.ascontiguousarray(x), np.ascontiguousarray(weight), None, **PLAIN)[0],
        rtol=1e-5,
        atol=1e-5,
    )


def test_symbolic_pads_and_sizes() -> None:
    height, pad = symbol("H"), symbol("P")
    x, weight = TensorType(DType.F32, (symbol("B"), 3, height, 8)), TensorType(DType.F32, (4, 3, 3, 3))
    attrs = native("conv").complete_attrs({"strides": [2, 2], "pads": [pad, 0, pad, 0], "dilations": [1, 1]})
    (result,) = native("conv").result_types([x, weight, None], attrs)
    assert result == TensorType(DType.F32, (symbol("B"), 4, (height + 2 * pad - 3) // 2 + 1, 3))
    flops = native("conv").flops([x, weight, None], [result], attrs)
    assert evaluate(flops, {"B": 2, "H": 9, "P": 1}) == 2 * (2 * 4 * 5 * 3) * 27


def test_flops_count_two_for_a_multiply_add() -> None:
    op = native("conv")
    types = [TensorType(DType.F32, (2, 4, 6, 6)), TensorType(DType.F32, (8, 2, 3, 3)), None]
    attrs = op.complete_attrs({**PLAIN, "groups": 2})
    assert op.flops(types, op.result_types(types, attrs), attrs) == 2 * (2 * 8 * 4 * 4) * (2 * 3 * 3)


@pytest.mark.parametrize(
    ("x", "weight", "attrs", "error"),
    [
        ((1, 3, 8, 8), (4, 2, 3, 3), {}, ShapeError),  # channels
        ((1, 3, 8, 8), (4, 3, 3), {}, TypeRuleError),  # rank
        ((1, 3, 2, 8), (4, 3, 3, 3), {}, ShapeError),  # window too large
        ((1, 4, 8, 8), (3, 2, 3, 3), {"groups": 2}, TypeRuleError),  # groups
        ((1, 3, 8, 8), (4, 3, 3, 3), {"strides": [1]}, TypeRuleError),
        ((1, 3, 8, 8), (4, 3, 3, 3), {"strides": [0, 1]}, TypeRuleError),
        ((1, 3, 8, 8), (4, 3, 3, 3), {"pads": [0, 0]}, TypeRuleError),
        ((1, 3), (4, 3), {"strides": [], "pads": [], "dilations": []}, TypeRuleError),
    ],
)
def test_refused_convolutions(x: tuple[int, ...], weight: tuple[int, ...], attrs: Any, error: type) -> None:
    op = native("conv")
    types = [TensorType(DType.F32, x), TensorType(DType.F32, weight), None]
    with pytest.raises(error):
        op.result_types(types, op.complete_attrs({**PLAIN, **attrs}))


@pytest.mark.parametrize("kernel", [(1, 1), (3, 3)])
def test_over_no_channels_only_the_bias_is_left(kernel: tuple[int, int]) -> None:
    x, weight = np.ones((2, 0, 4, 4), np.float32), np.ones((3, 0, *kernel), np.float32)
    bias = np.arange(3, dtype=np.float32)
    (found,) = run("conv", x, weight, bias, **PLAIN)
    np.testing.assert_array_equal(found, np.broadcast_to(bias.reshape(1, 3, 1, 1), found.shape))


def test_a_bias_of_another_size_is_refused() -> None:
    op = native("conv")
    types = [TensorType(DType.F32, shape) for shape in ((1, 3, 8, 8), (4, 3, 3, 3), (3,))]
    with pytest.raises(ShapeError, match="bias"):
        op.result_types(types, op.complete_attrs(PLAIN))


def test_every_op_of_the_family_is_tested_here() -> None:
    assert {op.name for op in conv.OPS} == {"conv", "conv_transpose", "col2im"}
