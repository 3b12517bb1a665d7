"""Attention: which candidate is first for which sizes, what operands look like to kernels, and that these compile."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import Candidate, Chip, KernelLaunch, LibraryCall
from capgraph.executors.cuda.kernels.attention.attention import attention_of, lower_attention
from capgraph.executors.cuda.lower.lowering import is_within_limits
from capgraph.ir.constant import Array
from capgraph.ir.graph import Graph
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType

from tests.executors.cuda.compiling import compile_problems
from tests.executors.cuda.solving import Layout, Setting, setting


def attended(
    batch: int,
    heads: int,
    steps: int,
    depth: int,
    *,
    dtype: DType = DType.F16,
    keys: int = 0,
    kv_heads: int = 0,
    mask: Array | None = None,
    lengths: bool | Array = False,
    is_flat: bool = False,
    layout: Layout | None = None,
    chip: Chip | None = None,
    unseen: Sequence[int] = (),
    planted: Sequence[tuple[str, int, float]] = (),
    **attrs: Any,
) -> Setting:
    """Attention of random operands, [B, H, T, D] or with heads side by side; keys that are `unseen` hold NaN.

    What is `planted` is an operand, a step and the number that lies there in every sample and head, as feature 3.
    """
    keys, kv_heads = keys or steps, kv_heads or heads
    rng = np.random.default_rng(5)
    sizes = {"q": (heads, steps), "k": (kv_heads, keys), "v": (kv_heads, keys)}
    inputs = {name: rng.standard_normal((batch, n, t, depth)).astype(dtype.numpy) for name, (n, t) in sizes.items()}
    inputs["k"][:, :, list(unseen)] = np.nan
    for name, step, number in planted:
        inputs[name][:, :, step, 3] = number
    if is_flat:
        inputs = {name: x.swapaxes(1, 2).reshape(batch, x.shape[2], -1) for name, x in inputs.items()}
        attrs |= {"heads": heads, "kv_heads": kv_heads}
    if mask is not None:
        inputs["mask"] = mask
    if lengths is not False:
        inputs["lengths"] = np.full(batch, keys, np.int64) if lengths is True else lengths
    graph = Graph()
    types = {name: TensorType(DType.of(x.dtype), x.shape) for name, x in inputs.items()}
    names = ("q", "k", "v", "mask", "lengths")
    values = [graph.add_input(name, types[name]) if name in types else None for name in names]
    graph.set_outputs([graph.append(native("attention"), values, attrs, names=["o"]).output])
    layouts = dict.fromkeys(("q", "k", "v", "o"), layout) if layout is not None else {}
    return setting(graph, inputs, layouts, chip=chip)


def names(made: Setting) -> list[str]:
    return [each.name for each in lower_attention(made.task)]


def heads_inside(array: Array) -> Array:
    """[B, H, T, D] stored as [B, T, H, D]."""
    return np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2)


def test_heads_side_by_side_are_seen_by_strides() -> None:
    seen = attention_of(attended(2, 4, 6, 8, is_flat=True, kv_heads=2).task)
    assert seen is not None
    assert (seen.q.shape, seen.q.strides) == ((2, 4, 6, 8), (192, 8, 32, 1))
    assert (seen.k.shape, seen.k.strides) == ((2, 2, 6, 8), (96, 8, 16, 1))
    assert (seen.o.shape, seen.shared) == ((2, 4, 6, 8), 2)


def test_masks_are_repeated_by_strides_of_zero() -> None:
    seen = attention_of(attended(2, 4, 6, 8, mask=np.ones((1, 6), bool), keys=6).task)
    assert seen is not None
    assert seen.mask is not None
    assert seen.mask.strides == (0, 0, 0, 1)


def test_halves_go_to_tensor_cores_and_the_rest_to_multiply_adds() -> None:
    assert names(attended(1, 12, 128, 64))[0] == "tensor-cores-1x2x1"
    assert names(attended(1, 12, 128, 64, dtype=DType.F32)) == [
        "tensor-cores-f32-64x32",
        "tensor-cores-f32-128x32",
        "multiply-adds",
    ]
    assert names(attended(1, 12, 128, 12, dtype=DType.F32))[0] == "tensor-cores-f32-64x32"
    assert names(attended(1, 2, 5, 20))[0] == "tensor-cores-1x2x1"
    assert names(attended(1, 2, 5, 20, dtype=DType.F64)) == ["multiply-adds"]
    assert names(attended(1, 2, 5, 132, dtype=DType.F32)) == ["multiply-adds"]
    assert names(attended(1, 2, 5, 264)) == []


def test_long_queries_go_to_the_library_first() -> None:
    assert names(attended(1, 2, 512, 64, causal=True))[0] == "cudnn"
    assert "cudnn" not in names(attended(1, 2, 512, 64, softcap=5.0))
    assert "cudnn" not in names(attended(1, 2, 16, 64, lengths=True, keys=512))
    assert "cudnn" not in names(attended(1, 2, 64, 264))
    assert names(attended(1, 2, 512, 256, lengths=True))[0] == "cudnn"
    assert "cudnn" not in names(attended(1, 2, 512, 256, chip=Chip(80, 108, 163 << 10)))


def test_few_queries_of_long_caches_are_split_over_a_cluster_from_hopper_on() -> None:
    made = attended(1, 8, 1, 64, keys=2048, kv_heads=2, lengths=True, causal=True)
    (launch,) = next(iter(lower_attention(made.task))).launches
    assert isinstance(launch, KernelLaunch)
    assert launch.kernel.cluster == (8, 1, 1)
    older = attended(1, 8, 1, 64, keys=2048, kv_heads=2, lengths=True, causal=True, chip=Chip(80, 108, 163 << 10))
    assert all(each.name.endswith("x1") or each.name == "multiply-adds" for each in lower_attention(older.task))


@pytest.mark.parametrize("dtype", [DType.F16, DType.F32])
def test_more_samples_than_y_and_z_of_a_grid_take_have_all_their_kernels(dtype: DType) -> None:
    many = attended(70_000, 2, 1, 8, dtype=dtype, keys=2)
    candidates = list(lower_attention(many.task))
    launches = [each for candidate in candidates for each in candidate.launches if isinstance(each, KernelLaunch)]
    assert launches
    assert all(is_within_limits(launch.kernel, many.task.chip) for launch in launches)


@pytest.mark.parametrize("layout", [None, heads_inside])
@pytest.mark.parametrize("causal", [False, True])
def test_the_librarys_problem_says_what_the_node_means(layout: Layout | None, causal: bool) -> None:
    made = attended(2, 4, 70, 8, kv_heads=2, layout=layout, causal=causal)
    candidate = next(each for each in lower_attention(made.task) if each.name == "cudnn")
    assert isinstance(candidate.launches[0], LibraryCall)
    (found,) = made.found(candidate)
    assert np.allclose(found, made.expected[0], atol=2e-3)


RANDOM = np.random.default_rng(11)
SEEN = RANDOM.random((2, 1, 66, 70)) < 0.6
SEEN[1, :, 40:60] = False
LATER = SEEN.copy()
LATER[..., 5] = False
ODD = np.where(SEEN, RANDOM.standard_normal(SEEN.shape), -np.inf)
ALL_LOW = np.where(SEEN, 0, np.finfo(np.float32).min).astype(np.float32)
"""Rows that see nothing are means: the lowest float hides no key from others like it."""
PER_HEAD = RANDOM.standard_normal((1, 4, 66, 72))
ENDS = np.array([70, 20])


@pytest.mark.parametrize(
    "options",
    [
        {"mask": SEEN},
        {"mask": LATER, "unseen": [5]},
        {"mask": SEEN[:, :, :1], "causal": True},
        {"mask": SEEN[..., :1]},
        {"mask": ODD.astype(np.float16)},
        {"mask": ODD.astype(np.float32), "kv_heads": 2, "layout": heads_inside},
        {"mask": ALL_LOW},
        {"mask": PER_HEAD.astype(np.float16), "keys": 72},
        {"mask": ODD.astype(np.float32), "lengths": ENDS, "causal": True},
        {"mask": LATER[:1, :, :1], "lengths": np.array([-3, 80]), "unseen": [5]},
        {"lengths": np.array([69, 20]), "unseen": [69], "is_flat": True},
        {"lengths": np.array([80, 0]), "causal": True, "kv_heads": 2},
    ],
)
def test_masks_and_lengths_around_the_library_mean_what_the_node_means(options: dict[str, Any], tmp_path: Path) -> None:
    made = attended(2, 4, 66, 16, **{"keys": 70, **options})
    candidate = next(each for each in lower_attention(made.task) if each.name == "cudnn")
    assert [type(launch) for launch in candidate.launches][-2:] == [LibraryCall, KernelLaunch]
    with np.errstate(invalid="ignore"):
        (found,) = made.found(candidate, tmp_path)
    assert np.isfinite(made.expected[0]).all()
    assert np.allclose(found, made.expected[0], atol=3e-3)


def test_a_result_that_is_right_is_not_computed_again(tmp_path: Path) -> None:
    made = attended(1, 2, 66, 16, keys=70, mask=SEEN[:1])
    candidate = next(each for each in lower_attention(made.task) if each.name == "cudnn")
    repair = candidate.launches[-1]
    assert isinstance(repair, KernelLaunch)
    only = Candidate("repair", (repair,))
    (found,) = made.found(only, tmp_path)
    assert not found.any()  # no NaN, so the zeros that were there stay
    made.memory.tensor(repair.arguments[-1], np.float16, (1, 2, 66, 16), (2112, 1056, 16, 1))[0, 1, 20, 3] = np.nan
    (found,) = made.found(only, tmp_path)
    assert np.allclose(found[0, 1, 16:32], made.expected[0][0, 1, 16:32], atol=3e-3)
    assert not found[0, 0].any()


def between_others(before: int, behind: int) -> Layout:
    """Heads between that many features that are NaN."""

    def layout(array: Array) -> Array:
        size = array.shape[-1]
        whole = np.full((*array.shape[:-1], before + size + behind), np.nan, array.dtype)
        whole[..., before : before + size] = array
        return whole[..., before : before + size]

    return layout


PLACES = [
    (36, None),
    (20, heads_inside),
    (64, between_others(1, 0)),
    (16, between_others(4, 0)),
    (8, between_others(2, 2)),
    (33, between_others(0, 3)),
    (7, heads_inside),
    (68, between_others(4, 4)),
]
"""Sizes of heads, and how they lie."""


@pytest.mark.parametrize("chip", [Chip(80, 108, 163 << 10), Chip(90), Chip(100, 148)], ids=["sm_80", "sm_90", "sm_100"])
def test_kernels_compile(chip: Chip) -> None:
    settings = [
        attended(1, 12, 128, 64, is_flat=True, chip=chip),
        attended(2, 8, 3, 64, keys=2048, kv_heads=2, lengths=True, causal=True, dtype=DType.BF16, chip=chip),
        attended(2, 4, 33, 80, mask=np.zeros((2, 1, 33, 33), np.float16), softcap=20.0, chip=chip),
        attended(2, 4, 33, 40, keys=70, mask=np.ones((33, 70), bool), causal=True, chip=chip),
        attended(1, 2, 33, 40, dtype=DType.F32, mask=np.ones((33, 1), bool), chip=chip),
        attended(1, 2, 33, 72, dtype=DType.F32, causal=True, chip=chip),
        attended(1, 2, 5, 12, dtype=DType.F64, causal=True, chip=chip),
        attended(2, 2, 66, 256, mask=np.ones((66, 66), bool), dtype=DType.BF16, chip=chip),
        attended(2, 2, 66, 64, lengths=True, causal=True, layout=heads_inside, chip=chip),
        *(attended(2, 4, 300, size, chip=chip, layout=layout) for size, layout in PLACES),
        *(attended(2, 4, 9, size, chip=chip, layout=layout, dtype=DType.F32) for size, layout in PLACES),
    ]
    launches = [launch for made in settings for each in lower_attention(made.task) for launch in each.launches]
    assert compile_problems([x.kernel for x in launches if isinstance(x, KernelLaunch)], [chip.arch]) == []


SOME = np.random.default_rng(9).random((2, 1, 5, 40)) < 0.6
ADDED = np.where(SOME, np.random.default_rng(8).standard_normal(SOME.shape), -np.inf).astype(np.float32)
LOWEST = np.where(SOME & (np.arange(5) != 2)[:, None], 0, np.finfo(np.float32).min).astype(np.float32)
"""Of row 2 all are the lowest float, which hides none of them from the others."""


OPTIONS: list[dict[str, Any]] = [
    {},
    {"causal": True},
    {"lengths": True, "causal": True, "kv_heads": 2},
    {"lengths": np.array([40, 7]), "causal": True},
    {"mask": SOME},
    {"mask": ADDED, "softcap": 3.0, "kv_heads": 1},
    {"mask": LOWEST},
    {"mask": np.zeros((5, 1), bool)},
    {"is_flat": True, "scale": 0.3},
    {"layout": heads_inside},
]


def is_kept_apart(made: Setting) -> bool:
    """Whether what lies between the heads of a result is as it was."""
    (view,) = made.task.results
    whole = made.memory.buffers[view.buffer][64:-64].view(view.dtype.numpy).astype(np.float32)
    return int(np.isnan(whole).sum()) == whole.size - np.prod(view.shape)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
@pytest.mark.parametrize(("size", "layout"), PLACES)
def test_halves_of_any_size_and_place_on_tensor_cores(
    size: int, layout: Layout | None, dtype: DType, tmp_path: Path
) -> None:
    made = attended(2, 2, 5, size, keys=40, dtype=dtype, causal=True, lengths=np.array([40, 7]), layout=layout)
    candidate = next(lower_attention(made.task))
    assert candidate.name.startswith("tensor-cores")
    (found,) = made.found(candidate, tmp_path)
    far = np.abs(found.astype(np.float32) - made.expected[0].astype(np.float32)).max()
    assert far < (2e-3 if dtype is DType.F16 else 2e-2)
    assert is_kept_apart(made)


@pytest.mark.parametrize("options", OPTIONS)
def test_halves_on_tensor_cores_emulated(options: dict[str, Any], tmp_path: Path) -> None:
    made = attended(2, 4, 5, 12, keys=40, **options)
    first, *_, last, _ = lower_attention(made.task)
    for candidate in (first, last):
        assert candidate.name.startswith("tensor-cores")
        (found,) = made.found(candidate, tmp_path)
        assert np.allclose(found, made.expected[0], atol=2e-3)


def test_halves_by_warps_with_rows_of_their_own(tmp_path: Path) -> None:
    made = attended(1, 2, 70, 20, keys=75, causal=True, chip=Chip(multiprocessors=1))
    candidate = next(lower_attention(made.task))
    assert candidate.name == "tensor-cores-4x1x1"
    (found,) = made.found(candidate, tmp_path)
    assert np.allclose(found, made.expected[0], atol=2e-3)


@pytest.mark.parametrize(("size", "layout"), PLACES)
def test_the_library_gets_copies_of_what_does_not_lie_in_pieces(
    size: int, layout: Layout | None, tmp_path: Path
) -> None:
    made = attended(2, 4, 66, size, keys=70, kv_heads=2, mask=SEEN, layout=layout)
    by_library = [each for each in lower_attention(made.task) if each.name.startswith("cudnn")]
    (candidate,) = by_library
    assert candidate.name == "cudnn-padded"
    assert [type(launch) for launch in candidate.launches].count(LibraryCall) == 1
    (found,) = made.found(candidate, tmp_path)
    assert np.allclose(found, made.expected[0], atol=3e-3)
    assert is_kept_apart(made)


def test_only_what_needs_it_is_copied_for_the_library(tmp_path: Path) -> None:
    made = attended(1, 2, 66, 64)
    q, *others = made.task.operands
    assert q is not None
    made.task = replace(made.task, operands=(replace(q, shape=(1, 2, 64, 64), offset=q.offset + 2), *others))
    candidate = next(each for each in lower_attention(made.task) if each.name == "cudnn-padded")
    copy, call = candidate.launches
    assert isinstance(copy, KernelLaunch)
    assert isinstance(call, LibraryCall)
    assert len(copy.arguments) == 2
    assert candidate.scratch_bytes - call.workspace_bytes == 2 * 64 * 64 * 2
    assert not any("padded" in name for name in names(replace(made, task=replace(made.task, scratch_bytes=0))))


@pytest.mark.parametrize(("size", "layout"), PLACES)
def test_single_precision_of_any_size_and_place(size: int, layout: Layout | None, tmp_path: Path) -> None:
    made = attended(2, 2, 5, size, keys=40, dtype=DType.F32, layout=layout, lengths=np.array([40, 7]))
    candidate = next(lower_attention(made.task))
    assert candidate.name.startswith("tensor-cores-f32")
    (found,) = made.found(candidate, tmp_path)
    assert np.allclose(found, made.expected[0], atol=2e-6)
    assert is_kept_apart(made)


@pytest.mark.parametrize(("options", "size"), [*((options, 16) for options in OPTIONS), (OPTIONS[2], 72)])
def test_single_precision_on_tensor_cores_emulated(options: dict[str, Any], size: int, tmp_path: Path) -> None:
    made = attended(2, 4, 5, size, keys=40, dtype=DType.F32, **options)
    (found,) = made.found(next(lower_attention(made.task)), tmp_path)
    assert np.allclose(found, made.expected[0], atol=2e-6)


@pytest.mark.parametrize(("size", "few", "many"), [(16, "64x32", "128x32"), (72, "64x64", "64x32")])
def test_single_precision_by_many_blocks(size: int, few: str, many: str, tmp_path: Path) -> None:
    assert names(attended(1, 2, 70, size, keys=75, dtype=DType.F32))[0] == f"tensor-cores-f32-{few}"
    made = attended(1, 2, 70, size, keys=75, causal=True, dtype=DType.F32, chip=Chip(multiprocessors=2))
    candidate = next(lower_attention(made.task))
    (found,) = made.found(candidate, tmp_path)
    assert candidate.name == f"tensor-cores-f32-{many}"
    assert np.allclose(found, made.expected[0], atol=2e-6)


@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize(
    "planted",
    [
        [("v", 7, np.inf)],
        [("v", 7, np.inf), ("v", 36, -np.inf)],
        [("v", 7, -np.inf), ("v", 9, np.nan)],
        [("v", 7, 3.4e38)],
        [("k", 7, np.inf)],
        [("q", 2, np.inf)],
        [("k", 7, np.nan)],
    ],
)
@pytest.mark.parametrize("masked", [False, True])
def test_infinities_in_single_precision(
    planted: list[tuple[str, int, float]], masked: bool, tf32: bool, tmp_path: Path
) -> None:
    size = 72 if masked and not tf32 and len(planted) > 1 else 16
    mask = {"mask": np.arange(40) % 9 != 7} if masked else {}
    with np.errstate(all="ignore"):
        made = attended(2, 4, 5, size, keys=40, dtype=DType.F32, planted=planted, **mask)
    made.task = replace(made.task, tf32=tf32)
    (found,) = made.found(next(lower_attention(made.task)), tmp_path)
    assert np.allclose(
        found, made.expected[0], rtol=2e-2 if tf32 else 2e-5, atol=5e-3 if tf32 else 2e-6, equal_nan=True
    )


def test_tiles_of_single_precision_and_one_product_where_tf32_is_allowed(tmp_path: Path) -> None:
    made = attended(1, 2, 70, 8, keys=75, kv_heads=1, causal=True, dtype=DType.F32)
    (found,) = made.found(next(lower_attention(made.task)), tmp_path)
    assert np.allclose(found, made.expected[0], atol=2e-6)
    made.task = replace(made.task, tf32=True)
    (rounded,) = made.found(next(lower_attention(made.task)), tmp_path)
    error = np.abs(rounded - made.expected[0]).max()
    assert 1e-5 < error < 5e-3


@pytest.mark.parametrize(
    ("candidate", "size"),
    [
        ("tensor-cores-f32-64x32", 16),
        ("tensor-cores-f32-128x32", 16),
        ("tensor-cores-f32-64x64", 72),
        ("multiply-adds", 16),
    ],
)
def test_single_precision_errs_as_numpys_over_many_keys(candidate: str, size: int, tmp_path: Path) -> None:
    made = attended(1, 1, 16, size, keys=192, dtype=DType.F32)
    (found,) = made.found(next(each for each in lower_attention(made.task) if each.name == candidate), tmp_path)
    wide = [None if each is None else each.astype(np.float64) for each in made.operands()]
    exact = made.task.node.op.meaning(*wide, **made.task.node.attrs.as_kwargs())
    error, usual = (np.linalg.norm(each - exact) for each in (found, made.expected[0]))
    assert error <= 1.5 * usual


@pytest.mark.parametrize("options", OPTIONS)
def test_multiply_adds_emulated(options: dict[str, Any], tmp_path: Path) -> None:
    made = attended(2, 4, 5, 12, keys=40, dtype=DType.F32, **options)
    *_, candidate = lower_attention(made.task)
    assert candidate.name == "multiply-adds"
    (found,) = made.found(candidate, tmp_path)
    assert np.allclose(found, made.expected[0], atol=1e-5)


def test_every_block_finds_its_rows_its_head_and_its_sample(tmp_path: Path) -> None:
    made = attended(3, 4, 20, 4, kv_heads=2, dtype=DType.F32)
    *_, candidate = lower_attention(made.task)
    (launch,) = candidate.launches
    assert isinstance(launch, KernelLaunch)
    assert launch.kernel.grid == (3 * 2 * 3, 1, 1)  # 40 rows are 3 tiles, of 2 heads, of 3 samples
    (found,) = made.found(candidate, tmp_path)
    assert np.allclose(found, made.expected[0], atol=1e-5)
