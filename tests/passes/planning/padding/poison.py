"""Runs a graph at a padded size with garbage behind the real elements, and says what garbage reached."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from capgraph.ir.analysis import input_symbols
from capgraph.ir.constant import Array
from capgraph.ir.dims import evaluate
from capgraph.ir.errors import CapgraphError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph
from capgraph.ir.types import TensorType
from capgraph.ir.verify import verify
from capgraph.passes.planning.padding import mask_padding, padding_safety, real_size_input
from capgraph.passes.planning.padding.rules.facts import Number

from tests.strategies.sizes import admits

Sizes = Mapping[str, int]


def leak(
    original: Graph,
    safe: Graph,
    symbol: str,
    sizes: Sizes,
    padded: int,
    inputs: Sequence[Array],
    seed: int,
    least: int = 0,
) -> str:
    """Which output of `safe` (the original, masked or not) differs from the original's; empty when none does.

    The original runs on `inputs` of the real `sizes`, `safe` on the same with garbage up to `padded`. States must keep
    what stands behind their real elements.
    """
    expected = evaluate_graph(original, inputs, sizes)
    larger = {**sizes, symbol: padded}
    given = padded_inputs(safe, symbol, sizes, larger, inputs, seed, least)
    results = evaluate_graph(safe, given, larger)
    found = [np.asarray(array) for array in results]
    for name, want, got in zip(original.output_names, expected, found, strict=True):
        if not is_close(want, got[real_part(np.shape(want))]):
            return f"output {name}: {want.reshape(-1)[:8]} became {got[real_part(np.shape(want))].reshape(-1)[:8]}"
    for state in original.states:
        old, new = given[state.input], found[state.output]
        outside = np.ones(new.shape, dtype=np.bool_)
        outside[real_part(expected[state.output].shape)] = False
        if not is_close(old[outside], new[outside]):
            return f"state {original.inputs[state.input].name} was written behind its real elements"
    return ""


def leaks(graph: Graph, sizes: dict[str, int], arrays: list[Array], seed: int) -> str:
    """Sends garbage through `graph` for every symbol of which the analysis says that this is safe; what got through."""
    exact = [rounded(array) for array in arrays]
    fails = _fails(graph, exact, sizes)
    for symbol in input_symbols(graph):
        padded = sizes[symbol] + 1 + seed % 4
        if not admits(graph, {**sizes, symbol: padded}):
            continue
        for least in range(min(1, *sizes.values()) + 1 if sizes else 0):
            is_safe = padding_safety(graph, symbol, padded, least).is_safe
            safe = graph if is_safe else mask_padding(graph, symbol, padded, least)
            if safe is None:
                continue
            verify(safe)
            if fails:
                given = padded_inputs(safe, symbol, sizes, {**sizes, symbol: padded}, exact, seed, least)
                found = "" if _fails(safe, given, {**sizes, symbol: padded}) else f"padding hides {fails}"
            else:
                found = leak(graph, safe, symbol, sizes, padded, exact, seed, least)
            if found:
                return f"{symbol} from {sizes[symbol]} to {padded}, proven from {least} on: {found}"
    return ""


def _fails(graph: Graph, arrays: list[Array], sizes: dict[str, int]) -> str:
    """Why a call fails; empty when it does not."""
    try:
        evaluate_graph(graph, arrays, sizes)
    except CapgraphError as error:
        return str(error)
    return ""


def rounded(array: Array) -> Array:
    """Small whole numbers, whose sums do not depend on their order."""
    if array.dtype.kind in "biucO" or not array.size:
        return array
    with np.errstate(all="ignore"):
        return np.asarray(np.clip(np.nan_to_num(np.rint(array.astype(np.float64))), -8, 8).astype(array.dtype))


def padded_inputs(
    graph: Graph, symbol: str, sizes: Sizes, larger: Sizes, inputs: Sequence[Array], seed: int, least: int = 0
) -> list[Array]:
    """The inputs of a call at the `larger` sizes: real ones first, fills where the report asks, else garbage."""
    generator = np.random.default_rng(seed)
    fills = _fills(graph, symbol, larger[symbol], least)
    given: list[Array] = []
    for value, real in zip(graph.inputs, inputs, strict=False):
        assert isinstance(value.type, TensorType)
        shape = tuple(evaluate(dim, larger) for dim in value.shape)
        made = np.full(shape, fills[value.name]) if value.name in fills else garbage(generator, real.dtype, shape)
        made = made.astype(real.dtype)
        made[real_part(real.shape)] = real
        given.append(made)
    if real_size_input(graph, symbol) is not None and len(given) < len(graph.inputs):
        given.append(np.asarray(sizes[symbol], dtype=np.int64))
    return given


@lru_cache(maxsize=64)
def _fills(graph: Graph, symbol: str, padded: int, least: int) -> Mapping[str, Number]:
    """What inputs must hold behind their real elements, told once for the calls of one size."""
    return padding_safety(graph, symbol, padded, least).fills


def real_part(shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(0, size) for size in shape)


def garbage(generator: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """NaN, infinities and random numbers; for integers any bits."""
    if dtype.kind == "O":
        return np.full(shape, "garbage", dtype=object)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    bits = generator.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8)
    made = bits.view(dtype).reshape(shape)
    if dtype.kind in "iu":
        return made
    poison = np.asarray([np.nan, np.inf, -np.inf, 1.0, 3e4], dtype=np.float64)
    with np.errstate(all="ignore"):
        return np.asarray(generator.choice(poison, shape).astype(dtype))


def is_close(a: Array, b: Array) -> bool:
    """Whether two arrays agree up to the rounding of sums in another order."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return False
    if a.dtype.kind in "biuO":
        return bool(np.array_equal(a, b))
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    tolerance = 1e-4 if a.dtype.itemsize >= 4 else 5e-2
    with np.errstate(all="ignore"):
        return bool(np.allclose(a.astype(wide), b.astype(wide), rtol=tolerance, atol=tolerance, equal_nan=True))
