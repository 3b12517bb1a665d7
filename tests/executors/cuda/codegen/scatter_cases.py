"""Scatters of every reduction: few and many updates, rows and elements, crowded slices, broadcast indices."""

from collections.abc import Iterator

import numpy as np
from capgraph.ir.builder import Builder
from capgraph.ir.constant import Array
from capgraph.ir.graph import Value

from tests.executors.cuda.codegen.cases import Case, Drawn, made

REDUCTIONS = ("none", "add", "mul", "max", "min")
DTYPES = ("f32", "f16", "f64", "i32", "i64", "u8", "i8", "bool")
OF_LINES = ("f32", "f16", "i64", "bool")
"""How far lines lie apart changes no arithmetic: a dtype of each size."""


def scatter_cases() -> Iterator[Case]:
    """Each reduction and dtype, by elements and by rows; what has no updates; infinities and NaN."""
    d = Drawn()
    for reduction in REDUCTIONS:
        for dtype in DTYPES:
            if dtype in OF_LINES:
                yield _lines(d, reduction, dtype)
            yield _elements(d, f"elements {reduction} {dtype}", reduction, dtype)
            yield _rows(d, f"rows {reduction} {dtype}", reduction, dtype, 37, 300)
        yield _rows(d, f"crowded {reduction}", reduction, "f32", 3, 400)
        yield _rows(d, f"spread {reduction}", reduction, "f32", 300, 700)
        yield _rows(d, f"sparse {reduction}", reduction, "f32", 2000, 300)
        yield _rows(d, f"few {reduction}", reduction, "f16", 40, 20)
        yield _rows(d, f"no updates {reduction}", reduction, "f32", 4, 0)
        yield _pairs(d, reduction)
        yield _repeated(d, reduction)
    yield _specials(1)
    yield _specials(40)
    yield _doubles(d)


def _small(d: Drawn, dtype: str, reduction: str, *shape: int) -> Array:
    """Products of many stay within the dtype."""
    drawn = d.array(dtype, *shape)
    return np.sign(drawn).astype(drawn.dtype) if reduction == "mul" and drawn.dtype.kind == "f" else drawn


def _elements(d: Drawn, name: str, reduction: str, dtype: str) -> Case:
    x, updates = _small(d, dtype, reduction, 5, 60), _small(d, dtype, reduction, 4, 90)
    return made(
        name, lambda b, *v: b.op("scatter_elements", *v, axis=1, reduction=reduction), x, d.indices(60, 4, 90), updates
    )


def _lines(d: Drawn, reduction: str, dtype: str) -> Case:
    """Many lines, along an axis that is not the last; of f16 eight side by side."""
    inner = 16 if dtype == "f16" else 9
    x, updates = _small(d, dtype, reduction, 3, 20, inner), _small(d, dtype, reduction, 3, 40, inner)
    places = d.indices(20, 3, 40, inner)
    return made(
        f"lines {reduction} {dtype}",
        lambda b, *v: b.op("scatter_elements", *v, axis=1, reduction=reduction),
        x,
        places,
        updates,
    )


def _rows(d: Drawn, name: str, reduction: str, dtype: str, slices: int, slots: int) -> Case:
    x, updates = _small(d, dtype, reduction, slices, 8), _small(d, dtype, reduction, slots, 8)
    return made(
        name, lambda b, *v: b.op("scatter_nd", *v, reduction=reduction), x, d.indices(slices, slots, 1), updates
    )


def _pairs(d: Drawn, reduction: str) -> Case:
    x, updates = _small(d, "f32", reduction, 6, 5, 3), _small(d, "f32", reduction, 20, 15, 3)
    places = d.indices(5, 20, 15, 2)
    return made(f"pairs {reduction}", lambda b, *v: b.op("scatter_nd", *v, reduction=reduction), x, places, updates)


def _repeated(d: Drawn, reduction: str) -> Case:
    """One index for a whole row, as index_add has it."""

    def graph(b: Builder, x: Value, index: Value, updates: Value) -> Value:
        places = b.op("expand", b.op("reshape", index, shape=(300, 1)), shape=(300, 6))
        return b.op("scatter_elements", x, places, updates, axis=0, reduction=reduction)

    x, updates = _small(d, "f32", reduction, 70, 6), _small(d, "f32", reduction, 300, 6)
    return made(f"repeated {reduction}", graph, x, d.indices(70, 300), updates)


def _specials(lines: int) -> Case:
    """What the largest number, infinities and NaN do to a sum, among 300 that are ordinary; in each line the same."""
    rng = np.random.default_rng(5)
    updates = rng.standard_normal(300).astype(np.float32)
    places = np.arange(300) % 8
    for place, value in ((0, np.inf), (1, -np.inf), (2, np.nan), (3, 1e38), (4, 1e-42), (8, -np.inf)):
        updates[place] = value
    updates[5::8] *= np.float32(1e-38)
    x = np.array([0, 0, 0, 0, 1e-40, 0, np.nan, -0.0], np.float32)
    inputs = (np.tile(each, (lines, 1)) for each in (x, places, updates))
    return made(f"specials {lines}", lambda b, *v: b.op("scatter_elements", *v, axis=1, reduction="add"), *inputs)


def _doubles(d: Drawn) -> Case:
    """Sums of doubles of every size."""
    updates = d.array("f64", 400) * 10.0 ** d.rng.integers(-300, 300, 400)
    return made(
        "doubles", lambda b, *v: b.op("scatter_elements", *v, reduction="add"), np.zeros(7), np.arange(400) % 7, updates
    )
