"""Generated kernels on a GPU, against the reference evaluator."""

import warnings
from collections.abc import Callable, Iterator

import pytest

with warnings.catch_warnings(action="ignore"):  # what other packages warn of while they load
    cupy = pytest.importorskip("cupy", reason="kernels run through the package cupy")

from tests.executors.cuda.codegen import cases
from tests.executors.cuda.codegen.scatter_cases import scatter_cases
from tests.executors.cuda.codegen.segment_cases import segment_cases
from tests.executors.cuda.codegen.spectrum_cases import LENGTHS, LONG, spectrum_cases

pytestmark = [pytest.mark.filterwarnings("default")]

FAMILIES: dict[str, Callable[[], Iterator[cases.Case]]] = {
    "ops": lambda: cases.subject_cases(2),
    "rows": cases.row_cases,
    "regions": lambda: cases.region_cases(150, cases.SMOOTH_OPS),
    "fused": cases.fused_cases,
    "moving": cases.moving_cases,
    "order": cases.order_cases,
    "found": cases.found_cases,
    "distinct": cases.distinct_cases,
    "images": cases.image_cases,
    "scatters": scatter_cases,
    "segments": segment_cases,
    "spectra": lambda: spectrum_cases((*LENGTHS, *LONG)),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_mean_what_their_ops_mean(family: str):
    from tests.gpu.generated_kernels import check

    assert not check(FAMILIES[family]())
