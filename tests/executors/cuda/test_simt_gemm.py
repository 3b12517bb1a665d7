"""Matmuls by strides and of quantized tensors, their kernels emulated on the host."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import Chip, KernelLaunch, LibraryCall
from capgraph.executors.cuda.kernels.gemm.matmul import lower_matmul
from capgraph.executors.cuda.kernels.gemm.quantized_gemm import LOWERINGS, lower_matmul_integer
from capgraph.executors.cuda.kernels.gemm.simt_gemm import tile_size
from capgraph.ir.constant import Array
from capgraph.ir.graph import Graph
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType

from tests.executors.cuda.compiling import compile_problems
from tests.executors.cuda.solving import Layout, Setting, constant, setting


def matmul(op: str, arrays: dict[str, Array], layouts: dict[str, Layout] | None = None, **attrs: Any) -> Setting:
    graph = Graph()
    values = [graph.add_input(name, TensorType(DType.of(x.dtype), x.shape)) for name, x in arrays.items()]
    graph.set_outputs([graph.append(native(op), values, attrs).output])
    return setting(graph, arrays, layouts)


def drawn(shape: Sequence[int], dtype: Any, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    return (rng.integers(-100, 100, shape) if kind in "iu" else rng.standard_normal(shape)).astype(dtype)


def every_other(array: Array) -> Array:
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def by_strides(made: Setting, folder: Path) -> None:
    lowering = LOWERINGS.get(made.task.node.op.name, lower_matmul)
    (candidate,) = (each for each in lowering(made.task) if each.name == "strided")
    (found,), (expected,) = made.found(candidate, folder), made.expected
    if expected.dtype.kind in "iu":
        assert (found == expected).all()
    else:
        assert np.allclose(found.astype(np.float64), expected.astype(np.float64), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint64])
def test_any_strides_and_dtypes(dtype: Any, tmp_path: Path) -> None:
    arrays = {"a": drawn((2, 1, 17, 9), dtype), "b": drawn((3, 9, 21), dtype, 1)}
    by_strides(matmul("matmul", arrays, {"a": every_other}), tmp_path)


@pytest.mark.parametrize("c", [(5, 1), (7,), ()])
def test_addends_of_any_shape(c: tuple[int, ...], tmp_path: Path) -> None:
    arrays = {"a": drawn((6, 5), np.float32), "b": drawn((7, 6), np.float32, 1), "c": drawn(c, np.float32, 2)}
    by_strides(matmul("gemm", arrays, alpha=0.5, beta=2.0, trans_a=True, trans_b=True), tmp_path)


def test_an_addend_times_0_is_not_read(tmp_path: Path) -> None:
    arrays = {"a": drawn((6, 5), np.float32), "b": drawn((5, 7), np.float32, 1), "c": np.full(7, np.nan, np.float32)}
    by_strides(matmul("gemm", arrays, beta=0.0), tmp_path)


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 2.0), (2.0, 0.25), (-1.0, 0.5)])
@pytest.mark.parametrize("dtype", [np.int32, np.uint64])
def test_integers_by_numbers_that_are_none(dtype: Any, alpha: float, beta: float, tmp_path: Path) -> None:
    arrays = {"a": drawn((6, 5), dtype), "b": drawn((5, 7), dtype, 1), "c": drawn((6, 7), dtype, 2)}
    arrays = {name: abs(each.astype(np.int64)).astype(dtype) for name, each in arrays.items()}
    alpha = abs(alpha) if dtype is np.uint64 else alpha
    by_strides(matmul("gemm", arrays, alpha=alpha, beta=beta), tmp_path)


@pytest.mark.parametrize("zeros", [((), ()), ((1,), (5,)), ((4,), (1,))])
def test_bytes_with_zero_points(zeros: tuple[tuple[int, ...], tuple[int, ...]], tmp_path: Path) -> None:
    arrays = {"a": drawn((4, 6), np.uint8), "b": drawn((6, 5), np.int8, 1)}
    arrays |= {"za": drawn(zeros[0], np.uint8, 2), "zb": drawn(zeros[1], np.int8, 3)}
    by_strides(matmul("matmul_integer", arrays), tmp_path)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_results_that_are_quantized_again(dtype: Any, tmp_path: Path) -> None:
    arrays = {"a": drawn((2, 4, 6), np.int8), "sa": np.array([0.01, 0.02, 0.03, 0.5], np.float32)}
    arrays |= {"za": np.array([1, 2, 3, 4], np.int8), "b": drawn((6, 5), np.int8, 1)}
    arrays |= {"sb": np.linspace(0.1, 0.5, 5, dtype=np.float32), "zb": drawn((5,), np.int8, 3)}
    arrays |= {"sy": np.array(0.7, np.float32), "zy": np.array(3, dtype)}
    by_strides(matmul("qlinear_matmul", arrays), tmp_path)


def test_small_floats_beside_integers_keep_their_fractions(tmp_path: Path) -> None:
    small = drawn((6, 5), np.float32, 1).astype(ml_dtypes.float8_e5m2)
    scale = np.array(0.5, np.float32)
    arrays = {"a": drawn((4, 6), np.int8), "sa": scale, "za": np.array(1, np.int8), "b": small, "sb": scale}
    arrays |= {"zb": np.array(0.75, small.dtype), "sy": np.array(0.25, np.float32), "zy": np.array(3, np.uint8)}
    by_strides(matmul("qlinear_matmul", arrays), tmp_path)


def test_signed_bytes_without_zero_points_are_the_librarys_where_sizes_fit() -> None:
    weight = drawn((32, 16), np.int8, 1)
    graph = Graph()
    x = graph.add_input("x", TensorType(DType.I8, (5, 32)))
    graph.set_outputs([graph.append(native("matmul_integer"), [x, constant(graph, weight), None, None]).output])
    made = setting(graph, {"x": drawn((5, 32), np.int8)})
    first, *others = lower_matmul_integer(made.task)
    assert isinstance(first.launches[0], LibraryCall)
    assert [each.name for each in others] == ["strided"]
    assert (made.found(first)[0] == made.expected[0]).all()


def test_tiles_are_small_where_there_are_few() -> None:
    chip = Chip()
    assert [tile_size(size, size, 1, chip) for size in (1024, 512, 64)] == [64, 32, 16]


@pytest.mark.parametrize("leading", [(), (3,), (2, 2)])
def test_batches_of_signed_bytes_are_the_librarys(leading: tuple[int, ...], tmp_path: Path) -> None:
    arrays = {"a": drawn((*leading, 5, 32), np.int8), "b": drawn((*leading, 32, 16), np.int8, 1)}
    made = matmul_without_zeros(arrays)
    first = next(iter(lower_matmul_integer(made.task)))
    assert first.name == "cublaslt"
    assert (made.found(first, tmp_path)[0] == made.expected[0]).all()


def matmul_without_zeros(arrays: dict[str, Array]) -> Setting:
    graph = Graph()
    values = [graph.add_input(name, TensorType(DType.I8, x.shape)) for name, x in arrays.items()]
    graph.set_outputs([graph.append(native("matmul_integer"), [*values, None, None]).output])
    return setting(graph, arrays)


@pytest.mark.parametrize("to", [np.int8, np.uint8])
@pytest.mark.parametrize("shapes", [((), (), ()), ((5,), (16,), (5,)), ((5, 1), (1, 16), ())])
def test_signed_bytes_are_summed_by_the_library_and_quantized_behind_it(
    to: Any, shapes: tuple[tuple[int, ...], ...], tmp_path: Path
) -> None:
    scales = [np.linspace(0.01, 0.03, max(1, int(np.prod(s))), dtype=np.float32).reshape(s) for s in shapes]
    arrays = {"a": drawn((5, 32), np.int8), "sa": scales[0], "b": drawn((32, 16), np.int8, 1), "sb": scales[1]}
    arrays |= {"sy": np.asarray(scales[2] * np.float32(7)), "zy": np.asarray(drawn(shapes[2], to, 4) // 2)}
    graph = Graph()
    known = {name: graph.add_input(name, TensorType(DType.of(x.dtype), x.shape)) for name, x in arrays.items()}
    zeros = [constant(graph, np.zeros(shape, np.int8)) for shape in shapes[:2]]
    operands = [known["a"], known["sa"], zeros[0], known["b"], known["sb"], zeros[1], known["sy"], known["zy"]]
    graph.set_outputs([graph.append(native("qlinear_matmul"), operands).output])
    made = setting(graph, arrays)
    first, *others = LOWERINGS["qlinear_matmul"](made.task)
    assert first.name.startswith("cublaslt+")
    assert [each.name for each in others] == ["strided"]
    assert (made.found(first, tmp_path)[0] == made.expected[0]).all()


@pytest.mark.parametrize("zero", [None, (), (1,), (5,)])
@pytest.mark.parametrize("leading", [(), (2,)])
def test_unsigned_bytes_are_made_signed_for_the_library(
    zero: tuple[int, ...] | None, leading: tuple[int, ...], tmp_path: Path
) -> None:
    graph = Graph()
    arrays = {"a": np.random.default_rng(0).integers(0, 256, (*leading, 5, 32)).astype(np.uint8)}
    if zero is not None:
        arrays["z"] = np.asarray(np.random.default_rng(1).integers(0, 256, zero)).astype(np.uint8)
    values = {name: graph.add_input(name, TensorType(DType.U8, x.shape)) for name, x in arrays.items()}
    weight = constant(graph, drawn((32, 16), np.int8, 1))
    graph.set_outputs([graph.append(native("matmul_integer"), [values["a"], weight, values.get("z"), None]).output])
    made = setting(graph, arrays)
    candidates = {each.name: each for each in lower_matmul_integer(made.task)}
    if leading and zero == (5,):
        assert list(candidates) == ["strided"]
        return
    assert list(candidates) == ["cublaslt-signed", "strided"]
    assert (made.found(candidates["cublaslt-signed"], tmp_path)[0] == made.expected[0]).all()
    kernels = [each.kernel for each in candidates["cublaslt-signed"].launches if isinstance(each, KernelLaunch)]
    assert compile_problems(kernels) == []
