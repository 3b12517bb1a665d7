"""Kernels that ask for constants before they wait for their predecessor still do in machine code.

The assembler is free to move loads: those that go by `ld.global.nc` it has moved behind the wait.
"""

import pytest
from capgraph.executors.cuda.driver.cache import Module
from capgraph.executors.cuda.driver.compiler import build, symbol_of
from capgraph.executors.cuda.kernel_ir.early_start import TRIGGER, WAIT
from capgraph.executors.cuda.kernel_ir.launch import Kernel
from capgraph.executors.cuda.kernels.gemm.matmul import lower_matmul
from capgraph.ir.types import DType

from tests.executors.cuda.coded_cases import CodedMatmul
from tests.executors.cuda.emulator import kernels_of
from tests.executors.cuda.machine_code import MachineCode, machine_code
from tests.executors.cuda.matmul_cases import linear
from tests.executors.cuda.test_gemv import normed
from tests.executors.cuda.test_row_gemm import Matmul

ARCH = 90


def assembled(kernels: list[Kernel]) -> list[MachineCode]:
    """The machine code of each kernel, compiled as programs compile it."""
    module = build([kernel.text for kernel in kernels], ARCH)
    assert isinstance(module, Module), module
    found = machine_code(module.code)
    return [found[symbol_of(kernel.text)] for kernel in kernels]


def problems(kernels: list[Kernel]) -> list[str]:
    """What the machine code of kernels does not keep of what they declare."""
    found: list[str] = []
    for kernel, code in zip(kernels, assembled(kernels), strict=True):
        threads = kernel.block[0] * kernel.block[1]
        if code.loads_before_wait < kernel.early_loads:
            found.append(f"{code.loads_before_wait} loads of {kernel.early_loads} before the wait\n{kernel.text}")
        if code.blocks_together(threads, kernel.shared_bytes) < kernel.together:
            found.append(f"{code.registers} registers: no room for {kernel.together} blocks\n{kernel.text}")
        if code.spills:
            found.append(f"{code.spills} spills\n{kernel.text}")
    return found


def declaring(rows: int, inner: int, dtype: DType, *epilogue: str) -> list[Kernel]:
    """The kernels of a matmul that declare early loads: of all by columns, and of the first on tensor cores."""
    made = [linear(rows, inner, 96, *epilogue, dtype=dtype), normed(min(rows, 4), inner, 96, dtype)]
    candidates = {each.name: each for setting in made for each in lower_matmul(setting.task)}
    split = [name for name in candidates if name.startswith("split")][:1]
    kernels = kernels_of(each for name, each in candidates.items() if "columns" in name or name in split)
    return [kernel for kernel in kernels if kernel.early_loads]


@pytest.mark.parametrize(
    ("rows", "inner", "dtype", "epilogue"),
    [
        (1, 8192, DType.BF16, ("residual",)),
        (4, 3000, DType.F16, ("bias", "silu", "gate")),
        (8, 1024, DType.F32, ("bias",)),
    ],
)
def test_constants_are_asked_for_before_the_wait(
    rows: int, inner: int, dtype: DType, epilogue: tuple[str, ...]
) -> None:
    kernels = declaring(rows, inner, dtype, *epilogue)
    assert len(kernels) >= 2
    told = problems(kernels)
    assert not told, told[0]


@pytest.mark.parametrize(
    "matmul",
    [
        Matmul(DType.BF16, 8, 2048, 3072, "normed", blocks=132),
        Matmul(DType.BF16, 8, 2048, 4096, "paired", blocks=132),
        Matmul(DType.BF16, 8, 8192, 2048, blocks=132),
        Matmul(DType.F16, 16, 2048, 3072, "normed", blocks=132),
        Matmul(DType.BF16, 16, 2048, 4096, "paired", blocks=132),
        Matmul(DType.BF16, 16, 8192, 2048, blocks=132),
    ],
    ids=str,
)
def test_weights_of_some_rows_are_asked_for_before_the_wait(matmul: Matmul) -> None:
    kernels = kernels_of(matmul.candidates(matmul.setting()))
    assert all(kernel.early_loads >= 8 for kernel in kernels[:1])
    told = problems(kernels)
    assert not told, told[0]


@pytest.mark.parametrize("codes", [DType.I8, DType.F8E4M3FN, DType.U4], ids=str)
@pytest.mark.parametrize(("kind", "inner"), [("normed", 2048), ("paired", 2048), ("plain", 8192)])
def test_codes_are_asked_for_before_the_wait(kind: str, inner: int, codes: DType) -> None:
    block = 128 if codes is DType.U4 else 0
    matmul = CodedMatmul(codes, inner, 96, block, kind=kind, has_zero=codes is DType.U4, scales=DType.BF16)
    kernels = kernels_of(lower_matmul(matmul.setting().task))
    assert all(kernel.early_loads >= 2 for kernel in kernels)
    told = problems(kernels)
    assert not told, told[0]


def kernel(early: str, late: str, **declared: int) -> Kernel:
    head = 'extern "C" __global__ void __launch_bounds__(256) NAME(float* y, const float* weight) {\n  float w;\n'
    return Kernel(f"{head}{TRIGGER}\n{early}\n{WAIT}\n{late}\n}}\n", (1, 1, 1), (256, 1, 1), **declared)


LOAD = 'asm volatile("ld.global.f32 %0, [%1];" : "=f"(w) : "l"(weight + threadIdx.x));'


def test_loads_behind_the_wait_are_told() -> None:
    early, late = (
        kernel(LOAD, "y[threadIdx.x] = w;", early_loads=1),
        kernel("", f"{LOAD} y[threadIdx.x] = w;", early_loads=1),
    )
    assert [code.loads_before_wait for code in assembled([early, late])] == [1, 0]
    assert not problems([early])
    (told,) = problems([late])
    assert told.startswith("0 loads of 1 before the wait")


def test_blocks_that_find_no_room_are_told() -> None:
    text = "__shared__ float s[10000]; s[threadIdx.x] = y[threadIdx.x]; __syncthreads(); y[threadIdx.x] = s[9999];"
    fitting, crowded = (kernel("", text, together=count) for count in (5, 6))
    (code,) = assembled([fitting])
    assert code.shared_bytes == 40000 + 1024
    assert not problems([fitting])
    (told,) = problems([crowded])
    assert "no room for 6 blocks" in told
