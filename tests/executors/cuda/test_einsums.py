"""Einsums: as matmuls, or by one loop an element."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capgraph.executors.cuda.kernels.gemm.einsums import lower_einsum
from capgraph.ir.constant import Array
from capgraph.ir.graph import Graph
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType

from tests.executors.cuda.solving import Setting, setting


def einsum(equation: str, *shapes: tuple[int, ...], dtype: Any = np.float32) -> Setting:
    rng = np.random.default_rng(3)
    arrays: dict[str, Array] = {f"x{i}": (9 * rng.standard_normal(s)).astype(dtype) for i, s in enumerate(shapes)}
    graph = Graph()
    values = [graph.add_input(name, TensorType(DType.of(x.dtype), x.shape)) for name, x in arrays.items()]
    graph.set_outputs([graph.append(native("einsum"), values, {"equation": equation}).output])
    return setting(graph, arrays)


@pytest.mark.parametrize(
    ("equation", "shapes", "names"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)], ["cublaslt", "strided", "loop"]),
        ("ij,jk->ki", [(3, 4), (4, 5)], ["strided", "loop"]),
        ("bhtd,bhsd->bhts", [(2, 3, 4, 8), (2, 3, 5, 8)], ["cublaslt", "strided", "loop"]),
        ("bthd,hde->bte", [(2, 3, 4, 5), (4, 5, 6)], ["loop"]),
        ("...ij,...jk", [(2, 3, 4), (1, 4, 5)], ["cublaslt", "strided", "loop"]),
        ("ij,kj->ik", [(1, 4), (5, 4)], ["cublaslt", "strided", "loop"]),
        ("bij,bjk->bki", [(2, 3, 4), (2, 4, 5)], ["strided", "loop"]),
        ("i,j->ij", [(3,), (4,)], ["cublaslt", "strided", "loop"]),
        ("ii->i", [(4, 4)], ["loop"]),
        ("iij,j->i", [(4, 4, 3), (3,)], ["cublaslt", "strided", "loop"]),
        ("ij->", [(3, 4)], ["loop"]),
        ("ij,j,k->ik", [(3, 4), (4,), (5,)], ["loop"]),
        ("ba", [(3, 4)], ["loop"]),
    ],
)
def test_every_candidate_gives_the_sum(
    equation: str, shapes: list[tuple[int, ...]], names: list[str], tmp_path: Path
) -> None:
    made = einsum(equation, *shapes)
    candidates = list(lower_einsum(made.task))
    assert {each.name for each in candidates} <= {"cublaslt", "strided", "loop"}
    assert [each.name for each in candidates if each.name != "cublaslt"] == [
        name for name in names if name != "cublaslt"
    ]
    for candidate in candidates:
        (found,) = made.found(candidate, tmp_path)
        assert np.allclose(found, made.expected[0], rtol=1e-4, atol=1e-3), candidate.name


def test_integers_wrap(tmp_path: Path) -> None:
    made = einsum("ij,jk->ik", (3, 4), (4, 5), dtype=np.int16)
    (candidate,) = lower_einsum(made.task)
    assert (made.found(candidate, tmp_path)[0] == made.expected[0]).all()
