"""Bitonic networks over the registers of a warp."""

from pathlib import Path

import numpy as np
import pytest
from capgraph.executors.cuda.kernels.sort import short_sorts

from tests.executors.cuda.codegen.cases import Drawn, made, outputs_of
from tests.executors.cuda.codegen.emulated import emulated_problems
from tests.executors.cuda.codegen.running import generated, prepared
from tests.executors.cuda.emulator import HAS_COMPILER

LENGTHS = (1, 2, 5, 31, 32, 33, 64, 127, short_sorts.MOST)


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
def test_rows_of_any_length_are_sorted_and_stable(tmp_path: Path):
    d = Drawn()
    cases = [
        made(f"{length} {dtype}", lambda b, x: outputs_of(b, "sort", x, axis=1), d.array(dtype, 3, length) // 8)
        for length in LENGTHS
        for dtype in ("f32", "i16", "i64")
    ]
    assert not emulated_problems(cases, tmp_path)


@pytest.mark.parametrize(
    ("dtype", "entry"), [("f16", "unsigned entry"), ("f32", "u64 entry"), ("i64", "indexed<u64> entry")]
)
def test_a_key_with_its_index_is_one_word_where_both_fit(dtype: str, entry: str):
    x = np.zeros((5, 40), Drawn().array(dtype, 1).dtype)
    case = prepared(made("sort", lambda b, x: outputs_of(b, "sort", x, axis=1), x))
    assert case is not None
    ((launch,),) = (candidate.launches for candidate in generated(case.lowered[-1]))
    assert f"typedef {entry};" in launch.kernel.text


def test_several_rows_share_a_block():
    case = prepared(made("sort", lambda b, x: outputs_of(b, "sort", x, axis=1), np.zeros((1001, 10), np.float32)))
    assert case is not None
    ((launch,),) = (candidate.launches for candidate in generated(case.lowered[-1]))
    assert launch.kernel.grid == (126, 1, 1)
