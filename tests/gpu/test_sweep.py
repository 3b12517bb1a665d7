"""Every model of the sweep, small: through `torch.compile` at two sizes in f16, through `optimize` at one in bf16 and
at another in f32, each on fresh inputs.

Right is an error against f64 of at most 1.5 times eager PyTorch's own; where it is more on one input, `MORE` are drawn
and all count together. In f32 PyTorch's settings allow no TF32: where they do, its kernels take it up at some sizes and
not at others. Times: `python -m benchmarks.gpu.sweep`.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

with warnings.catch_warnings(action="ignore"):  # what other packages warn of while they load, and below when they run
    pytest.importorskip("cupy", reason="programs on a GPU need the package cupy")
    torch = pytest.importorskip("torch", reason="the modules are PyTorch's")

import capgraph
from capgraph.pytorch.backend import live_programs

from benchmarks.gpu.sweep.check import Reference, in_f64, together
from benchmarks.gpu.sweep.table import SUBJECTS

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU answers here"),
]

REFUSED = ("torch.export refuses", "not implemented for", "expected scalar type")
"""What PyTorch itself cannot do: export a module, or run a kernel in a dtype."""


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch._dynamo.reset()
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    with torch.no_grad():
        yield


MORE = 12
Size = tuple[int, int]


class Small:
    """A small module with what it gives in f64, for inputs of either size."""

    def __init__(self, name: str, dtype: str) -> None:
        self.subject = SUBJECTS[name]
        if not self.subject.is_installed:
            pytest.skip(f"needs the package {self.subject.package}")
        self.dtype = getattr(torch, dtype)
        self.module = self.subject.module(small=True, dtype=self.dtype, device="cuda")
        self.wide = in_f64(self.module)

    @property
    def usual(self) -> Size:
        """The batch and the size that are examples."""
        return 2, self.subject.small[0]

    @property
    def other(self) -> Size:
        """Another size; where there is none, another batch."""
        usual, other = self.subject.small
        return (2, other) if other != usual else (3, usual)

    def problem(self, called: Callable[..., Any], calls: Iterable[tuple[Sequence[Any], Reference]], more: Size) -> str:
        """What is wrong with the results of calls, if anything is; `more` is the size of those that are drawn then."""
        checks = [reference.check(called(*inputs)) for inputs, reference in calls]
        if all(each.is_right for each in checks):
            return ""
        drawn = self.calls(*[more] * MORE, first=len(checks))
        told = together([*checks, *(reference.check(called(*inputs)) for inputs, reference in drawn)], self.dtype)
        return "" if told.is_right else str(told)

    def calls(self, *sizes: Size, first: int = 0) -> Iterator[tuple[Sequence[Any], Reference]]:
        """A call of each size, with other numbers each."""
        for seed, (batch, size) in enumerate(sizes, first):
            inputs = self.subject.inputs(batch, size, self.dtype, "cuda", seed)
            try:
                yield inputs, Reference(self.module, inputs, self.wide)
            except RuntimeError as error:
                if any(words in str(error) for words in REFUSED):
                    pytest.skip(f"eager PyTorch: {error}")
                raise


@pytest.mark.parametrize("name", SUBJECTS)
def test_compiled(name: str) -> None:
    small = Small(name, "float16")
    dynamic = None if small.subject.varies else False
    compiled = torch.compile(small.module, backend="capgraph", dynamic=dynamic, options={"tune": False})
    problem = small.problem(compiled, small.calls(small.usual, small.usual, small.other), small.usual)
    assert not problem, (problem, [program.explain() for program in live_programs()])


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", SUBJECTS)
def test_optimized(name: str, dtype: str) -> None:
    small = Small(name, dtype)
    size = small.usual if dtype == "bfloat16" else small.other
    calls = small.calls(size, size)
    inputs, reference = next(calls)
    try:
        program = capgraph.optimize(
            small.module, args=tuple(inputs), executor="graph", device="cuda", capture={"beyond": "exact"}, tune=False
        )
    except capgraph.UnsupportedError as error:
        if any(words in str(error) for words in REFUSED):
            pytest.skip(str(error))
        raise
    with program:
        problem = small.problem(program, [(inputs, reference), *calls], size)
        assert not problem, (problem, program.explain())
        assert not [line for line in program.explain().splitlines() if line.strip().startswith("refused")]
