"""Cases of `op_table`: random numbers, from a state that each of ours advances as a program does."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Value

from .op_cases import DEVICE, ELEMENTS, FLOATS, Row, row

DRAWN = ((1, 768), (4096, 4096), (32, 197, 768))
STATE = "u64:2<1000000"
"""What we draw from: a key and a count."""


def _drawing(op: str, theirs: Any, shape: tuple[int, ...], **attrs: Any) -> Iterator[Row]:
    """An op that fills a shape."""
    size = "x".join(map(str, shape))
    for dtype in FLOATS.split():

        def ours(b: Builder, state: Value, dtype: str = dtype) -> list[Value]:
            return [b.op(f"keyed_{op}", state, shape=shape, dtype=dtype, **attrs), _advanced(b, state)]

        def peer(_state: Any, dtype: str = dtype) -> Any:
            return theirs(shape, dtype=getattr(torch, {"f16": "float16", "f32": "float32"}[dtype]), device=DEVICE)

        yield row(f"keyed_{op}", peer, STATE, ours=ours, label=f"{op} {size}", dtypes=dtype, compared=0)


def _advanced(b: Builder, state: Value) -> Value:
    return b.op("add", state, b.constant(np.array([0, 1], np.uint64)))


def _bernoulli(b: Builder, x: Value, state: Value) -> list[Value]:
    return [b.op("keyed_bernoulli", x, state, dtype=x.tensor.dtype), _advanced(b, state)]


def _dropout(b: Builder, x: Value, state: Value) -> list[Value]:
    drawn = b.op("keyed_random_uniform", state, shape=x.shape, dtype="f32")
    kept = b.op("less", drawn, b.constant(0.7, "f32"))
    scaled = b.op("mul", x, b.constant(1 / 0.7, x.tensor.dtype))
    return [b.op("where", kept, scaled, b.constant(0, x.tensor.dtype)), kept, _advanced(b, state)]


def _integers(b: Builder, state: Value) -> list[Value]:
    drawn = b.op("keyed_random_uniform", state, shape=(4096, 4096), dtype="f64", high=1000.0)
    return [b.op("cast", b.op("floor", drawn), to="i64"), _advanced(b, state)]


def _permutation(b: Builder, state: Value) -> list[Value]:
    drawn = b.op("keyed_random_uniform", state, shape=(1 << 20,), dtype="f64")
    return [b.ops("sort", drawn, axis=0)[1], _advanced(b, state)]


def _classes(count: int) -> Any:
    def ours(b: Builder, x: Value, state: Value) -> list[Value]:
        drawn = b.op("keyed_multinomial", b.op("log", x), state, dtype="i64", sample_size=count)
        return [drawn, _advanced(b, state)]

    return ours


CASES = (
    *(each for shape in DRAWN for each in _drawing("random_uniform", torch.rand, shape)),
    *(each for shape in DRAWN for each in _drawing("random_normal", torch.randn, shape)),
    row(
        "keyed_bernoulli",
        lambda x, _state: torch.bernoulli(x),
        *(f"{size}+ {STATE}" for size in ELEMENTS),
        ours=_bernoulli,
        label="bernoulli",
        given=lambda x, state: (x - 0.5, state),
        compared=0,
    ),
    row(
        "keyed_random_uniform",
        lambda x, _state: torch.native_dropout(x, 0.3, True),
        *(f"{size} {STATE}" for size in ELEMENTS),
        ours=_dropout,
        label="dropout",
        compared=0,
    ),
    row(
        "keyed_random_uniform",
        lambda _state: torch.randint(0, 1000, (4096, 4096), device=DEVICE),
        STATE,
        ours=_integers,
        label="randint 4096x4096",
        dtypes="i64",
        compared=0,
    ),
    row(
        "keyed_random_uniform",
        lambda _state: torch.randperm(1 << 20, device=DEVICE),
        STATE,
        ours=_permutation,
        label="randperm 1048576",
        dtypes="i64",
        compared=0,
    ),
    *(
        row(
            "keyed_multinomial",
            lambda x, _state, count=count: torch.multinomial(x, count, replacement=True),
            *(f"{size}+ {STATE}" for size in ("1x128256", "64x50257", "512x1024")),
            ours=_classes(count),
            label=f"multinomial{count}",
            dtypes="f32",
            compared=0,
        )
        for count in (1, 64)
    ),
)
