"""What one architecture refuses is found, whether the compiler or the assembler refuses it."""

import re

import pytest
from capgraph.executors.cuda.kernel_ir.includes.prelude import PRELUDE as PRELUDE_SOURCE
from capgraph.executors.cuda.kernel_ir.launch import Kernel

from tests.executors.cuda import compiling
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


def test_generic_lambdas_are_found_which_only_a_newer_compiler_takes() -> None:
    for parameters, is_refused in (("auto& to, float by", True), ("float& to, float by", False)):
        body = f"const auto put_in = []({parameters}) {{ to = by; }}; put_in(y[0], 1.0f);"
        assert bool(compile_problems([kernel(body)], [90])) == is_refused


PRELUDE = """extern "C" __global__ void NAME(float* y, f16* h, bf16* b) {
  BEGIN();
  put(h[0], get(h[1]));
  put(b[0], y[0]);
  y[1] = least(y[2], greatest(y[3], y[4]));
}
"""


@pytest.mark.parametrize("begin", ["begin", "begin_alone"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture_has_the_instructions_of_the_prelude(arch: int, begin: str) -> None:
    text = PRELUDE.replace("BEGIN", begin)
    assert compile_problems([Kernel(text, (1, 1, 1), (32, 1, 1))], [arch], as_in_programs=True) == []


def test_the_kernel_above_has_each_instruction_of_the_prelude() -> None:
    inside = re.findall(r"inline \w+ (\w+)\([^)]*\) \{[^}]*\basm\b", PRELUDE_SOURCE)
    assert sorted(set(inside)) == ["begin", "begin_alone", "get", "greatest", "least", "put"]
    assert PRELUDE_SOURCE.count("asm") == 8


def test_memory_that_several_arrays_share_is_summed() -> None:
    lines = "".join(f"__shared__ double x{i}[2048]; x{i}[threadIdx.x] = y[{i}];" for i in range(4))
    (problem,) = compile_problems([kernel(f"{lines} __syncthreads(); y[4] = x0[1] + x1[1] + x2[1] + x3[1];")], [90])
    assert f"has {4 * 2048 * 8} bytes of shared memory" in problem


def test_what_was_taken_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [kernel("y[0] = 271828;"), kernel('asm volatile("bar.sync 0;" ::: "memory"); y[0] = 271828;')]
    assert compile_problems(kernels) == []
    monkeypatch.setattr(compiling, "_refusal", lambda *_: pytest.fail("compiled again"))
    assert compile_problems(kernels) == []


def test_the_bytes_of_others_stay_what_they_are() -> None:
    compile_problems([kernel("y[0] = 1;")])
    assert b" x"[:1][0] == 32, "an empty log is one byte, and all bytes of length 1 are one object in Python"
