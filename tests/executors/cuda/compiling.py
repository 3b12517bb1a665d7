"""Many kernels through NVRTC at once, for every architecture that matters: groups share the time of the prelude.

Every source goes through the compiler for every architecture. Most of the time goes to the optimiser and the assembler:
one of each kind of sources goes through these, where those that differ in numbers alone are of one kind, but for sizes
of shared memory, which the assembler alone refuses. (It takes any `__launch_bounds__`.) For one architecture they are
compiled as programs do it, for the others with fewer optimisations, in two thirds of the time.
"""

import re
from collections.abc import Iterable, Sequence

from capgraph.executors.cuda.compiler import arch_name, source_of
from capgraph.executors.cuda.launch import Kernel
from cuda.bindings import nvrtc

ARCHITECTURES = (80, 90, 100)
AS_IN_PROGRAMS = arch_name(90)
GROUP = 64

_NUMBER = re.compile(r"(?<![\w.%])\d[\d.]*(?:e[+-]?\d+)?(?:u|ull|ll|f)?\b")

_ASSEMBLED = re.compile(r"\basm\b|\b__shared__\b")
"""What lines hold whose numbers the assembler may refuse: instructions, shared memory."""


def compile_problems(kernels: Iterable[Kernel], architectures: Iterable[int] = ARCHITECTURES) -> list[str]:
    """The compiler's words on every kernel that it refuses, with its source; kernels of one text count once."""
    texts = sorted({kernel.text for kernel in kernels})
    kinds = {_kind_of(text): text for text in texts}
    first = set(kinds.values())
    alike = [text for text in texts if text not in first]
    return [
        problem
        for arch in architectures
        for target, chosen in ((arch_name(arch), sorted(first)), (arch_name(arch).replace("sm", "compute"), alike))
        for start in range(0, len(chosen), GROUP)
        for problem in _group_problems(chosen[start : start + GROUP], target)
    ]


def _kind_of(text: str) -> str:
    """The text without its numbers, those excepted that the assembler may refuse."""
    return "\n".join(line if _ASSEMBLED.search(line) else _NUMBER.sub("#", line) for line in text.splitlines())


def _group_problems(texts: Sequence[str], target: str) -> list[str]:
    if not _refusal(texts, target):
        return []
    logs = {text: _refusal([text], target) for text in texts}
    alone = [f"{target}: {log}\n{text}" for text, log in logs.items() if log]
    return alone or [f"{target}: {_refusal(texts, target)}\nthough each compiles alone"]


def _refusal(texts: Sequence[str], target: str) -> str:
    """The compiler's log where it refuses; `compute_90a` stops before the assembler, `sm_90a` does not."""
    status, program = nvrtc.nvrtcCreateProgram(source_of(texts).encode(), b"kernels", 0, [], [])
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS
    options = [f"-arch={target}".encode(), b"-std=c++17"]
    if target.startswith("compute"):
        options.append(b"-Ofc=max")  # what is not optimised takes the assembler minutes, so only where it stops before
    elif target != AS_IN_PROGRAMS:
        options.append(b"-Ofc=mid")
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    # The compiler writes into these bytes: one more than it needs, as Python has only one object for each single byte.
    log = b" " * (nvrtc.nvrtcGetProgramLogSize(program)[1] + 1)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(program)
    words = log.partition(b"\0")[0].decode()
    return "" if status == nvrtc.nvrtcResult.NVRTC_SUCCESS else f"{status.name}\n{words}"
