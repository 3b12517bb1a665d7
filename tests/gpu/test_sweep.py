"""Every model of the sweep, small: through `torch.compile` at two sizes in f16, through `optimize` at one in bf16 and
at another in f32, each on fresh inputs.

Right is an error against f64 of at most 1.5 times eager PyTorch's own. In f32 PyTorch's settings allow no TF32: where
they do, its kernels take it up at some sizes and not at others. Times: `python -m benchmarks.gpu.sweep`.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

with warnings.catch_warnings(action="ignore"):  # what other packages warn of while they load, and below when they run
    pytest.importorskip("cupy", reason="programs on a GPU need the package cupy")
    torch = pytest.importorskip("torch", reason="the modules are PyTorch's")

import capgraph
from capgraph.pytorch.backend import live_programs

from benchmarks.gpu.sweep.check import Reference, in_f64
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

    def calls(self, *sizes: Size) -> Iterator[tuple[Sequence[Any], Reference]]:
        """A call of each size, with other numbers each."""
        for seed, (batch, size) in enumerate(sizes):
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
    for inputs, reference in small.calls(small.usual, small.usual, small.other):
        checked = reference.check(compiled(*inputs))
        assert checked.is_right, (checked, [program.explain() for program in live_programs()])


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", SUBJECTS)
def test_optimized(name: str, dtype: str) -> None:
    small = Small(name, dtype)
    calls = small.calls(*[small.usual if dtype == "bfloat16" else small.other] * 2)
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
        for given, expected in [(inputs, reference), *calls]:
            checked = expected.check(program(*given))
            assert checked.is_right, (checked, program.explain())
        assert not [line for line in program.explain().splitlines() if line.strip().startswith("refused")]
