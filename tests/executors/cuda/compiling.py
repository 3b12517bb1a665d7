"""Many kernels through NVRTC at once, for every architecture that matters: groups share the time of the prelude."""

from collections.abc import Iterable

from capgraph.executors.cuda.cache import Module
from capgraph.executors.cuda.compiler import build
from capgraph.executors.cuda.launch import Kernel

ARCHITECTURES = (80, 90, 100)
GROUP = 64


def compile_problems(kernels: Iterable[Kernel], architectures: Iterable[int] = ARCHITECTURES) -> list[str]:
    """The compiler's words on every kernel that it refuses, with its source; kernels of one text count once."""
    texts = sorted({kernel.text for kernel in kernels})
    return [
        problem
        for arch in architectures
        for start in range(0, len(texts), GROUP)
        for problem in _group_problems(texts[start : start + GROUP], arch)
    ]


def _group_problems(texts: list[str], arch: int) -> list[str]:
    if isinstance(build(texts, arch), Module):
        return []
    logs = {text: build([text], arch) for text in texts}
    return [f"sm_{arch}: {log}\n{text}" for text, log in logs.items() if not isinstance(log, Module)]
