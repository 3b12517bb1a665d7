"""Generated kernels give what their ops mean: run on the host by the emulator, each step by each of its candidates."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.executors.cuda.codegen import cases
from tests.executors.cuda.codegen.emulated import emulated_problems
from tests.executors.cuda.emulator import HAS_COMPILER

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")

FAMILIES: dict[str, Callable[[], Iterator[cases.Case]]] = {
    "ops": cases.subject_cases,
    "rows": lambda: cases.row_cases(("f32", "f16")),
    "regions": lambda: cases.region_cases(60, cases.SMOOTH_OPS),
    "fused": cases.fused_cases,
    "moving": cases.moving_cases,
    "order": cases.order_cases,
    "found": cases.found_cases,
    "images": cases.image_cases,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_mean_what_their_ops_mean(family: str, tmp_path: Path):
    assert not emulated_problems(FAMILIES[family](), tmp_path)
