"""What one architecture refuses is found, whether the compiler or the assembler refuses it."""

import pytest
from capgraph.executors.cuda.launch import Kernel

from tests.executors.cuda.compiling import ARCHITECTURES, compile_problems

KERNEL = 'extern "C" __global__ void NAME(float* y) {{ {} }}\n'


def kernel(body: str) -> Kernel:
    return Kernel(KERNEL.format(body), (1, 1, 1), (32, 1, 1))


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("y[0] = missing;", "missing"),
        ("__shared__ float x[100000]; x[threadIdx.x] = y[0]; __syncthreads(); y[1] = x[5];", "shared"),
        ('asm volatile("no.such.instruction;");', "no.such"),
    ],
)
def test_what_is_wrong_is_told_of_the_source_that_has_it(arch: int, body: str, words: str) -> None:
    fine, wrong = kernel("y[0] = 1;"), kernel(body)
    assert compile_problems([fine], [arch]) == []
    (problem,) = compile_problems([fine, wrong], [arch])
    assert words in problem
    assert wrong.text in problem


def test_sizes_that_the_assembler_refuses_are_found_beside_the_same_source_of_others() -> None:
    """Of each kind of sources the last one by its text goes through the assembler: it would be the one with 200."""
    text = "__shared__ float x[{}]; x[threadIdx.x] = y[0]; __syncthreads(); y[1] = x[5];"
    kernels = [kernel(text.format(size)) for size in (200, 100_000)]
    (problem,) = compile_problems(kernels, [90])
    assert kernels[1].text in problem


@pytest.mark.parametrize(
    ("instruction", "archs"), [("wgmma.fence.sync.aligned;", [90]), ("griddepcontrol.wait;", [90, 100])]
)
def test_instructions_that_an_architecture_lacks_are_found(instruction: str, archs: list[int]) -> None:
    newer = kernel(f'asm volatile("{instruction}" ::: "memory");')
    assert [arch for arch in ARCHITECTURES if not compile_problems([newer], [arch])] == archs


def test_the_bytes_of_others_stay_what_they_are() -> None:
    compile_problems([kernel("y[0] = 1;")])
    assert b" x"[:1][0] == 32, "an empty log is one byte, and all bytes of length 1 are one object in Python"
