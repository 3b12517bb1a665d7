"""Kernel sources to machine code: NVRTC through `cuda.core`, many kernels in a module, kept on disk.

NVRTC needs no GPU and no driver. Many kernels are compiled in groups, in threads, and waited for where they are needed:
the first problems are measured while the kernels of the last ones are compiled. When a group fails, each of its kernels
is compiled alone, and those that fail are told with the compiler's log.
"""

import hashlib
import math
import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ....ir.errors import MissingPackageError
from ..kernel_ir.includes.prelude import PRELUDE
from ..kernel_ir.launch import Kernel
from .cache import KernelCache, Module

GROUP, GROUPS_OF_A_THREAD = 24, 4
"""How many kernels are compiled at a time at most, and how many groups a thread gets where these are smaller."""

_STANDARD = "c++17"
_OPTIONS = f"std={_STANDARD}"
_DYNAMIC_MEMORY = re.compile(r"extern __shared__ ([^;]*?) ?(\w+)\[\];")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel as machine code: the module that holds it, and its name there."""

    module: Module
    symbol: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A kernel that does not compile: the compiler's log, and where its source was kept (None: nowhere)."""

    log: str
    source: Path | None


@dataclass(frozen=True, slots=True)
class _Group:
    """Kernels that a thread compiles into one module, or to the compiler's log."""

    texts: Sequence[str]
    made: Future[Module | str]


@dataclass
class CompilerCounters:
    """Kernels that were compiled, found on disk, and that did not compile."""

    compiled: int = 0
    found: int = 0
    failed: int = 0


class Compiler:
    """Compiles for one architecture, such as 90; each kernel once."""

    def __init__(self, arch: int, kept: KernelCache) -> None:
        self.arch = arch
        self.counters = CompilerCounters()
        self._kept = kept
        self._done: dict[str, Compiled | Failed] = {}
        self._begun: dict[str, _Group] = {}

    def compile(self, kernels: Iterable[Kernel]) -> dict[str, Compiled | Failed]:
        """The kernels by their text. Raises `MissingPackageError` where there is no NVRTC."""
        wanted = list(kernels)
        self.begin(wanted)
        return {kernel.text: self._made(kernel.text) for kernel in wanted}

    def begin(self, kernels: Iterable[Kernel]) -> None:
        """Has threads compile the kernels, in this order, for `compile` to wait for. Raises as that does."""
        wanted = dict.fromkeys(kernel.text for kernel in kernels)
        missing = [text for text in wanted if not (text in self._done or text in self._begun or self._find(text))]
        if not missing:
            return
        compiler_version()  # loads the compiler before several threads ask for it
        threads = min(len(missing), os.cpu_count() or 1)
        size = min(GROUP, math.ceil(len(missing) / threads / GROUPS_OF_A_THREAD))
        pool = ThreadPoolExecutor(threads)
        for start in range(0, len(missing), size):
            group = missing[start : start + size]
            self._begun.update(dict.fromkeys(group, _Group(group, pool.submit(build, group, self.arch))))
        pool.shutdown(wait=False)

    def _made(self, text: str) -> Compiled | Failed:
        """What became of a kernel that is done or begun."""
        begun = self._begun.get(text)
        if begun is not None:
            made = begun.made.result()
            if isinstance(made, Module):
                self._keep(begun.texts, made)
            else:
                self._compile_alone(begun.texts, made)
            for each in begun.texts:
                self._begun.pop(each, None)
        return self._done[text]

    def _find(self, text: str) -> bool:
        module = self._kept.find(self._key(text))
        if module is None or symbol_of(text).encode() not in module.code:
            return False  # a module that is whole, but another one than the kernel's, would never be made again
        self.counters.found += 1
        self._done[text] = Compiled(module, symbol_of(text))
        return True

    def _compile_alone(self, group: Sequence[str], log: str) -> None:
        """Each of a group that failed with `log`."""
        for text in group:
            made = build([text], self.arch) if len(group) > 1 else log
            if isinstance(made, Module):
                self._keep([text], made)
                continue
            self.counters.failed += 1
            path = self._kept.keep_failure(self._key(text), source_of([text]), made)
            self._done[text] = Failed(made, path)

    def _keep(self, texts: Sequence[str], module: Module) -> None:
        self.counters.compiled += len(texts)
        self._kept.keep([self._key(text) for text in texts], module)
        self._done.update({text: Compiled(module, symbol_of(text)) for text in texts})

    def _key(self, text: str) -> str:
        parts = (compiler_version(), arch_name(self.arch), _OPTIONS, PRELUDE, text)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def symbol_of(text: str) -> str:
    """The name of a kernel: the same for equal texts."""
    return f"capgraph_{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def source_of(texts: Iterable[str]) -> str:
    """What is compiled for some kernels: the prelude and their texts.

    Dynamic shared memory gets a name for each: under one name it could be of one type only, throughout a module.
    """
    return "\n\n".join([PRELUDE, *map(_named, texts)])


def _named(text: str) -> str:
    symbol = symbol_of(text)
    own = _DYNAMIC_MEMORY.sub(rf"extern __shared__ \1 {symbol}_memory[]; auto* const \2 = {symbol}_memory;", text)
    return own.replace("NAME", symbol)


def arch_name(arch: int) -> str:
    """The architecture as the compiler calls it; from 9.0 on with the instructions that only this one has."""
    return f"sm_{arch}a" if arch >= 90 else f"sm_{arch}"


@cache
def compiler_version() -> str:
    """The version of NVRTC. Raises `MissingPackageError` where it cannot be loaded."""
    try:
        import cuda.core  # noqa: F401  # here, as threads that import it at once may see it half-made
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise MissingPackageError(
            f"kernels are compiled by NVRTC, which cannot be loaded: {error}", remedy='pip install "capgraph[cuda13]"'
        ) from error
    return f"nvrtc {major}.{minor}"


def build(texts: Sequence[str], arch: int) -> Module | str:
    """A module with the kernels of `texts`; the compiler's log when it refuses one."""
    from cuda.core import Program, ProgramOptions
    from cuda.core._utils.cuda_utils import NVRTCError

    program = Program(source_of(texts), "c++", ProgramOptions(arch=arch_name(arch), std=_STANDARD))
    try:
        return Module.of(bytes(program.compile("cubin").code))
    except NVRTCError as error:
        return str(error)
    finally:
        program.close()
