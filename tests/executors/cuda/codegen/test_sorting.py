"""Which candidate sorts rows, by their length and by how much of them is wanted."""

import numpy as np
import pytest
from capgraph.ir.types import DType

from tests.executors.cuda.codegen.cases import Case, made, outputs_of
from tests.executors.cuda.codegen.running import generated, prepared


def name_of(case: Case) -> str:
    found = prepared(case)
    assert found is not None
    return generated(found.lowered[-1])[0].name


def sorted_by(shape: tuple[int, ...], dtype: str = "f32", axis: int = -1) -> str:
    x = np.zeros(shape, DType(dtype).numpy)
    return name_of(made("sort", lambda b, x: outputs_of(b, "sort", x, axis=axis), x))


def found_by(shape: tuple[int, ...], k: int) -> str:
    x = np.zeros(shape, np.float16)
    return name_of(made("top", lambda b, x: outputs_of(b, "top_k", x, axis=-1, k=k), x))


@pytest.mark.parametrize(
    ("shape", "candidate"),
    [
        ((7, 1), "warp"),
        ((65536, 32), "warp"),
        ((4096, 128), "warp"),
        ((512, 1024), "block"),
        ((512, 8192), "block"),
        ((1, 8192), "chip"),
        ((1, 128256), "chip"),
        ((8, 128256), "chip"),
        ((1, 1 << 20), "chip"),
    ],
)
def test_sorts_by_length(shape: tuple[int, ...], candidate: str):
    assert sorted_by(shape) == candidate


def test_an_axis_anywhere_is_sorted():
    assert sorted_by((9000, 3), axis=0) == "chip"
    assert sorted_by((5, 300, 3), axis=1) == "block"


@pytest.mark.parametrize(
    ("shape", "k", "candidate"),
    [
        ((4096, 64), 8, "warp"),
        ((3, 4000), 50, "select"),
        ((3, 4000), 3000, "block"),
        ((1, 128256), 50, "parts"),
        ((1, 128256), 2000, "chip"),
    ],
)
def test_few_elements_of_long_rows_are_found_in_parts(shape: tuple[int, ...], k: int, candidate: str):
    assert found_by(shape, k) == candidate


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0,)])
def test_no_elements_need_no_launch(shape: tuple[int, ...]):
    case = prepared(made("sort", lambda b, x: outputs_of(b, "sort", x, axis=-1), np.zeros(shape, np.float32)))
    assert case is not None
    assert not any(launch for lowered in case.lowered for each in generated(lowered) for launch in each.launches)


def test_none_wanted_need_no_launch():
    case = prepared(made("t", lambda b, x: outputs_of(b, "top_k", x, axis=1, k=0), np.zeros((3, 9000), np.float32)))
    assert case is not None
    assert not any(launch for lowered in case.lowered for each in generated(lowered) for launch in each.launches)
