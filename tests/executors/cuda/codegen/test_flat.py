"""Kernels without reductions: vectors, joined axes, several programs in one kernel."""

import pytest
from capgraph.executors.cuda.kernel_ir import flat
from capgraph.executors.cuda.kernel_ir.launch import BufferPlace, Chip
from capgraph.executors.cuda.kernel_ir.layouts import dense
from capgraph.executors.cuda.kernel_ir.program import KernelProgram
from capgraph.ir.types import DType


def copying(dtype: DType, shape: tuple[int, ...], offset: int = 0, turned: bool = False) -> KernelProgram:
    source = dense(dtype, shape, BufferPlace(0, offset))
    target = dense(dtype, shape, BufferPlace(1))
    if turned:
        source, target = (layout.permuted(range(len(shape))[::-1]) for layout in (source, target))
    program = KernelProgram(target.shape)
    program.store(program.load(source), target)
    return program


@pytest.mark.parametrize(
    ("dtype", "shape", "offset", "width"),
    [
        (DType.F32, (64,), 0, 4),
        (DType.F16, (64,), 0, 8),
        (DType.U8, (64,), 0, 16),
        (DType.F64, (64,), 0, 2),
        (DType.F16, (64,), 8, 4),
        (DType.F16, (64,), 2, 1),
        (DType.F16, (60,), 0, 4),
        (DType.F16, (3, 7), 0, 1),
    ],
)
def test_vectors_are_as_wide_as_sizes_and_addresses_allow(dtype, shape, offset, width):
    assert flat.walk_of(copying(dtype, shape, offset)).width == width


def test_tensors_that_are_turned_alike_are_walked_flat():
    walk = flat.walk_of(copying(DType.F16, (4, 6, 16), turned=True))
    assert walk.space.shape == (384,)
    assert walk.width == 8


def test_mixed_types_are_moved_side_by_side():
    program = KernelProgram((64,))
    small = program.load(dense(DType.F16, (64,), BufferPlace(0)))
    program.store(small, dense(DType.F32, (64,), BufferPlace(1)))
    assert flat.walk_of(program).width == 4, "16 bytes of the larger elements"
    (launch,) = flat.launch([program], Chip())
    assert "pack<f16, 4>" in launch.kernel.text
    assert "pack<float, 4>" in launch.kernel.text
    assert launch.nbytes == 64 * 6
    assert launch.arguments == (BufferPlace(1), BufferPlace(0))


@pytest.mark.parametrize(("steps", "size", "width"), [(80, 512, 1), (80, 2**18, 8), (8, 512, 8)])
def test_long_chains_of_few_elements_take_a_thread_each(steps, size, width):
    program = KernelProgram((size,))
    value = program.load(dense(DType.F16, (size,), BufferPlace(0)))
    for _ in range(steps):
        value = program.define(DType.F16, "max($0, $1)", value, value)
    program.store(value, dense(DType.F16, (size,), BufferPlace(1)))
    (launch,) = flat.launch([program], Chip())
    assert launch.kernel.grid == (-(-size // width // launch.kernel.block[0]), 1, 1)


def test_a_bias_is_loaded_beside_rows():
    program = KernelProgram((8, 32))
    x = program.load(dense(DType.F16, (8, 32), BufferPlace(0)))
    bias = program.load(dense(DType.F16, (32,), BufferPlace(1)))
    program.store(program.define(DType.F16, f"{x.text} + {bias.text}"), dense(DType.F16, (8, 32), BufferPlace(2)))
    walk = flat.walk_of(program)
    assert walk.space.shape == (8, 32)
    assert walk.tensors["p_ld1"].offset == "k1"
    assert walk.width == 8


def test_one_kernel_runs_several_programs_by_blocks_of_their_own():
    programs = [copying(DType.F32, (4096,)), copying(DType.F32, (4,))]
    (launch,) = flat.launch(programs, Chip())
    assert launch.kernel.grid == (9, 1, 1)
    assert len(launch.arguments) == 4
    assert "s1_r0" in launch.kernel.text


def test_nothing_to_write_is_no_launch():
    assert flat.launch([copying(DType.F32, (0, 3))], Chip()) == ()


def test_far_elements_have_wide_offsets():
    (launch,) = flat.launch([copying(DType.U8, (2**31 + 16,))], Chip())
    assert "i64 j0" in launch.kernel.text
    (launch,) = flat.launch([copying(DType.U8, (2**20,))], Chip())
    assert "int j0" in launch.kernel.text
