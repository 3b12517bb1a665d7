"""Convolutions as problems of cuDNN: layouts, what follows, channels filled up; and own kernels that compile."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capgraph.executors.cuda.driver.packing import PACKINGS
from capgraph.executors.cuda.kernel_ir.launch import Candidate, Chip, KernelLaunch, LibraryCall, Packed
from capgraph.executors.cuda.kernels.conv.convolutions import lower_convolution
from capgraph.executors.cuda.kernels.conv.images import channels_last
from capgraph.executors.cuda.kernels.conv.quantized import LOWERINGS
from capgraph.executors.cuda.libraries.problems import ConvProblem
from capgraph.ir.constant import Array
from capgraph.ir.graph import Graph, Value
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.executors.cuda.compiling import compile_problems
from tests.executors.cuda.solving import RESULTS, Layout, Setting, constant, setting


def drawn(shape: Sequence[int], dtype: DType = DType.F32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(tuple(shape)).astype(dtype.numpy)


def as_image(array: Array) -> Array:
    """[N, C, ...] stored as [N, ..., C]."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


def convolution(
    x: Sequence[int],
    w: Sequence[int],
    *epilogue: str,
    dtype: DType = DType.F32,
    is_transposed: bool = False,
    layout: Layout = as_image,
    result: Layout | None = None,
    chip: Chip | None = None,
    is_weight_given: bool = False,
    tf32: bool = False,
    odd: Mapping[str, tuple[tuple[int, ...], float]] | None = None,
    **attrs: Any,
) -> Setting:
    """A convolution, its image and result in a layout, and what follows it; the weight is constant, or row-major.

    "norm" is a factor and an addend in f32 for each channel; `odd` is an element of "x" or "w" and its number.
    """
    axes = len(w) - 2
    given = {"strides": [1] * axes, "pads": [1] * 2 * axes, "dilations": [1] * axes, **attrs}
    if is_transposed:
        given.setdefault("output_padding", [0] * axes)
    graph, inputs = Graph(), {"x": drawn(x, dtype)}
    channels = w[1] * given.get("groups", 1) if is_transposed else w[0]
    bias = constant(graph, drawn((channels,), dtype, 2)) if "bias" in epilogue else None
    weight = drawn(w, dtype, 1)
    for name, (place, number) in (odd or {}).items():
        {"x": inputs["x"], "w": weight}[name][place] = number
    image = graph.add_input("x", TensorType(dtype, tuple(x)))
    if is_weight_given:
        inputs["w"] = weight
    given_weight = graph.add_input("w", TensorType(dtype, tuple(w))) if is_weight_given else constant(graph, weight)
    operands = [image, given_weight, bias]
    value = graph.append(native("conv_transpose" if is_transposed else "conv"), operands, given, names=["y"]).output
    layouts = {"x": layout}
    for index, name in enumerate(epilogue):
        if name in ("residual", "gate"):
            inputs[f"r{index}"] = drawn([int(dim) for dim in value.shape], dtype, 3)
            layouts[f"r{index}"] = layout
            other = graph.add_input(f"r{index}", value.type)
            value = graph.append(native("add" if name == "residual" else "mul"), [other, value]).output
        elif name == "norm":
            value = normed(graph, value)
        elif name != "bias":
            value = graph.append(native(name), [value]).output
    graph.set_outputs([value])
    return setting(graph, inputs, {**layouts, RESULTS: result or layout}, chip=chip, tf32=tf32)


def normed(graph: Graph, value: Value) -> Value:
    """What a batch norm is spread to."""
    shape = (value.shape[1], *[1] * (value.tensor.rank - 2))
    numbers = [constant(graph, drawn([int(dim) for dim in shape], DType.F32, seed)) for seed in (4, 5)]
    wide = graph.append(native("cast"), [value], {"to": DType.F32}).output
    scaled = graph.append(native("mul"), [wide, numbers[0]]).output
    added = graph.append(native("add"), [scaled, numbers[1]]).output
    return graph.append(native("cast"), [added], {"to": value.tensor.dtype}).output


def by_cudnn(made: Setting) -> Candidate:
    return next(each for each in lower_convolution(made.task) if each.name.startswith("cudnn"))


def call_of(candidate: Candidate) -> LibraryCall:
    (call,) = (launch for launch in candidate.launches if isinstance(launch, LibraryCall))
    return call


def is_right(made: Setting, candidate: Candidate) -> bool:
    return all(np.allclose(x, y, rtol=0, atol=1e-4) for x, y in zip(made.found(candidate), made.expected, strict=True))


def names(made: Setting) -> list[str]:
    return [each.name for each in lower_convolution(made.task)]


@pytest.mark.parametrize(
    ("x", "w", "attrs"),
    [
        ((2, 8, 7, 6), (5, 8, 3, 3), {}),
        ((2, 8, 7, 6), (5, 8, 1, 1), {"pads": [0, 0, 0, 0], "strides": [2, 2]}),
        ((1, 8, 9, 9), (6, 4, 3, 3), {"groups": 2, "dilations": [2, 1], "pads": [0, 1, 2, 1]}),
        ((1, 6, 9, 9), (6, 1, 5, 5), {"groups": 6}),
        ((2, 8, 11), (4, 8, 3), {"strides": [2]}),
        ((1, 8, 4, 5, 6), (4, 8, 3, 3, 3), {}),
    ],
)
def test_convolutions_of_one_two_and_three_axes(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any]) -> None:
    made = convolution(x, w, "bias", **attrs)
    candidate = by_cudnn(made)
    assert len(candidate.launches) == 1
    assert is_right(made, candidate)


@pytest.mark.parametrize(
    ("w", "attrs"),
    [
        ((8, 4, 3, 3), {}),
        ((8, 4, 4, 4), {"strides": [2, 2]}),
        ((8, 4, 3, 3), {"strides": [2, 2], "output_padding": [1, 1]}),
    ],
)
def test_transposed_convolutions(w: tuple[int, ...], attrs: dict[str, Any]) -> None:
    made = convolution((1, 8, 5, 6), w, is_transposed=True, **attrs)
    assert is_right(made, by_cudnn(made))


def test_a_transposed_convolution_of_one_axis_is_the_librarys() -> None:
    made = convolution((1, 8, 6), (8, 4, 16), is_transposed=True, strides=[8], pads=[4, 4])
    assert is_right(made, by_cudnn(made))


@pytest.mark.parametrize("x", [(3, 8, 5, 7), (2, 8, 6), (1, 8, 4, 4)])
@pytest.mark.parametrize("epilogue", [(), ("bias",), ("bias", "relu")])
def test_windows_of_one_element_in_rows_are_a_matmul(
    x: tuple[int, ...], epilogue: tuple[str, ...], tmp_path: Path
) -> None:
    made = convolution(
        x, (5, 8, *(1 for _ in x[2:])), *epilogue, layout=np.ascontiguousarray, pads=[0] * 2 * (len(x) - 2)
    )
    candidate = next(each for each in lower_convolution(made.task) if each.name.startswith("product"))
    (found,) = made.found(candidate, tmp_path)
    assert np.allclose(found, made.expected[0], rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "epilogue",
    [
        ("relu",),
        ("bias", "relu"),
        ("bias", "residual", "relu"),
        ("bias", "silu"),
        ("bias", "gelu"),
        ("bias", "sigmoid", "gate"),
        ("bias", "leaky_relu", "residual"),
    ],
)
def test_what_follows_is_part_of_the_call(epilogue: tuple[str, ...]) -> None:
    made = convolution((1, 8, 5, 5), (8, 8, 3, 3), *epilogue)
    candidate = by_cudnn(made)
    assert len(candidate.launches) == 1
    assert is_right(made, candidate)


def test_what_the_library_has_not_is_a_kernel_behind_the_call() -> None:
    candidate = by_cudnn(convolution((1, 8, 5, 5), (8, 8, 3, 3), "bias", "relu", "hard_swish"))
    assert [type(launch) for launch in candidate.launches] == [LibraryCall, KernelLaunch]
    problem = call_of(candidate).problem
    assert isinstance(problem, ConvProblem)
    assert [step.name for step in problem.steps] == ["relu"]
    assert problem.y.strides == channels_last(problem.y.shape)


@pytest.mark.parametrize(("x", "w"), [((1, 8, 5, 5), (32, 8, 3, 3)), ((1, 8, 6), (32, 8, 3))])
def test_a_norm_is_left_to_a_kernel_behind_the_call(x: tuple[int, ...], w: tuple[int, ...], tmp_path: Path) -> None:
    made = convolution(x, w, "norm", "relu", dtype=DType.F16)
    candidate = by_cudnn(made)
    assert [type(launch) for launch in candidate.launches] == [LibraryCall, KernelLaunch]
    assert call_of(candidate).problem.steps == ()
    (found,) = made.found(candidate, tmp_path)
    assert np.allclose(found.astype(np.float32), made.expected[0].astype(np.float32), rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("is_weight_given", [False, True])
def test_the_library_sees_all_channels_last_between_copies(is_weight_given: bool) -> None:
    options: dict[str, Any] = {"layout": lambda x: x, "is_weight_given": is_weight_given}
    candidate = by_cudnn(convolution((1, 16, 5, 5), (8, 16, 3, 3), dtype=DType.F16, **options))
    copies = [KernelLaunch] * (1 + is_weight_given)
    assert [type(launch) for launch in candidate.launches] == [*copies, LibraryCall, KernelLaunch]
    problem = call_of(candidate).problem
    assert problem.x.strides == channels_last((1, 16, 5, 5))
    assert problem.w.strides == channels_last((8, 16, 3, 3))
    assert problem.y.strides == channels_last((1, 8, 5, 5))
    assert candidate.scratch_bytes >= (16 * 25 + 8 * 25) * 2


def test_exact_f32_in_rows_is_also_tried_as_it_lies() -> None:
    rows: dict[str, Any] = {"layout": lambda x: x, "is_weight_given": True}
    made = convolution((2, 8, 7, 6), (5, 8, 3, 3), "bias", **rows)
    candidate = next(each for each in lower_convolution(made.task) if each.name == "cudnn-rows")
    assert len(candidate.launches) == 1
    assert is_right(made, candidate)
    assert "cudnn-rows" not in names(convolution((2, 8, 7, 6), (5, 8, 3, 3), dtype=DType.F16, **rows))
    assert "cudnn-rows" not in names(convolution((2, 8, 7, 6), (5, 8, 3, 3)))


def test_few_channels_are_filled_up_with_zeros_in_image_and_weight() -> None:
    candidate = by_cudnn(convolution((1, 3, 5, 5), (8, 3, 3, 3), dtype=DType.F16))
    call = call_of(candidate)
    assert call.problem.x.shape == (1, 8, 5, 5)
    assert call.problem.w.shape == (8, 8, 3, 3)
    weight = call.arguments["w"]
    assert isinstance(weight, Packed)
    packed = PACKINGS[weight.packing](weight.constant.array, *weight.options)
    assert packed.shape == (8, 3, 3, 8)
    assert not packed[..., 3:].any()
    assert (packed[..., :3] == np.moveaxis(weight.constant.array, 1, -1)).all()


def test_own_kernels_come_first_for_depthwise_and_exact_f32() -> None:
    assert names(convolution((1, 16, 9, 9), (16, 1, 3, 3), "relu", groups=16, dtype=DType.F16))[0] == "depthwise"
    assert names(convolution((1, 8, 9, 9), (8, 8, 3, 3), "relu"))[0] == "gathered"
    assert names(convolution((1, 8, 9, 9), (8, 8, 3, 3), "relu", dtype=DType.F16))[0] == "cudnn"


def test_images_in_half_precision_have_a_kernel_on_tensor_cores() -> None:
    half: dict[str, Any] = {"dtype": DType.F16}
    assert [each[:6] for each in names(convolution((1, 64, 9, 9), (16, 64, 3, 3), "bias", "relu", **half))] == [
        *("cudnn", "cudnn-"),
        *("staged", "staged", "staged"),
        "gather",
    ]
    others = [
        convolution((1, 64, 9, 9), (8, 64, 3, 3), "relu"),
        convolution((1, 64, 9, 9), (8, 32, 3, 3), "relu", groups=2, **half),
        convolution((1, 60, 9, 9), (8, 60, 3, 3), "relu", **half),
        convolution((1, 64, 9, 9), (8, 64, 1, 1), "relu", **half),
        convolution((1, 64, 9, 9), (64, 8, 3, 3), "relu", is_transposed=True, **half),
    ]
    assert not [name for made in others for name in names(made) if name.startswith("staged")]
    for made in (
        convolution((1, 96, 90), (8, 96, 3), "relu", **half),
        convolution((1, 64, 9, 9), (8, 64, 3, 3), layout=lambda x: x, is_weight_given=True, **half),
    ):
        assert [name for name in names(made) if name.startswith("staged")]


def test_what_the_library_has_not_at_all_is_gathered() -> None:
    assert names(convolution((1, 8, 9, 9), (8, 8, 3, 3), dtype=DType.F64)) == ["gathered"]
    assert names(convolution((1, 8, 9, 9), (8, 8, 3, 3), pads=[-1, 0, 1, 1])) == ["gathered"]
    assert names(convolution((1, 2, 4, 4, 4, 4), (2, 2, 3, 3, 3, 3))) == ["gathered"]


def row_major(array: Array) -> Array:
    return array


FEW_OUTPUTS: list[tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...], dict[str, Any]]] = [
    ((2, 16, 9, 7), (3, 16, 3, 3), ("bias", "tanh"), {"result": row_major}),
    ((1, 40, 11), (1, 40, 7), ("bias",), {"pads": [3, 3]}),
    ((1, 24, 6, 20), (4, 24, 3, 2), ("bias", "relu", "residual"), {"dilations": [2, 3], "pads": [0, 1, 2, -1]}),
    ((1, 72, 5, 5), (8, 72, 1, 1), ("norm", "silu"), {"pads": [0] * 4, "layout": row_major}),
    ((1, 8, 12, 9), (8, 8, 3, 3), (), {"is_weight_given": True}),
]


FEW_INPUTS: list[tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...], dict[str, Any]]] = [
    ((2, 3, 9, 7), (64, 3, 3, 3), ("bias", "silu"), {"layout": row_major, "result": as_image}),
    ((1, 3, 21, 19), (40, 3, 7, 7), ("norm", "relu"), {"strides": [2, 2], "pads": [3, 3, 3, 3]}),
    ((1, 4, 6, 20), (104, 4, 3, 2), ("bias", "residual"), {"dilations": [2, 3], "pads": [0, 1, 2, -1]}),
    ((2, 1, 70), (8, 1, 5), ("bias",), {"strides": [3], "layout": row_major}),
    ((1, 2, 5, 70), (13, 2, 3, 3), ("bias",), {"layout": row_major}),
    ((1, 2, 4, 9), (16, 2, 1, 1), ("bias", "residual"), {"pads": [0] * 4, "is_weight_given": True}),
]


@pytest.mark.parametrize("chip", [Chip(80, 108, 163 << 10), Chip(90), Chip(100, 148)], ids=["sm_80", "sm_90", "sm_100"])
def test_own_kernels_compile(chip: Chip) -> None:
    settings = [
        convolution((1, 16, 9, 9), (16, 1, 3, 3), "bias", "relu", "residual", groups=16, dtype=DType.F16, chip=chip),
        convolution((1, 6, 9, 9), (6, 1, 5, 5), "silu", groups=6, strides=[2, 2], chip=chip),
        convolution((1, 16, 9, 9), (16, 1, 3, 3), "norm", "silu", groups=16, dtype=DType.F16, chip=chip),
        convolution((1, 64, 9, 9), (24, 64, 3, 3), "norm", "residual", "relu", dtype=DType.F16, chip=chip),
        convolution((1, 16, 9, 9), (16, 1, 7, 7), "relu", groups=16, dtype=DType.BF16, layout=lambda x: x, chip=chip),
        convolution((1, 96, 90), (8, 96, 3), "bias", dtype=DType.F16, layout=lambda x: x, chip=chip),
        convolution((1, 16, 5, 6), (16, 8, 3, 3), "bias", is_transposed=True, dtype=DType.F16, chip=chip),
        convolution((2, 64, 9, 9), (24, 64, 3, 3), "bias", "residual", "relu", dtype=DType.F16, chip=chip),
        convolution((1, 512, 7, 7), (96, 512, 1, 1), "silu", pads=[0] * 4, dtype=DType.BF16, chip=chip),
        convolution((2, 9, 8, 8), (6, 3, 3, 3), "bias", "hard_swish", groups=3, dtype=DType.BF16, chip=chip),
        convolution((1, 3, 8, 8), (6, 3, 3, 3), dtype=DType.F16, layout=lambda x: x, chip=chip),
        convolution((1, 4, 5, 6), (4, 3, 3, 3), "bias", is_transposed=True, groups=2, strides=[2, 1], chip=chip),
        convolution((1, 4, 12), (4, 4, 3), "bias", dtype=DType.F64, chip=chip),
        convolution((1, 4, 5, 6, 7), (4, 4, 3, 3, 3), "relu", chip=chip),
        *(
            convolution(x, w, *epilogue, dtype=DType.F16, chip=chip, **options)
            for x, w, epilogue, options in FEW_OUTPUTS
        ),
        *(
            convolution(x, w, *epilogue, dtype=DType.BF16, chip=chip, **options)
            for x, w, epilogue, options in FEW_INPUTS
        ),
        convolution((8, 64, 256, 256), (3, 64, 3, 3), "bias", dtype=DType.F16, result=row_major, chip=chip),
        convolution((8, 3, 256, 256), (64, 3, 3, 3), "bias", dtype=DType.F16, chip=chip),
    ]
    launches = [launch for made in settings for each in lower_convolution(made.task) for launch in each.launches]
    assert compile_problems([x.kernel for x in launches if isinstance(x, KernelLaunch)], [chip.arch]) == []


# ---- kernels, emulated


def emulated(made: Setting, name: str, folder: Path) -> None:
    candidate = next(each for each in lower_convolution(made.task) if each.name == name)
    for found, expected in zip(made.found(candidate, folder), made.expected, strict=True):
        assert np.allclose(found.astype(np.float64), expected.astype(np.float64), rtol=0, atol=2e-4)


@pytest.mark.parametrize(
    ("x", "w", "epilogue", "attrs"),
    [
        (
            (2, 6, 7, 5),
            (4, 3, 3, 2),
            ("bias", "relu", "residual"),
            {"groups": 2, "dilations": [2, 1], "strides": [1, 2]},
        ),
        ((1, 4, 9), (5, 4, 3), ("bias", "hard_swish"), {"strides": [2]}),
        ((1, 4, 9), (32, 4, 3), ("bias", "norm", "relu"), {}),
        ((1, 3, 4, 5, 3), (4, 3, 2, 3, 2), ("silu",), {}),
        ((1, 3, 6, 6), (4, 3, 3, 3), ("bias",), {"pads": [-1, 0, 1, 2]}),
        ((1, 4, 5, 6), (4, 3, 3, 2), ("bias",), {"groups": 2, "strides": [2, 1], "is_transposed": True}),
        ((1, 4, 5, 6), (4, 3, 3, 3), (), {"strides": [2, 2], "output_padding": [1, 0], "is_transposed": True}),
    ],
)
@pytest.mark.parametrize("layout", [as_image, lambda x: x], ids=["channels-last", "row-major"])
def test_gathered_windows(
    x: tuple[int, ...],
    w: tuple[int, ...],
    epilogue: tuple[str, ...],
    attrs: dict[str, Any],
    layout: Layout,
    tmp_path: Path,
) -> None:
    emulated(convolution(x, w, *epilogue, layout=layout, **attrs), "gathered", tmp_path)


@pytest.mark.parametrize("w", [(16, 128, 3, 3), (128, 16, 3, 3)])
def test_long_sums_in_single_precision_err_little_more_than_pairwise_ones(w: tuple[int, ...], tmp_path: Path) -> None:
    made = convolution((1, 128, 3, 3), w, is_transposed=w[0] == 128)
    candidate = next(each for each in lower_convolution(made.task) if each.name == "gathered")
    (found,) = made.found(candidate, tmp_path)
    x, weight, _ = (None if each is None else each.astype(np.float64) for each in made.operands())
    exact = made.task.node.op.meaning(x, weight, None, **made.task.node.attrs.as_kwargs())
    products = drawn((9, 16, 1152), DType.F32)
    assert relative(found, exact) <= 2 * relative(products.sum(-1), products.sum(-1, dtype=np.float64))


def relative(found: Array, exact: Array) -> float:
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("odd", [np.inf, np.nan])
def test_odd_weights_reach_what_lies_in_their_windows_alone(odd: float, tmp_path: Path) -> None:
    graph, weight = Graph(), drawn((4, 3, 3, 3), DType.F32, 1)
    weight[1, 2, 0, 1] = odd
    x, w = (graph.add_input(name, TensorType(DType.F32, s)) for name, s in (("x", (1, 4, 5, 6)), ("w", weight.shape)))
    attrs = {"strides": [2, 1], "pads": [0, 1, 1, 0], "dilations": [1, 1], "output_padding": [0, 0]}
    graph.set_outputs([graph.append(native("conv_transpose"), [x, w, None], attrs).output])
    made = setting(graph, {"x": drawn((1, 4, 5, 6), DType.F32), "w": weight})
    candidate = next(each for each in lower_convolution(made.task) if each.name == "gathered")
    (found,), (expected,) = made.found(candidate, tmp_path), made.expected
    assert np.allclose(found, expected, rtol=0, atol=2e-4, equal_nan=True)
    assert np.isfinite(found).any()


def in_halves(made: Setting, name: str, folder: Path) -> bool:
    """Whether a candidate's results are right but for rounding, NaN where they should be."""
    candidate = next(each for each in lower_convolution(made.task) if each.name == name)
    with np.errstate(invalid="ignore"):
        (found,), (expected,) = made.found(candidate, folder), made.expected
    step = 2e-3 if found.dtype == np.float16 else 2e-2
    wide, told = found.astype(np.float32), expected.astype(np.float32)
    scale = np.abs(told[np.isfinite(told)]).max()
    return np.allclose(wide, told, rtol=step, atol=step * scale, equal_nan=True)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
@pytest.mark.parametrize(("x", "w", "epilogue", "options"), FEW_OUTPUTS)
def test_few_channels_of_a_result(
    x: tuple[int, ...],
    w: tuple[int, ...],
    epilogue: tuple[str, ...],
    options: dict[str, Any],
    dtype: DType,
    tmp_path: Path,
) -> None:
    assert in_halves(convolution(x, w, *epilogue, dtype=dtype, **options), "few-outputs", tmp_path)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
@pytest.mark.parametrize(("x", "w", "epilogue", "options"), FEW_INPUTS)
def test_few_channels_of_an_image(
    x: tuple[int, ...],
    w: tuple[int, ...],
    epilogue: tuple[str, ...],
    options: dict[str, Any],
    dtype: DType,
    tmp_path: Path,
) -> None:
    made = convolution(x, w, *epilogue, dtype=dtype, **options)
    assert in_halves(made, "few-inputs", tmp_path)


@pytest.mark.parametrize("odd", [np.inf, np.nan])
@pytest.mark.parametrize(("name", "x", "w"), [("few-outputs", (24, 6, 7), (3, 24)), ("few-inputs", (3, 6, 7), (9, 3))])
def test_odd_numbers_beside_what_is_filled_up(
    name: str, x: tuple[int, ...], w: tuple[int, ...], odd: float, tmp_path: Path
) -> None:
    for places in ({"x": ((0, 1, 4, 3), odd)}, {"w": ((2, 1, 0, 2), odd)}):
        made = convolution((1, *x), (*w, 3, 3), "bias", dtype=DType.F16, odd=places)
        assert in_halves(made, name, tmp_path)
        assert np.isfinite(made.expected[0]).any()
        assert not np.isfinite(made.expected[0]).all()


def test_few_channels_are_first_where_pixels_are_many() -> None:
    half: dict[str, Any] = {"dtype": DType.F16}
    assert names(convolution((2, 64, 128, 128), (3, 64, 3, 3), **half))[0] == "few-outputs"
    assert names(convolution((2, 3, 128, 128), (64, 3, 3, 3), layout=row_major, **half))[0] == "few-inputs"
    assert names(convolution((1, 64, 64, 64), (3, 64, 3, 3), **half))[:2] == ["cudnn", "few-outputs"]
    others = [
        convolution((1, 64, 9, 9), (9, 64, 3, 3), **half),
        convolution((1, 64, 9, 9), (3, 64, 3, 3), strides=[2, 2], **half),
        convolution((1, 64, 9, 9), (3, 64, 6, 6), **half),
        convolution((1, 60, 9, 9), (3, 60, 3, 3), **half),
        convolution((1, 64, 9, 9), (3, 64, 3, 3)),
        convolution((1, 5, 9, 9), (64, 5, 3, 3), **half),
        convolution((1, 3, 32, 32), (64, 3, 16, 16), **half),
        convolution((1, 4, 9, 9), (16, 2, 3, 3), groups=2, **half),
        convolution((1, 3, 9, 9), (3, 16, 3, 3), is_transposed=True, **half),
    ]
    assert not [name for made in others for name in names(made) if name.startswith("few")]


def test_tiles_for_few_channels_fit_whatever_the_sizes() -> None:
    for x, w, stride in (
        ((1, 1024, 64, 64), (4, 1024, 3, 3), 1),
        ((8, 64, 256, 256), (8, 64, 3, 3), 1),
        ((8, 3, 300, 400), (32, 3, 7, 7), 5),
        ((1, 1, 16000), (64, 1, 100), 40),
    ):
        made = convolution(x, w, dtype=DType.F16, strides=[stride] * (len(x) - 2))
        found = [each for each in lower_convolution(made.task) if each.name.startswith("few")]
        for launch in (launch for each in found for launch in each.launches):
            assert isinstance(launch, KernelLaunch)
            assert launch.kernel.shared_bytes <= 56 << 10


DEPTHWISE: list[tuple[int, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    (16, (9, 7), (3, 5), {"strides": [2, 1], "pads": [1, 2, 1, 0]}),
    (5, (9, 7), (3, 5), {"strides": [2, 1], "pads": [1, 2, 1, 0]}),
    (6, (12, 70), (3, 3), {"strides": [1, 2], "pads": [2, 2, 2, 2], "dilations": [2, 3]}),
    (8, (30,), (4,), {"pads": [3, 0]}),
]


@pytest.mark.parametrize(("channels", "sizes", "taps", "attrs"), DEPTHWISE)
@pytest.mark.parametrize("layout", [as_image, lambda x: x], ids=["channels-last", "row-major"])
@pytest.mark.parametrize("is_weight_given", [False, True])
def test_depthwise(
    channels: int,
    sizes: tuple[int, ...],
    taps: tuple[int, ...],
    attrs: dict[str, Any],
    layout: Layout,
    is_weight_given: bool,
    tmp_path: Path,
) -> None:
    options: dict[str, Any] = {"groups": channels, "layout": layout, "is_weight_given": is_weight_given, **attrs}
    made = convolution((2, channels, *sizes), (channels, 1, *taps), "bias", "silu", "residual", **options)
    emulated(made, "depthwise" if layout is as_image else "depthwise-planes", tmp_path)


def test_depthwise_with_a_norm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capgraph.executors.cuda.kernels.conv.depthwise._ENOUGH_THREADS", 1)  # eight channels a thread
    made = convolution((1, 32, 9, 7), (32, 1, 3, 3), "norm", "relu", dtype=DType.F16, groups=32)
    candidate = next(each for each in lower_convolution(made.task) if each.name == "depthwise")
    (launch,) = candidate.launches
    assert isinstance(launch, KernelLaunch)
    assert "pack<float, 8>" in launch.kernel.text
    (found,) = made.found(candidate, tmp_path)
    assert np.allclose(found.astype(np.float32), made.expected[0].astype(np.float32), rtol=4e-3, atol=4e-3)


def test_tiles_of_planes_fit_whatever_the_sizes() -> None:
    for sizes, taps, stride in (((1, 4000), (1, 9), 1), ((300, 300), (11, 11), 3), ((7, 7), (7, 7), 1)):
        made = convolution(
            (1, 32, *sizes), (32, 1, *taps), groups=32, strides=[stride] * 2, pads=[5] * 4, layout=lambda x: x
        )
        (launch,) = next(each for each in lower_convolution(made.task) if each.name == "depthwise-planes").launches
        assert isinstance(launch, KernelLaunch)
        assert launch.kernel.shared_bytes <= 40 << 10


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((2, 3, 5, 4), (4, 3, 3, 3), {}),
        ((2, 20, 30), (24, 20, 3), {}),
        ((1, 4, 3, 5, 4), (20, 4, 2, 3, 3), {}),
        ((1, 20, 5, 4), (20, 8, 3, 3), {"is_transposed": True, "strides": [2, 1], "output_padding": [1, 0]}),
    ],
)
@pytest.mark.parametrize("is_weight_given", [False, True])
def test_copies_around_the_library(
    x: tuple[int, ...], w: tuple[int, ...], options: dict[str, Any], is_weight_given: bool, tmp_path: Path
) -> None:
    made = convolution(x, w, "bias", "relu", layout=lambda x: x, is_weight_given=is_weight_given, **options)
    emulated(made, by_cudnn(made).name, tmp_path)


def test_the_bias_of_a_transposed_convolution_is_added_by_a_kernel(tmp_path: Path) -> None:
    made = convolution((1, 8, 4, 5), (8, 16, 3, 3), "bias", "relu", is_transposed=True)
    candidate = by_cudnn(made)
    assert [type(launch) for launch in candidate.launches] == [LibraryCall, KernelLaunch, KernelLaunch]
    assert call_of(candidate).problem.bias is None
    emulated(made, candidate.name, tmp_path)


def leaves_gaps(sizes: list[int], results: Sequence[int], taps: list[int], attrs: dict[str, Any]) -> bool:
    """Whether some element of the result of a transposed convolution gets nothing from any element of the image."""
    each = zip(sizes, results, taps, attrs["strides"], attrs["dilations"], attrs["pads"], strict=False)
    return any(
        not {*range(whole)} <= {i * stride + tap * apart - pad for i in range(size) for tap in range(count)}
        for size, whole, count, stride, apart, pad in each
    )


@given(data=st.data())
@settings(max_examples=25)
def test_any_convolution_is_the_librarys_problem(data: st.DataObject) -> None:
    axes, is_transposed = data.draw(st.integers(1, 3)), data.draw(st.booleans())
    groups, per_group = data.draw(st.sampled_from([1, 1, 2, 3])), data.draw(st.integers(1, 3))
    channels = groups * data.draw(st.integers(1, 3))
    each = st.integers(1, 3)
    taps, strides, dilations = (data.draw(st.lists(each, min_size=axes, max_size=axes)) for _ in range(3))
    pads = data.draw(st.lists(st.integers(0, 2), min_size=2 * axes, max_size=2 * axes))
    sizes = data.draw(st.lists(st.integers(7, 9), min_size=axes, max_size=axes))
    attrs: dict[str, Any] = {"strides": strides, "dilations": dilations, "pads": pads, "groups": groups}
    if is_transposed:
        attrs["output_padding"] = [
            data.draw(st.integers(0, max(stride, apart) - 1)) for stride, apart in zip(strides, dilations, strict=True)
        ]
    weight = (channels, per_group, *taps) if is_transposed else (per_group * groups, channels // groups, *taps)
    epilogue = () if is_transposed else ("bias",)
    made = convolution((2, channels, *sizes), weight, *epilogue, is_transposed=is_transposed, **attrs)
    if is_transposed and leaves_gaps(
        sizes, made.expected[0].shape[2:], taps, attrs
    ):  # which the library would not write
        assert not any(each.name.startswith("cudnn") for each in lower_convolution(made.task))
        return
    candidate = by_cudnn(made)
    assert [type(launch) for launch in candidate.launches] == [LibraryCall]
    assert is_right(made, candidate)


def test_filled_channels_do_not_count(tmp_path: Path) -> None:
    made = convolution((1, 3, 5, 4), (4, 3, 3, 3), dtype=DType.F16)
    candidate = by_cudnn(made)
    (found,) = made.found(candidate, tmp_path)
    assert np.allclose(found, made.expected[0], atol=2e-2)


def test_the_rest_reads_what_the_library_put_into_scratch(tmp_path: Path) -> None:
    made = convolution((1, 8, 5, 5), (8, 8, 3, 3), "bias", "relu", "hard_swish")
    candidate = by_cudnn(made)
    assert all(
        np.allclose(x, y, atol=1e-4) for x, y in zip(made.found(candidate, tmp_path), made.expected, strict=True)
    )


# ---- quantized


def quantized(op: str, arrays: dict[str, Array], **attrs: Any) -> Setting:
    graph = Graph()
    values = [graph.add_input(name, TensorType(DType.of(x.dtype), x.shape)) for name, x in arrays.items()]
    operands = [*values, *[None] * (len(native(op).operands) - len(values))]
    graph.set_outputs([graph.append(native(op), operands, attrs).output])
    return setting(graph, arrays, {"x": as_image})


def whole(shape: Sequence[int], dtype: Any, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-90, 90, tuple(shape)).astype(dtype)


WINDOW = {"strides": [2, 1], "pads": [1, 0, 1, 1], "dilations": [1, 1], "groups": 2}


@pytest.mark.parametrize("zero", [(), (4,)])
def test_convolutions_of_bytes(zero: tuple[int, ...], tmp_path: Path) -> None:
    arrays = {"x": whole((2, 6, 5, 4), np.uint8), "w": whole((4, 3, 3, 2), np.int8, 1)}
    arrays |= {"x_zero": np.array(7, np.uint8), "w_zero": whole(zero, np.int8, 2)}
    made = quantized("conv_integer", arrays, **WINDOW)
    (candidate,) = LOWERINGS["conv_integer"](made.task)
    assert (made.found(candidate, tmp_path)[0] == made.expected[0]).all()


@pytest.mark.parametrize("has_bias", [False, True])
def test_convolutions_that_are_quantized_again(has_bias: bool, tmp_path: Path) -> None:
    arrays = {"x": whole((1, 6, 5, 4), np.int8), "x_scale": np.array(0.05, np.float32), "x_zero": np.array(3, np.int8)}
    arrays |= {"w": whole((4, 3, 3, 2), np.int8, 1), "w_scale": np.linspace(0.01, 0.05, 4, dtype=np.float32)}
    arrays |= {"w_zero": np.zeros(4, np.int8), "y_scale": np.array([0.9], np.float32), "y_zero": np.array(5, np.uint8)}
    if has_bias:
        arrays["bias"] = whole((4,), np.int32, 3) * 100
    made = quantized("qlinear_conv", arrays, **WINDOW)
    (candidate,) = LOWERINGS["qlinear_conv"](made.task)
    assert (made.found(candidate, tmp_path)[0] == made.expected[0]).all()
