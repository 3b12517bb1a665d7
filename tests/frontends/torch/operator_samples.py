"""PyTorch's own samples of operators (`op_db`, f32, forward), through torch.compile, compared with eager PyTorch."""

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import torch
from capgraph.program import foreign_nodes
from capgraph.pytorch.backend import CompiledFunction, backend

from tests.frontends.torch.fake_cuda import NotTraced, imported_on_cuda

UNSET = ("empty", "new_empty", "resize_")
"""How the names of operators begin that leave elements as memory has them."""
SEEDS = range(1, 6)
"""A result that is another with one of these seeds is drawn."""
RTOL = 1e-4
ATOL = {"nn.functional.multi_head_attention_forward": 1e-4}
"""Elements near 0 among hundreds, where PyTorch itself is off f64 by as much; 1e-5 for other operators."""
EITHER_SIGN = ("pca_lowrank", "svd_lowrank")
"""Operators that draw numbers on their way to singular vectors, whose sign goes by what was drawn."""


@dataclass(frozen=True)
class Sample:
    """A call of an operator: a function of its tensors alone."""

    function: Callable[..., Any]
    tensors: tuple[Any, ...]
    is_set: bool = True
    atol: float = 1e-5
    has_either_sign: bool = False
    lie: Callable[[torch.Tensor], torch.Tensor] = torch.clone
    """How its tensors lie in memory: makes one for a call."""
    is_determined: bool = False
    """Whether it is known to draw nothing."""


@dataclass(frozen=True)
class Outcome:
    """How a sample was captured: `kind` is native, foreign, or eager, where no graph was left to capture."""

    kind: str
    foreign: tuple[str, ...] = ()


Capture: TypeAlias = Callable[[Sample], tuple[list[Any], Outcome]]
"""Gives the results of a sample, and how it was captured."""


# ---- samples


@cache
def operators() -> dict[str, Any]:
    """The operators that have samples in f32, by name and variant."""
    from torch.testing._internal import common_methods_invocations as invocations

    # The samples of what draws numbers fix PyTorch's seed around each call, which breaks the graph: here seeds are
    # fixed around the sample, and the call is what a user writes.
    invocations.wrapper_set_seed = lambda operator, *args, **kwargs: operator(*args, **kwargs)
    found: dict[str, Any] = {}
    for each in invocations.op_db:
        if torch.float32 in each.dtypes:
            name = f"{each.name} ({each.variant_test_name})" if each.variant_test_name else each.name
            found[name] = each
    return found


def samples(name: str) -> Iterator[Sample]:
    """The samples of an operator that eager PyTorch runs, with dense tensors of dtypes that the IR has."""
    return _samples(name, operators()[name].op)


def in_place_samples(name: str) -> Iterator[Sample]:
    """Those of its variant in place; none where it has no such."""
    in_place = operators()[name].inplace_variant
    return _samples(name, in_place) if in_place is not None else iter(())


def _samples(name: str, operator: Any) -> Iterator[Sample]:
    _seed()
    for given in operators()[name].sample_inputs("cpu", torch.float32):
        function, tensors = _written_out(operator, (given.input, *given.args), given.kwargs)
        atol = ATOL.get(name, Sample.atol)
        sample = Sample(function, tensors, not name.startswith(UNSET), atol, name in EITHER_SIGN)
        results = _tried(sample)
        if results is not None and all(map(_is_known, (*sample.tensors, *results))):
            yield sample


def _seed() -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  # PyTorch's samples draw from the global state


def _written_out(operator: Any, args: Sequence[Any], kwargs: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The call as a function of its tensors, `operator(t0, [t1, t2], dim=1)`: Dynamo has nothing else to trace."""
    scope: dict[str, Any] = {"operator": operator}
    tensors: list[Any] = []
    written = [_written(arg, scope, tensors) for arg in args]
    written += [f"{name}={_written(arg, scope, tensors)}" for name, arg in kwargs.items()]
    names = ", ".join(f"t{index}" for index in range(len(tensors)))
    exec(f"def function({names}):\n    return operator({', '.join(written)})\n", scope)
    return scope["function"], tuple(tensors)


def _written(arg: Any, scope: dict[str, Any], tensors: list[Any]) -> str:
    """An argument as source. Tensors go to `tensors`, what source cannot say to `scope`."""
    if isinstance(arg, torch.Tensor):
        tensors.append(arg.detach())
        return f"t{len(tensors) - 1}"
    if type(arg) is list:
        return f"[{', '.join(_written(item, scope, tensors) for item in arg)}]"
    if type(arg) is tuple:
        return f"({''.join(_written(item, scope, tensors) + ', ' for item in arg)})"
    if arg is None or type(arg) in (bool, int, str):
        return repr(arg)
    scope[f"k{len(scope)}"] = arg
    return f"k{len(scope) - 1}"


def _tried(sample: Sample) -> list[Any] | None:
    """Its results; None where PyTorch does not run it."""
    try:
        return _eager(sample)
    except (RuntimeError, ValueError, TypeError, NotImplementedError, AssertionError):
        return None


def _is_known(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return True
    return value.layout is torch.strided and value.dtype is not torch.complex32


def _eager(sample: Sample, seed: int = 0) -> list[Any]:
    with torch.random.fork_rng(devices=()), torch.no_grad():
        torch.default_generator.manual_seed(seed)  # of the CPU alone: each other device keeps the stack of the call
        return torch.utils._pytree.tree_leaves(sample.function(*map(torch.clone, sample.tensors)))


def joined(parts: Sequence[Sample]) -> Sample:
    """One call of many samples, of which each result is determined."""
    ends = list(accumulate(len(part.tensors) for part in parts))
    starts = [0, *ends]

    def function(*tensors: Any) -> list[Any]:
        return [part.function(*tensors[start:end]) for part, start, end in zip(parts, starts, ends, strict=False)]

    return Sample(function, tuple(tensor for part in parts for tensor in part.tensors), is_determined=True)


def may_join(sample: Sample) -> bool:
    """Whether its results are those of every run, and are compared as those of most samples."""
    return replace(sample, function=None, tensors=()) == Sample(None, ()) and not draws(sample)  # type: ignore[arg-type]


# ---- capturing


def compiled(sample: Sample) -> tuple[list[Any], Outcome]:
    """The results by `torch.compile(backend="capgraph")`, with the options that a user has who gives none."""
    torch._dynamo.reset()
    function = torch.compile(sample.function, backend=backend, dynamic=False)
    with _noted() as made, torch.no_grad(), torch.random.fork_rng(devices=()):
        results = function(*[tensor.clone() for tensor in sample.tensors])
    names = {name for each in made for name in foreign_nodes(each.program.graph)}
    kind = ("foreign" if names else "native") if made else "eager"
    return torch.utils._pytree.tree_leaves(results), Outcome(kind, tuple(sorted(names)))


@contextmanager
def _noted() -> Iterator[list[CompiledFunction]]:
    """The functions that the backend compiles while this is active."""
    made: list[CompiledFunction] = []
    initialize = CompiledFunction.__init__

    def noted(self: CompiledFunction, *args: Any) -> None:
        initialize(self, *args)
        made.append(self)

    CompiledFunction.__init__ = noted  # type: ignore[method-assign]
    try:
        yield made
    finally:
        CompiledFunction.__init__ = initialize  # type: ignore[method-assign]


def prepare() -> None:
    """One thread, nothing said of calls that Dynamo leaves to PyTorch, and no time for what tells results nothing."""
    torch.set_num_threads(1)
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
    # Dynamo flushes the caches to time the guards of each graph: a quarter of all time here, for a line in a log.
    torch._dynamo.guards.profile_guard_manager = lambda *_: 0.0


# ---- on a GPU that is not there

UNTRACED = (
    *("allclose", "corrcoef", "cov", "equal", "nn.functional.gaussian_nll_loss"),  # Python decides on data
    *("linalg.lstsq", "tensor_split"),  # sizes by content, content on the CPU
    *("geqrf", "histogram", "nn.functional.ctc_loss", "resize_"),  # PyTorch asks the device itself
    *("masked.", "__getitem__"),  # real tensors are made on the device, or stay on the CPU
    "as_strided (partial_views)",  # the memory around the argument is not part of its fake
)
"""How the names of operators begin of which a call cannot be traced for a device that is not there."""


def is_traced_on_cuda(name: str) -> bool:
    """Whether calls of an operator can be traced for a device that is not there."""
    return not name.startswith(UNTRACED)


def check_on_cuda(sample: Sample, dtype: Any = torch.float32, *, is_native: bool) -> None:
    """Imports a sample as PyTorch traces it for a GPU; floats in f32 become `dtype`. Nothing runs.

    Raises what the import raises, above all where its types are not PyTorch's, and `AssertionError` for foreign nodes
    where all are to be native.
    """
    tensors = [tensor.to(dtype) if tensor.dtype is torch.float32 else tensor for tensor in sample.tensors]
    try:
        graph = imported_on_cuda(sample.function, tensors).model.graph
    except NotTraced:
        if dtype is torch.float32:
            raise
        return  # PyTorch lacks many operators in small floats
    assert not is_native or not foreign_nodes(graph), f"on CUDA {sorted(foreign_nodes(graph))} are foreign"


# ---- comparing


def check(sample: Sample, capture: Capture = compiled) -> Outcome:
    """Compares a sample with eager PyTorch. Raises `AssertionError` where they differ; of draws, types are compared."""
    wanted = _eager(sample)
    found, outcome = capture(sample)
    has_values = sample.is_set and (sample.is_determined or not _is_drawn(sample, wanted))
    assert len(found) == len(wanted), f"{len(found)} results instead of {len(wanted)}"
    for one, other in zip(found, wanted, strict=True):
        if not isinstance(other, torch.Tensor):
            assert one == other, f"{one} instead of {other}"
        elif has_values:
            _check_close(sample, one, other)
        else:
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
    return outcome


def _check_close(sample: Sample, one: torch.Tensor, other: torch.Tensor) -> None:
    if sample.has_either_sign:
        one, other = one.abs(), other.abs()
    torch.testing.assert_close(one, other, rtol=RTOL, atol=sample.atol, equal_nan=True)


def draws(sample: Sample) -> bool:
    """Whether its results are others each time."""
    return _is_drawn(sample, _eager(sample))


def _is_drawn(sample: Sample, results: Sequence[Any]) -> bool:
    return any(not _are_equal(results, _eager(sample, seed)) for seed in SEEDS)


def _are_equal(some: Sequence[Any], others: Sequence[Any]) -> bool:
    try:
        for one, other in zip(some, others, strict=True):
            torch.testing.assert_close(one, other, equal_nan=True)
    except AssertionError:
        return False
    return True
