"""Graphs with inputs whose kernels are checked, by the emulator here and on a GPU in tests/gpu."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from capgraph.executors.cuda.kernel_ir.draws import DRAWS
from capgraph.executors.cuda.kernel_ir.pointwise import LOWERINGS as POINTWISE
from capgraph.executors.cuda.kernel_ir.regions import body_nodes
from capgraph.executors.cuda.kernels.conv import deformed
from capgraph.executors.cuda.kernels.tables import LOWERINGS
from capgraph.ir.builder import Builder
from capgraph.ir.constant import Array
from capgraph.ir.errors import CapgraphError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph, Value
from capgraph.ir.ops import OPS, native
from capgraph.ir.types import DType, Kind, TensorType
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.fuse.fuse import Fuse

from tests.strategies.graphs import random_graph, random_inputs, subjects

TOLERANCES = {DType.F64: 1e-9, DType.F32: 3e-4, DType.F16: 6e-3, DType.BF16: 3e-2}
"""Relative to the size of the expected element, or of the hundredth part of the largest one."""
ATTEMPTS = 30

FOLDED = ("softmax", "layer_norm", "reduce_sum", "reduce_max")
REGION_OPS = (*(op for op in POINTWISE if op not in DRAWS), *FOLDED, "gather")
"""What random regions are made of."""
_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "is_nan", "is_inf", "sign")
_ROUNDINGS = ("floor", "ceil", "round", "mod", "fmod", "cast", "bit_cast", "thresholded_relu", "shrink")
_STEEP = ("div", "reciprocal", "pow", "tan")
SMOOTH_OPS = tuple(op for op in REGION_OPS if op not in (*_COMPARISONS, *_ROUNDINGS, *_STEEP))
"""Those that do not make much of a last bit: kernels do not round between the ops of a region."""


@dataclass(frozen=True)
class Case:
    """A graph, sizes of its symbols, and its inputs in order."""

    name: str
    graph: Graph
    sizes: dict[str, int]
    inputs: list[Array]


def expected_of(case: Case) -> tuple[Any, ...]:
    """What the graph gives by its meaning."""
    return evaluate_graph(case.graph, case.inputs, case.sizes)


def is_close(found: Array, expected: Array, graph: Graph) -> str:
    """Why a result is not as expected, empty where it is: exact, or within what the dtypes on the way allow."""
    if found.shape != expected.shape:
        return f"its shape is {found.shape} instead of {expected.shape}"
    dtype = DType.of(expected.dtype)
    if dtype.kind not in (Kind.FLOAT, Kind.COMPLEX):
        different = int(np.sum(np.asarray(found != expected)))
        return f"{different} of {found.size} elements differ" if different else ""
    wide: Any = np.complex128 if dtype.kind is Kind.COMPLEX else np.float64
    error = _error(np.asarray(found).astype(wide), np.asarray(expected).astype(wide))
    limit = _tolerance(graph, dtype)
    return f"relative error {error:.2g}, above {limit:.2g}" if error > limit else ""


def _tolerance(graph: Graph, dtype: DType) -> float:
    """A kernel rounds once where the meaning rounds after each op: the coarsest dtype of regions counts ten times."""
    own = TOLERANCES.get(dtype, 0.13 if dtype.is_float else 3e-4)
    inside = [node for owner in graph.nodes for node in body_nodes(owner)]
    kinds = {value.tensor.dtype for node in inside for value in node.outputs if isinstance(value.type, TensorType)}
    return max([own, *(10 * TOLERANCES[each] for each in kinds & TOLERANCES.keys())]) if len(inside) > 1 else own


def _error(found: Array, expected: Array) -> float:
    if not np.array_equal(np.isnan(found), np.isnan(expected)):
        return float("inf")
    finite = np.isfinite(found) & np.isfinite(expected)
    rest = ~finite & ~np.isnan(expected)
    if not np.array_equal(found[rest], expected[rest]):
        return float("inf")
    found, expected = found[finite], expected[finite]
    magnitude = np.maximum(np.abs(expected), 1e-2 * np.max(np.abs(expected), initial=0) + 1e-30)
    return float(np.max(np.abs(found - expected) / magnitude, initial=0))


# ---- every op in every dtype, small


GENERATED_OPS = sorted(({*LOWERINGS, *deformed.LOWERINGS} & OPS.keys()) - {"fused"})
SPECTRA = frozenset({"dft", "stft"})
"""Of infinities they make what their algorithm makes of them, which is nobody's rule."""


def subject_cases(repeats: int = 1, ops: Sequence[str] = GENERATED_OPS) -> Iterator[Case]:
    """A node of each op, with every dtype of every operand, `repeats` times with other shapes."""
    for subject in subjects(ops):
        if subject.dtype is DType.STRING:
            continue
        for repeat in range(repeats):
            case = _drawn(subject, repeat)
            if case is not None:
                yield case


def _drawn(subject: Any, repeat: int) -> Case | None:
    for seed in range(repeat * ATTEMPTS, (repeat + 1) * ATTEMPTS):
        try:
            graph = random_graph(seed, ops=[subject.op], max_nodes=1, symbols=False, subject=subject)
            sizes, inputs = random_inputs(graph, seed)
            if subject.op in SPECTRA:
                inputs = [np.clip(np.nan_to_num(value), -4, 4).astype(value.dtype) for value in inputs]
            results = evaluate_graph(graph, inputs, sizes)
            if subject.op in SPECTRA and not all(np.isfinite(result).all() for result in results):
                continue
        except CapgraphError:
            continue
        if any(node.op.name == subject.op for node in graph.nodes):
            return Case(f"{subject.op}:{subject.operand}:{subject.dtype}:{seed}", graph, sizes, inputs)
    return None


# ---- regions


def fused(case: Case) -> Case:
    """The case after fusion."""
    graph = case.graph.clone()
    Pipeline(((Fuse(epilogues=False, lookups=True, draws=True),),)).run(graph)
    return Case(f"fused {case.name}", graph, case.sizes, case.inputs)


def region_cases(count: int, ops: Sequence[str]) -> Iterator[Case]:
    """Random graphs with at least one region, `count` of them."""
    seed = found = 0
    while found < count:
        seed += 1
        try:
            graph = random_graph(seed, ops=ops, max_nodes=10, symbols=False)
            sizes, inputs = random_inputs(graph, seed)
            case = fused(Case(f"random {seed}", graph, sizes, inputs))
            expected_of(case)
        except CapgraphError:
            continue
        if any(node.op.name == "fused" for node in case.graph.nodes):
            found += 1
            yield case


# ---- shapes that reach every strategy


class Drawn:
    """Named inputs with random content, and graphs over them."""

    def __init__(self, seed: int = 3) -> None:
        self.rng = np.random.default_rng(seed)

    def array(self, dtype: str, *shape: int) -> Array:
        """Normally distributed numbers, small integers, or truth values."""
        kind = DType(dtype)
        if kind is DType.BOOL:
            return self.rng.integers(0, 2, shape).astype(np.bool_)
        if kind.is_integer:
            low = -50 if kind.kind is Kind.INT else 0
            return self.rng.integers(low, 50, shape).astype(kind.numpy)
        return (2 * self.rng.standard_normal(shape)).astype(kind.numpy)

    def indices(self, limit: int, *shape: int) -> Array:
        """Indices from -limit to limit."""
        return self.rng.integers(-limit, limit, shape)


Make = Callable[..., Value | Sequence[Value]]


def made(name: str, make: Make, *inputs: Array) -> Case:
    """The graph that `make(builder, *inputs)` gives the outputs of."""
    b = Builder()
    values = []
    for index, array in enumerate(inputs):
        values.append(b.input(f"x{index}", f"{DType.of(array.dtype)}[{', '.join(map(str, array.shape))}]"))
    outputs = make(b, *values)
    graph = b.finish([outputs] if isinstance(outputs, Value) else list(outputs))
    return Case(name, graph, {}, list(inputs))


def outputs_of(b: Builder, op: str, *operands: Value | None, **attrs: Any) -> list[Value]:
    """All results of a node."""
    return list(b.graph.append(native(op), operands, attrs).outputs)


ROW_SHAPES = ((5, 768), (3, 1000), (2, 4099), (300, 33), (1, 40000), (7, 3, 64))
AXIS_SHAPES = (((2, 50, 40), 1), ((3, 129, 7, 8), 1), ((4000, 33), 0), ((2, 3, 16, 16), 1), ((60000, 4), 0))


def row_cases(dtypes: Sequence[str] = ("f32", "f16", "f64")) -> Iterator[Case]:
    """Folds along rows and across them, short and long, of a few and of many rows."""
    d = Drawn()
    for dtype in dtypes:
        for shape in ROW_SHAPES:
            x, scale, bias = d.array(dtype, *shape), d.array(dtype, shape[-1]), d.array(dtype, shape[-1])
            yield made(f"softmax {shape} {dtype}", lambda b, x: b.op("softmax", x, axis=-1), x)
            yield made(f"layer_norm {shape} {dtype}", lambda b, *v: b.op("layer_norm", *v, axis=-1), x, scale, bias)
            yield made(f"argmax {shape} {dtype}", lambda b, x: b.op("argmax", x, axis=-1), x)
            yield made(f"sum {shape} {dtype}", lambda b, x: b.op("reduce_sum", x, axes=(-1,), keep_dims=False), x)
        for shape, axis in AXIS_SHAPES:
            yield from _across(d, dtype, shape, axis)
        image, channels = d.array(dtype, 2, 9, 8, 16), [d.array(dtype, 16) for _ in range(2)]
        yield made(f"pool {dtype}", lambda b, x: b.op("reduce_mean", _to_nchw(b, x), axes=(2, 3)), image)
        yield made(
            f"group {dtype}", lambda b, x, *v: b.op("group_norm", _to_nchw(b, x), *v, groups=4), image, *channels
        )
        long = d.array(dtype, 1, 4, 100, 300)
        few = [d.array(dtype, 4) for _ in range(2)]
        yield made(f"long group {dtype}", lambda b, *v: b.op("group_norm", *v, groups=2), long, *few)


def _across(d: Drawn, dtype: str, shape: tuple[int, ...], axis: int) -> Iterator[Case]:
    x = d.array(dtype, *shape)
    turned = tuple(reversed(range(len(shape))))
    yield made(f"softmax {shape} {axis} {dtype}", lambda b, x: b.op("softmax", x, axis=axis), x)
    yield made(f"mean {shape} {axis} {dtype}", lambda b, x: b.op("reduce_mean", x, axes=(axis,)), x)
    yield made(f"argmin {shape} {axis} {dtype}", lambda b, x: b.op("argmin", x, axis=axis, select_last=True), x)
    yield made(
        f"max {shape} {axis} {dtype}",
        lambda b, x: b.op("reduce_max", b.op("transpose", x, perm=turned), axes=(0, -1)),
        x,
    )


def _to_nchw(b: Builder, x: Value) -> Value:
    return b.op("transpose", x, perm=(0, 3, 1, 2))


def fused_cases(dtypes: Sequence[str] = ("f32", "f16")) -> Iterator[Case]:
    """What models have: a norm of a sum, scaled and masked softmax, a norm written out, gates."""
    d = Drawn()
    for dtype in dtypes:
        scalar = DType(dtype).numpy.type

        def normed_sum(b: Builder, x: Value, y: Value, s: Value, c: Value) -> list[Value]:
            total = b.op("add", x, y)
            return [total, b.op("layer_norm", total, s, c, axis=-1)]

        def scores(b: Builder, x: Value, mask: Value, scalar: Any = scalar) -> Value:
            scaled = b.op("mul", x, b.constant(np.asarray(scalar(0.125))))
            return b.op("softmax", b.op("add", scaled, mask), axis=-1)

        def written_out(b: Builder, x: Value, scalar: Any = scalar) -> Value:
            centered = b.op("sub", x, b.op("reduce_mean", x, axes=(-1,)))
            variance = b.op("reduce_mean", b.op("mul", centered, centered), axes=(-1,))
            return b.op("div", centered, b.op("sqrt", b.op("add", variance, b.constant(np.asarray(scalar(1e-3))))))

        def embedded(b: Builder, words: Value, places: Value, i: Value, j: Value, s: Value) -> Value:
            total = b.op("add", b.op("gather", words, i, axis=0), b.op("gather", places, j, axis=0))
            return b.op("rms_norm", total, s, axis=-1)

        def picked(b: Builder, x: Value, i: Value, y: Value) -> Value:
            return b.op("mul", b.op("gather", x, i, axis=1), y)

        def turned(b: Builder, x: Value, y: Value, z: Value) -> Value:
            return b.op("gelu", b.op("add", b.op("mul", b.op("transpose", x, perm=(0, 2, 3, 1)), y), z))

        rows = [d.array(dtype, 12, 768), d.array(dtype, 12, 768), d.array(dtype, 768), d.array(dtype, 768)]
        yield fused(made(f"normed sum {dtype}", normed_sum, *rows))
        tables = [d.array(dtype, 50, 64), d.array(dtype, 9, 64)]
        yield fused(
            made(f"embedded {dtype}", embedded, *tables, d.indices(50, 2, 7), d.indices(9, 2, 7), d.array(dtype, 64))
        )
        yield fused(
            made(f"picked {dtype}", picked, d.array(dtype, 4, 30, 16), d.indices(30, 5), d.array(dtype, 4, 5, 16))
        )
        yield fused(
            made(f"picked inside {dtype}", picked, d.array(dtype, 4, 30), d.indices(30, 6), d.array(dtype, 4, 6))
        )
        yield fused(made(f"scores {dtype}", scores, d.array(dtype, 2, 3, 17, 50), d.array(dtype, 2, 1, 1, 50)))
        yield fused(made(f"written out {dtype}", written_out, d.array(dtype, 6, 515)))
        yield fused(made(f"written out, long {dtype}", written_out, d.array(dtype, 2, 70000)))
        yield fused(
            made(f"turned {dtype}", turned, d.array(dtype, 2, 8, 9, 16), d.array(dtype, 9, 16, 8), d.array(dtype, 8))
        )
        yield fused(
            made(
                f"gate {dtype}",
                lambda b, x, y: b.op("mul", b.op("silu", x), y),
                d.array(dtype, 33, 1000),
                d.array(dtype, 33, 1000),
            )
        )


MOVED = ("f16", "f32", "i8", "c128", "bool", "i64")


def moving_cases() -> Iterator[Case]:
    """Copies in every element size: turned, joined, padded, gathered, and writes of caches."""
    d = Drawn()
    for dtype in MOVED:
        x = d.array(dtype, 2, 8, 16)
        yield made(
            f"turned {dtype}",
            lambda b, x: b.op("reshape", b.op("transpose", x, perm=(0, 2, 1)), shape=(140, 33)),
            d.array(dtype, 2, 33, 70),
        )
        yield made(
            f"concat {dtype}",
            lambda b, x, y, z: b.op("concat", x, b.op("transpose", y, perm=(1, 0)), z, axis=1),
            d.array(dtype, 20, 16),
            d.array(dtype, 24, 20),
            d.array(dtype, 20, 1),
        )
        yield made(f"roll {dtype}", lambda b, x: b.op("roll", x, axes=(1, 2), shifts=(3, -2)), x)
        yield made(f"pad {dtype}", lambda b, x: b.op("pad", x, None, pads=(0, 1, 2, 0, 1, 3)), x)
        yield made(f"tile {dtype}", lambda b, x: b.op("tile", x, repeats=(2, 1, 3)), x)
        yield made(
            f"gather {dtype}",
            lambda b, x, i: b.op("gather", x, i, axis=0),
            d.array(dtype, 100, 64),
            d.indices(100, 3, 7),
        )
        yield made(
            f"cache {dtype}",
            lambda b, x, u, p: b.op("tensor_scatter", x, u, p, axis=2),
            d.array(dtype, 2, 3, 20, 16),
            d.array(dtype, 2, 3, 2, 16),
            np.array([4, 11]),
        )
        yield made(
            f"round cache {dtype}",
            lambda b, x, u, p: b.op("tensor_scatter", x, u, p, axis=1, mode="circular"),
            d.array(dtype, 2, 20, 16),
            d.array(dtype, 2, 3, 16),
            np.array([4, 19]),
        )


LONG_ROWS = (300, 4000, 9000)
ORDER_DTYPES = ("f32", "f16", "bf16", "f64", "u8", "i16", "u64", "i64")


def _with_extremes(d: Drawn, dtype: str, *shape: int) -> Array:
    """Elements of which many are equal; of floats some are NaN, infinite, and zeros of either sign."""
    x = d.array(dtype, *shape)
    if DType(dtype).is_float:
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0]).astype(x.dtype)
        x = np.where(d.rng.random(shape) < 0.2, special[d.rng.integers(0, 5, shape)], x)
    return x


def order_cases() -> Iterator[Case]:
    """Sorts, top-k and scans of rows in a warp, in a block, in parts and over the chip."""
    d = Drawn()
    for place, dtype in enumerate(ORDER_DTYPES):
        shapes = [(11, size) for size in ((3, 33, 100) if place < 2 else (100,))] + [(2, LONG_ROWS[place % 3])]
        for rows, size in shapes:
            x = _with_extremes(d, dtype, rows, size)
            down = size % 2 == 0
            yield made(f"sort {size} {dtype}", lambda b, x, d=down: outputs_of(b, "sort", x, axis=-1, descending=d), x)
            k = min(size, 50)
            yield made(
                f"top {k} of {size} {dtype}",
                lambda b, x, k=k, d=down: outputs_of(b, "top_k", x, axis=1, k=k, largest=not d),
                x,
            )
    for first, second in (("f32", "f16"), ("u8", "i64")):
        x, y = _with_extremes(d, first, 9000, 2), _with_extremes(d, second, 9000, 2)
        yield made(f"sort along the first axis {first}", lambda b, x: outputs_of(b, "sort", x, axis=0), x)
        yield made(f"top 3000 {second}", lambda b, x: outputs_of(b, "top_k", x, axis=0, k=3000), y)
    x = d.array("f32", 2, 300)
    yield made("sort of what dies", lambda b, x: outputs_of(b, "sort", b.op("neg", x), axis=1, descending=True), x)
    yield from _scan_cases(d)


SCANNED = (
    ((3, 1000), 1),
    ((2, 9001), 1),
    ((1, 8192), 1),
    ((5000, 5), 1),
    ((300, 700), 1),
    ((2, 700, 3), 1),
    ((2, 90, 40), 1),
)


def _scan_cases(d: Drawn) -> Iterator[Case]:
    """Lines of lanes, of blocks, of segments; the same across memory."""
    for dtype in ("f16", "f32", "i64", "u32"):
        for number, (shape, axis) in enumerate(SCANNED):
            x = d.array(dtype, *shape) if dtype != "f32" else np.abs(d.array(dtype, *shape))
            is_exclusive, is_reverse = number % 2 == 0, number % 3 == 2
            yield made(
                f"cumsum {shape} {dtype}",
                lambda b, x, e=is_exclusive, r=is_reverse, a=axis: b.op("cumsum", x, axis=a, exclusive=e, reverse=r),
                x,
            )
    x = 1 + d.array("f64", 1, 9001) / 100
    yield made("cumprod 9001", lambda b, x: b.op("cumprod", x, axis=1), x)


def _bounded(op: str, size: int, **attrs: Any) -> Make:
    return lambda b, *values: outputs_of(b, f"bounded_{op}", *values, size=size, **attrs)


def found_cases() -> Iterator[Case]:
    """What is found side by side: few and many positions, none and all, strides, slices, boxes."""
    d = Drawn()
    for dtype, shape in (
        ("bool", (3, 700)),
        ("f32", (5000,)),
        ("f16", (4, 3, 5)),
        ("i64", (7,)),
        ("u8", ()),
        ("f32", (0, 3)),
    ):
        x = d.array(dtype, *shape)
        yield made(f"non_zero {shape} {dtype}", _bounded("non_zero", x.size), x)
    x = d.array("f32", 60, 70)
    turned = lambda b, x: outputs_of(b, "bounded_non_zero", b.op("transpose", x, perm=(1, 0)), size=4200)  # noqa: E731
    yield made("non_zero, transposed", turned, np.maximum(x, 0))
    for value in (0, 1):
        yield made(f"non_zero of {value}", _bounded("non_zero", 3000), np.full(3000, value, np.int32))
    x, condition = d.array("f32", 300, 9), d.array("bool", 300)
    yield made("compress rows", _bounded("compress", 300, axis=0), x, condition)
    yield made("compress columns", _bounded("compress", 5, axis=1), x, condition[:5])
    yield made("compress all", _bounded("compress", 2700, axis=None), x, d.array("bool", 2700))
    yield made("compress flat", _bounded("compress", 300, axis=0), d.array("f16", 300), condition)
    yield made(
        "compress with few conditions", _bounded("compress", 40, axis=-1), d.array("i64", 2, 300), condition[:40]
    )
    for count, center, limit in ((40, False, 5), (300, True, 7), (1, False, 3), (0, False, 3), (50, False, 0)):
        corners = d.rng.random((2, count, 2), np.float32)
        boxes = np.concatenate([corners, corners + d.rng.random((2, count, 2), np.float32) / 2], 2)
        scores = np.round(d.rng.random((2, 3, count), np.float32), 2)  # some are equal
        limits = (np.array([limit], np.int64), np.array([0.4], np.float32), np.array([0.3], np.float32))
        size = 6 * min(count, limit) if limit else 6 * count
        select = _bounded("non_max_suppression", size, center_point_box=center)
        yield made(f"suppression among {count}", select, boxes, scores, *limits)
    bare, center = (
        lambda b, *values, size=size, is_center=is_center: outputs_of(
            b, "bounded_non_max_suppression", *values, None, None, size=size, center_point_box=is_center
        )
        for size, is_center in ((6 * 30, False), (2, True))
    )
    tiny = np.array([[[0, 1e-45, 3, 1e-45], [0, 0, 2, 1]]], np.float32)  # half of the smallest number is 0
    yield made("suppression of flat boxes", center, tiny, np.ones((1, 1, 2), np.float32), np.array(2, np.int64))
    scores[0, 0, :3] = np.nan
    yield made("suppression without limits", bare, boxes[:, :30], scores[:, :, :30], np.array(30, np.int64))


def distinct_cases(
    lengths: Sequence[int] = (40, 5000), dtypes: Sequence[str] = ("f32", "f16", "i64", "u8", "bool", "bf16", "f64")
) -> Iterator[Case]:
    """Few and many distinct elements, NaN, zeros of both signs, in a block and over the chip, and parts of results."""
    d = Drawn()
    for dtype in dtypes:
        for length in lengths:
            x = d.array(dtype, length)
            if length > 40 and dtype != "bool":
                x = (x * 10).round().astype(x.dtype)
            if x.dtype.kind not in "iub":
                x[::7], x[3::7], x[5::31] = 0, -x[3::7] * 0, np.nan
            yield made(f"distinct {length} {dtype}", _distinct(length, *range(5)), x)
            yield made(f"distinct {length} {dtype} alone", _distinct(length, 0, 4), x)
    x = np.array([-0.0, 2, 0, -np.inf], np.float32)[np.arange(5000) % 4]
    signs = lambda b, x: [b.op("reciprocal", _distinct(5000, 0)(b, x)[0])]  # noqa: E731
    yield made("signs of zeros", signs, x)
    x = d.array("i64", 3, 4, 400) % 5
    yield made("distinct of parts", _distinct(4800, 3, 4), x)
    turned = lambda b, x: _distinct(4800, 0, 2, 4)(b, b.op("transpose", x, perm=(2, 1, 0)))  # noqa: E731
    yield made("distinct, transposed", turned, x)
    yield made("distinct f32, transposed", lambda b, x: turned(b, x)[::2], x.astype(np.float32))


def _distinct(size: int, *kept: int) -> Make:
    def make(b: Builder, x: Value) -> list[Value]:
        found = outputs_of(b, "bounded_unique", x, size=size, axis=None, sorted=True)
        return [found[index] for index in kept]

    return make


def _unpooled(b: Builder, x: Value) -> Value:
    window = {"kernel": (2, 2), "strides": (2, 2), "pads": (0, 0, 0, 0)}
    values, places = outputs_of(b, "max_pool_with_indices", x, **window, dilations=(1, 1))
    return b.op("max_unpool", values, places, **window)


def image_cases() -> Iterator[Case]:
    """Pools, resizing and norms of images, channels first and last; scatters and rotary embeddings."""
    d = Drawn()
    window = {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    for dtype in ("f16", "f32"):
        first, last = d.array(dtype, 2, 16, 14, 14), d.array(dtype, 2, 14, 14, 16)
        yield made(f"max pool {dtype}", lambda b, x: b.op("max_pool", x, **window), first)
        yield made(f"max pool, last {dtype}", lambda b, x: b.op("max_pool", _to_nchw(b, x), **window), last)
        yield made(
            f"average pool, last {dtype}",
            lambda b, x: b.op("average_pool", _to_nchw(b, x), count_include_pad=True, ceil_mode=True, **window),
            last,
        )
        yield made(
            f"linear {dtype}", lambda b, x: b.op("resize", x, None, axes=(2, 3), sizes=(21, 30), mode="linear"), first
        )
        yield made(
            f"cubic, last {dtype}",
            lambda b, x: b.op("resize", _to_nchw(b, x), None, axes=(2, 3), sizes=(28, 28), mode="cubic"),
            last,
        )
        yield made(f"unpool {dtype}", _unpooled, first)
        yield made(f"unpool, last {dtype}", lambda b, x: _unpooled(b, _to_nchw(b, x)), last)
        same = {"kernel": (3, 3), "strides": (2, 2), "pads": (0, 0, 0, 0)}
        yield made(
            f"unpool, equal indices {dtype}",
            lambda b, x, i, same=same: b.op("max_unpool", x, i, **same),
            first,
            d.rng.integers(0, 900, first.shape),
        )
        tables = [d.array(dtype, 50, 4) for _ in range(2)]
        yield made(
            f"rotary {dtype}",
            lambda b, *v: b.op("rotary_embedding", *v, heads=4, rotary_dim=8),
            d.array(dtype, 2, 5, 64),
            *tables,
            d.rng.integers(0, 50, (2, 5)),
        )
        for depth, rotated, is_interleaved in (
            (16, 0, True),
            (16, 0, False),
            (24, 8, True),
            (10, 6, False),
            (64, 32, False),
        ):
            yield made(
                f"rotary of {rotated or depth} of {depth}, interleaved {is_interleaved}, wide tables {dtype}",
                lambda b, *v, rotated=rotated, is_interleaved=is_interleaved: b.op(
                    "rotary_embedding", *v, None, heads=4, rotary_dim=rotated, interleaved=is_interleaved
                ),
                d.array(dtype, 2, 5, 4 * depth),
                *(d.array("f32", 2, 5, (rotated or depth) // 2) for _ in range(2)),
            )
        yield made(
            f"scatter {dtype}",
            lambda b, *v: b.op("scatter_elements", *v, axis=1, reduction="add"),
            d.array(dtype, 5, 60),
            d.indices(20, 5, 40),
            d.array(dtype, 5, 40),
        )
        yield made(
            f"scatter_nd {dtype}",
            lambda b, *v: b.op("scatter_nd", *v),
            d.array(dtype, 50, 6, 8),
            d.indices(10, 30, 1),
            d.array(dtype, 30, 6, 8),
        )
