"""Kernels through NVRTC, which needs no GPU: groups, failures, the cache."""

from collections.abc import Sequence
from pathlib import Path
from threading import Event

import pytest
from capgraph.executors.cuda.driver import compiler
from capgraph.executors.cuda.driver.cache import KernelCache, Module
from capgraph.executors.cuda.driver.compiler import Compiled, Compiler, Failed, arch_name, symbol_of
from capgraph.executors.cuda.kernel_ir.launch import Kernel


def scaling(factor: int) -> Kernel:
    text = f'extern "C" __global__ void NAME(f16* r, const f16* x) {{ begin(); put(r[0], get(x[0]) * {factor}); }}'
    return Kernel(text, (1, 1, 1), (32, 1, 1))


BROKEN = Kernel('extern "C" __global__ void NAME(float* r) { r[0] = undeclared; }', (1, 1, 1), (32, 1, 1))


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_kernels_compile_for_every_architecture(arch: int, tmp_path: Path) -> None:
    kernels = [scaling(factor) for factor in range(3)]
    made = Compiler(arch, KernelCache(tmp_path)).compile(kernels)
    for kernel in kernels:
        found = made[kernel.text]
        assert isinstance(found, Compiled)
        assert found.symbol == symbol_of(kernel.text)
        assert found.symbol.encode() in found.module.code
        assert found.module.code.startswith(b"\x7fELF")


def test_a_second_compiler_finds_everything_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [scaling(factor) for factor in range(30)]
    first = Compiler(90, KernelCache(tmp_path))
    made = first.compile(kernels)
    assert first.counters.compiled == 30
    monkeypatch.setattr(compiler, "build", lambda *_: pytest.fail("it compiles what is on disk"))
    second = Compiler(90, KernelCache(tmp_path))
    assert second.compile(kernels) == made
    assert second.counters.found == 30


def test_what_is_begun_is_compiled_once_and_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    are_asked_for, build = Event(), compiler.build

    def slowly(texts: Sequence[str], arch: int) -> Module | str:
        assert are_asked_for.wait(60)
        built.extend(texts)
        return build(texts, arch)

    monkeypatch.setattr(compiler, "build", slowly)
    kernels = [scaling(1), BROKEN, scaling(2)]
    begun = Compiler(90, KernelCache(tmp_path))
    begun.begin(kernels)
    begun.begin(kernels)
    are_asked_for.set()
    made = begun.compile(kernels)
    assert [type(made[kernel.text]) for kernel in kernels] == [Compiled, Failed, Compiled]
    assert sorted(built) == sorted(kernel.text for kernel in kernels)
    assert (begun.counters.compiled, begun.counters.failed) == (2, 1)


def test_another_architecture_or_prelude_is_another_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Compiler(90, KernelCache(tmp_path)).compile([scaling(1)])
    other = Compiler(80, KernelCache(tmp_path))
    other.compile([scaling(1)])
    assert other.counters.compiled == 1
    monkeypatch.setattr(compiler, "PRELUDE", compiler.PRELUDE + "\n// changed")
    changed = Compiler(90, KernelCache(tmp_path))
    changed.compile([scaling(1)])
    assert changed.counters.compiled == 1


def test_dynamic_memory_of_several_types_is_one_group(tmp_path: Path) -> None:
    kernels = [
        Kernel(
            f'extern "C" __global__ void NAME({ctype}* r) {{\nextern __shared__ __align__(128) {ctype} memory[];\n'
            "memory[threadIdx.x] = r[0]; __syncthreads(); r[threadIdx.x] = memory[0]; }",
            (1, 1, 1),
            (32, 1, 1),
            1024,
        )
        for ctype in ("float", "double", "unsigned char")
    ]
    assert isinstance(compiler.build([kernel.text for kernel in kernels], 90), Module)


def test_one_that_fails_does_not_take_its_group_along(tmp_path: Path) -> None:
    kernels = [scaling(1), BROKEN, scaling(2)]
    made = Compiler(90, KernelCache(tmp_path)).compile(kernels)
    failed = made[BROKEN.text]
    assert isinstance(failed, Failed)
    assert "undeclared" in failed.log
    assert failed.source is not None
    assert "undeclared" in failed.source.read_text()
    assert all(isinstance(made[kernel.text], Compiled) for kernel in (kernels[0], kernels[2]))


def test_a_kernel_that_names_another_ones_module_is_made_again(tmp_path: Path) -> None:
    for factor in (1, 2):
        Compiler(90, KernelCache(tmp_path)).compile([scaling(factor)])
    first, second = (tmp_path / "kernels").iterdir()
    first.write_bytes(second.read_bytes())
    for compiled in (1, 0):
        again = Compiler(90, KernelCache(tmp_path))
        for made in again.compile([scaling(1), scaling(2)]).values():
            assert isinstance(made, Compiled)
            assert made.symbol.encode() in made.module.code
        assert (again.counters.compiled, again.counters.found) == (compiled, 2 - compiled)


def test_damage_on_disk_is_repaired(tmp_path: Path) -> None:
    Compiler(90, KernelCache(tmp_path)).compile([scaling(1)])
    (entry,) = (tmp_path / "modules").iterdir()
    entry.write_bytes(entry.read_bytes()[:-1])
    again = Compiler(90, KernelCache(tmp_path))
    assert isinstance(again.compile([scaling(1)])[scaling(1).text], Compiled)
    assert again.counters.compiled == 1
    assert Compiler(90, KernelCache(tmp_path)).compile([scaling(1)])


def test_architectures_have_the_instructions_that_only_they_have() -> None:
    assert [arch_name(arch) for arch in (80, 89, 90, 100)] == ["sm_80", "sm_89", "sm_90a", "sm_100a"]
