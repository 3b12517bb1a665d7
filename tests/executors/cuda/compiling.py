"""Many kernels through NVRTC at once, for every architecture that matters: groups share the time of the prelude.

Architectures differ in their instructions: of the sources that hold some, or ask for the architecture, one of each kind
is compiled for each of them. The others are plain C++, which one architecture takes as any other does;
`test_compiling.py` holds the prelude's own instructions to all of them.

Nearly all time goes to the optimizer and the assembler. The assembler can only refuse what stands in the source:
instructions and shared memory. (It takes any `__launch_bounds__`.) So one of each kind of sources with instructions
goes through it, where those that differ in numbers alone are of one kind, but for the numbers of instructions; of the
others what they share is counted in the compiler's output. Those that are assembled are optimized less than programs
do it, in half the time. What was taken once is not compiled again in the same process, nor for a later architecture
that sees the same source: what one takes the later ones take, but for instructions of one architecture alone.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from capgraph.executors.cuda.driver.compiler import arch_name, source_of
from capgraph.executors.cuda.kernel_ir.early_start import TRIGGER, WAIT
from capgraph.executors.cuda.kernel_ir.launch import Kernel
from cuda.bindings import nvrtc

ARCHITECTURES = (80, 90, 100)
GROUP = 64

_NUMBER = re.compile(r"(?<![\w.%])\d[\d.]*(?:e[+-]?\d+)?(?:u|ull|ll|f)?\b")

_INSTRUCTIONS = re.compile(r"\basm\b|\b__CUDA_ARCH__\b")
_SIZED = re.compile(r"\basm\b|\b__shared__\b")
"""What lines hold whose numbers the assembler may refuse: instructions, shared memory."""

MOST_SHARED = 48 << 10
"""Bytes of shared memory that a kernel may declare with a size, on every architecture."""

_NEWER = re.compile(r"__CUDA_ARCH__ >= 900")
_OF_ONE_ALONE = re.compile(r"\bwgmma\b|\bsetmaxnreg\b|\btcgen05\b")
"""Instructions that a later architecture may lack."""

_GENERIC = re.compile(r"\[[&=]?\] ?\([^)]*\bauto\b")
"""Lambdas whose parameters are of any type, which NVRTC takes for functions of the host up to 13.0."""

_KERNEL = re.compile(r"^\.visible \.entry (\w+)\(", re.MULTILINE)
_SHARED = re.compile(r"^\s*\.shared \.align \d+ \.[a-z](\d+) \w+(?:\[(\d+)\])?;", re.MULTILINE)

_taken: set[tuple[str, str]] = set()
"""Kinds that were assembled, each with the target that took it, and texts that any architecture took."""


def compile_problems(
    kernels: Iterable[Kernel], architectures: Sequence[int] = ARCHITECTURES, *, as_in_programs: bool = False
) -> list[str]:
    """The compiler's words on every kernel that it refuses, with its source; kernels of one text count once.

    With `as_in_programs` one of every kind of sources goes through the assembler, whatever they hold, with all
    optimizations.
    """
    texts = sorted({kernel.text for kernel in kernels})
    kinds = {_kind_of(text): text for text in texts if as_in_programs or _INSTRUCTIONS.search(text)}
    rest = [text for text in texts if (text, "") not in _taken and text not in kinds.values()]
    usual = arch_name(90 if 90 in architectures else architectures[0]).replace("sm", "compute")
    problems = [f"NVRTC 13.0 refuses generic lambdas\n{text}" for text in texts if _GENERIC.search(text)]
    problems += [problem for group in _grouped(rest) for problem in _group_problems(group, usual, "max")]
    level = "0" if as_in_programs else "mid"
    for architecture in sorted(architectures):
        target = arch_name(architecture)
        chosen = {kind: text for kind, text in kinds.items() if not _is_taken(kind, text, architecture)}
        refused = [
            problem for group in _grouped(sorted(chosen.values())) for problem in _group_problems(group, target, level)
        ]
        if not refused:
            _taken.update((kind, target) for kind in chosen)
        problems += refused
    if not problems:
        _taken.update((text, "") for text in texts)
    return problems


def _is_taken(kind: str, text: str, architecture: int) -> bool:
    """Whether this architecture took sources of a kind, or an earlier one that sees the same instructions in them."""
    if _OF_ONE_ALONE.search(text):
        return (kind, arch_name(architecture)) in _taken
    earlier = (each for each in ARCHITECTURES if each <= architecture)
    if _NEWER.search(text.replace(TRIGGER, "").replace(WAIT, "")):
        earlier = (each for each in earlier if (each >= 90) == (architecture >= 90))
    return any((kind, arch_name(each)) in _taken for each in earlier)


def _grouped(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    return (texts[start : start + GROUP] for start in range(0, len(texts), GROUP))


def _kind_of(text: str) -> str:
    """The text without its numbers, those excepted that the assembler may refuse."""
    return "\n".join(line if _SIZED.search(line) else _NUMBER.sub("#", line) for line in text.splitlines())


def _group_problems(texts: Sequence[str], target: str, level: str) -> list[str]:
    if not _refusal(texts, target, level):
        return []
    logs = {text: _refusal([text], target, level) for text in texts}
    alone = [f"{target}: {log}\n{text}" for text, log in logs.items() if log]
    return alone or [f"{target}: {_refusal(texts, target, level)}\nthough each compiles alone"]


def _refusal(texts: Sequence[str], target: str, level: str) -> str:
    """The compiler's log where it refuses; `compute_90a` stops before the assembler, `sm_90a` does not.

    What is not optimized (`level` is "max") takes the assembler minutes, so only where it stops before.
    """
    status, program = nvrtc.nvrtcCreateProgram(source_of(texts).encode(), b"kernels", 0, [], [])
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS
    options = [f"-arch={target}".encode(), b"-std=c++17", f"-Ofc={level}".encode()]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    words = ""
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = _written(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        words = f"{status.name}\n{log}"
    elif target.startswith("compute"):
        words = _too_much_shared(_written(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program))
    nvrtc.nvrtcDestroyProgram(program)
    return words


def ptx_of(texts: Sequence[str]) -> str:
    """The kernels as PTX for compute capability 9.0."""
    _, program = nvrtc.nvrtcCreateProgram(source_of(texts).encode(), b"kernels", 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, 2, [b"-arch=compute_90", b"-std=c++17"])
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS
    return _written(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)


def _written(size: Callable[..., Any], write: Callable[..., Any], program: Any) -> str:
    """What the compiler writes into bytes: one more than it needs, as Python has one object for each single byte."""
    content = b" " * (size(program)[1] + 1)
    write(program, content)
    return content.partition(b"\0")[0].decode()


def _too_much_shared(code: str) -> str:
    """The kernels of a module in PTX that declare more shared memory than there is, empty for none."""
    _, *parts = _KERNEL.split(code)
    kernels = zip(parts[::2], parts[1::2], strict=True)
    sizes = {
        name: sum(int(bits) // 8 * int(count or 1) for bits, count in _SHARED.findall(body)) for name, body in kernels
    }
    return "\n".join(f"{name} has {size} bytes of shared memory" for name, size in sizes.items() if size > MOST_SHARED)
