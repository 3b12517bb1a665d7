"""PyTorch's own samples of its operators (`op_db`), captured by the backend and compared with eager PyTorch.

    python -m tests.frontends.torch.operator_samples          # all samples through torch.compile: `make test-ops`
    python -m tests.frontends.torch.operator_samples --write  # and writes docs/torch-operators.md

A sample is captured in one of two ways: by AOT autograd alone, which is quick, or by torch.compile, which can also
break a graph where an operator's result depends on data. Both end in the same import.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from capgraph.frontends.torch.decompositions import aot_decompositions, composites_kept
from capgraph.program import foreign_nodes
from capgraph.torch_backend import BackendChoices, CompiledFunction, backend
from torch._functorch.aot_autograd import aot_function, make_boxed_func
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.utils._python_dispatch import _disable_current_modes

PAGE = Path(__file__).parents[3] / "docs" / "torch-operators.md"
OPTIONS = {"executor": "eager", "level": 0}
DRAWN = (
    *("bernoulli", "cauchy", "empty", "exponential", "geometric", "log_normal", "multinomial", "new_empty", "normal"),
    *("pca_lowrank", "rand", "svd_lowrank", "uniform", "nn.functional.fractional_max_pool", "nn.functional.rrelu"),
    "nn.functional.multi_head_attention",
)
"""How the names of operators begin whose results may be drawn, or not be set: their samples fix PyTorch's own seed."""
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5, "equal_nan": True}


@dataclass(frozen=True)
class Sample:
    """A call of an operator: a function of its tensors alone."""

    function: Callable[..., Any]
    tensors: tuple[Any, ...]
    is_drawn: bool


@dataclass(frozen=True)
class Outcome:
    """How a sample was captured: `kind` is native, foreign, or eager, where no graph was left to capture."""

    kind: str
    foreign: tuple[str, ...] = ()


@cache
def operators() -> dict[str, Any]:
    """The operators that have samples in f32, by name and variant."""
    from torch.testing._internal.common_methods_invocations import op_db

    found: dict[str, Any] = {}
    for each in op_db:
        if torch.float32 in each.dtypes:
            name = f"{each.name} ({each.variant_test_name})" if each.variant_test_name else each.name
            found[name] = each
    return found


def samples(name: str) -> Iterator[Sample]:
    """The samples of an operator that eager PyTorch runs, with dense tensors of dtypes that the IR has."""
    torch.manual_seed(0)
    for given in operators()[name].sample_inputs("cpu", torch.float32):
        is_drawn = name.startswith(DRAWN) or "dropout" in name or bool(given.kwargs.get("dropout_p"))
        sample = _as_sample(operators()[name].op, (given.input, *given.args), given.kwargs, is_drawn)
        if _runs(sample) and all(map(_is_known, (*sample.tensors, *_eager(sample)))):
            yield sample


def _as_sample(operator: Any, args: Sequence[Any], kwargs: Any, is_drawn: bool) -> Sample:
    leaves, spec = torch.utils._pytree.tree_flatten((args, kwargs))
    tensors = tuple(leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor))

    def function(*given: Any) -> Any:
        rest = iter(given)
        whole = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        args, kwargs = torch.utils._pytree.tree_unflatten(whole, spec)
        return operator(*args, **kwargs)

    return Sample(function, tensors, is_drawn)


def _runs(sample: Sample) -> bool:
    try:
        _eager(sample)
    except (RuntimeError, ValueError, TypeError, NotImplementedError, AssertionError):
        return False
    return True


def _is_known(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return True
    return value.layout is torch.strided and value.dtype is not torch.complex32


def _eager(sample: Sample, seed: int = 0) -> list[Any]:
    torch.manual_seed(seed)
    with torch.no_grad():
        return torch.utils._pytree.tree_leaves(sample.function(*[tensor.clone() for tensor in sample.tensors]))


# ---- capturing


class Recorded:
    """The functions that the backend compiles while this is active."""

    def __init__(self) -> None:
        self.made: list[CompiledFunction] = []

    def compile(self, forward: Any, _arguments: Any) -> Any:
        with _disable_current_modes():
            self.made.append(CompiledFunction(forward, {}, BackendChoices(OPTIONS)))
        return make_boxed_func(self.made[-1])

    def outcome(self) -> Outcome:
        if not self.made:
            return Outcome("eager")
        names = {name for each in self.made for name in foreign_nodes(each.program.graph)}
        return Outcome("foreign", tuple(sorted(names))) if names else Outcome("native")


def by_tracing(sample: Sample) -> tuple[list[Any], Outcome]:
    """The results by AOT autograd alone. Raises what it raises where a result depends on data."""
    recorded = Recorded()
    tensors = [tensor.clone() for tensor in sample.tensors]
    with torch.no_grad(), composites_kept():
        captured = aot_function(
            sample.function,
            fw_compiler=recorded.compile,
            decompositions=aot_decompositions(),
            keep_inference_input_mutations=True,
        )
        results = captured(*tensors)
    return torch.utils._pytree.tree_leaves(results), recorded.outcome()


def by_compiling(sample: Sample) -> tuple[list[Any], Outcome]:
    """The results by torch.compile."""
    torch._dynamo.reset()
    made: list[CompiledFunction] = []
    compiled = torch.compile(sample.function, backend=partial(backend, options=OPTIONS), dynamic=False)
    initialise = CompiledFunction.__init__

    def noted(self: CompiledFunction, *args: Any) -> None:
        initialise(self, *args)
        made.append(self)

    CompiledFunction.__init__ = noted  # type: ignore[method-assign]
    try:
        with torch.no_grad():
            results = compiled(*[tensor.clone() for tensor in sample.tensors])
    finally:
        CompiledFunction.__init__ = initialise  # type: ignore[method-assign]
    recorded = Recorded()
    recorded.made = made
    return torch.utils._pytree.tree_leaves(results), recorded.outcome()


def captured(sample: Sample) -> tuple[list[Any], Outcome]:
    """The results by tracing where that is possible, else by torch.compile."""
    try:
        return by_tracing(sample)
    except (DataDependentOutputException, DynamicOutputShapeException):
        return by_compiling(sample)


def check(sample: Sample, capture: Callable[[Sample], tuple[list[Any], Outcome]] = captured) -> Outcome:
    """Compares a sample with eager PyTorch. Raises `AssertionError` where they differ; of draws, types are compared."""
    wanted = _eager(sample)
    found, outcome = capture(sample)
    assert len(found) == len(wanted), f"{len(found)} results instead of {len(wanted)}"
    is_random = sample.is_drawn or not _are_equal(wanted, _eager(sample, seed=1))
    for one, other in zip(found, wanted, strict=True):
        if not isinstance(other, torch.Tensor):
            assert one == other, f"{one} instead of {other}"
        elif is_random:
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
        else:
            torch.testing.assert_close(one, other, **TOLERANCE)
    return outcome


def _are_equal(some: Sequence[Any], others: Sequence[Any]) -> bool:
    try:
        for one, other in zip(some, others, strict=True):
            torch.testing.assert_close(one, other, equal_nan=True)
    except AssertionError:
        return False
    return True


# ---- the table


@dataclass(frozen=True)
class Row:
    """What is claimed of an operator: how many of its samples are native, of how many; foreign operators in others."""

    name: str
    native: int
    total: int
    foreign: tuple[str, ...]

    def __str__(self) -> str:
        rest = ", ".join(f"`{name}`" for name in self.foreign) or ("" if self.native == self.total else "PyTorch")
        return f"| {self.name} | {self.native} of {self.total} | {rest} |"


_HEAD = """# PyTorch's operators

Made by `make test-ops` from PyTorch {version}'s own samples of its operators (`op_db`, f32, forward), all equal to
eager PyTorch. A sample is native if its whole graph is: no node of it runs in PyTorch. The last column names what does
in the others; "PyTorch" stands where a result's size or a branch depends on data, so that torch.compile leaves the call
to PyTorch (torch.export captures many of these). Sparse and half-precision complex tensors are not taken.

{native} of {rows} operators are native in all their samples, {some} in some; there are {samples} samples.

| operator | native samples | otherwise |
|---|---|---|
"""


def page(rows: Sequence[Row]) -> str:
    """The text of docs/torch-operators.md."""
    head = _HEAD.format(
        version=torch.__version__.partition("+")[0],
        native=sum(row.native == row.total for row in rows),
        rows=len(rows),
        some=sum(0 < row.native < row.total for row in rows),
        samples=sum(row.total for row in rows),
    )
    return head + "".join(f"{row}\n" for row in rows)


def claimed() -> dict[str, tuple[int, int]]:
    """What the page says: native samples and all samples, by operator."""
    found: dict[str, tuple[int, int]] = {}
    for line in PAGE.read_text().splitlines():
        parts = [part.strip() for part in line.strip("|").split("|")]
        if len(parts) == 3 and " of " in parts[1]:
            native, _, total = parts[1].partition(" of ")
            found[parts[0]] = (int(native), int(total))
    return found


def main() -> int:
    options = _options()
    rows, failures = [], []
    capture = captured if options.trace else by_compiling
    names = options.names or list(operators())
    for number, name in enumerate(names):
        outcomes: Counter[str] = Counter()
        foreign: set[str] = set()
        for index, sample in enumerate(islice(samples(name), options.most)):
            try:
                outcome = check(sample, capture)
            except Exception as error:  # noqa: BLE001  # every failure is listed
                first = (str(error).strip().splitlines() or [""])[0]
                failures.append(f"{name}, sample {index}: {type(error).__name__}: {first}")
                continue
            outcomes[outcome.kind] += 1
            foreign.update(outcome.foreign)
        total = sum(outcomes.values())
        if total:
            rows.append(Row(name, outcomes["native"], total, tuple(sorted(foreign))))
        print(f"\r{number + 1}/{len(names)} {name:60.60}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print("\n".join(failures) or f"{sum(row.total for row in rows)} samples of {len(rows)} operators, all equal")
    if options.write and not failures:
        PAGE.write_text(page(rows))
    return 1 if failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="operators (default: all)")
    parser.add_argument("--trace", action="store_true", help="by AOT autograd where that is possible")
    parser.add_argument("--most", type=int, default=None, help="at most so many samples of each")
    parser.add_argument("--write", action="store_true", help="write docs/torch-operators.md")
    return parser.parse_args()


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
