"""PyTorch's own samples of operators with arguments that lie otherwise in memory: beside what is dense and first there.

Both what an operator gives and what becomes of its arguments, by its variant in place too, is compared with eager
PyTorch. The content of arguments that overlap is what their memory makes of the sample's.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import torch
from capgraph.pytorch.backend import backend

from tests.frontends.torch.operator_samples import RTOL, Sample, draws, in_place_samples, prepare, samples

MOST_SAMPLES = 4
"""How many samples of an operator are tried in each layout."""
Layout = Callable[[torch.Tensor], torch.Tensor]
Backend = Callable[..., Any]


def _transposed(x: torch.Tensor) -> torch.Tensor:
    order = list(reversed(range(x.dim())))
    return x.permute(order).contiguous().permute(order)


def _stepped(x: torch.Tensor) -> torch.Tensor:
    """Every second element of memory along the last axis."""
    if not x.dim():
        return x
    return x.new_zeros((*x.shape[:-1], 2 * x.shape[-1]))[..., ::2].copy_(x)


def _offset(x: torch.Tensor) -> torch.Tensor:
    """Behind others in memory."""
    return x.new_zeros(x.numel() + 5)[3 : 3 + x.numel()].view(x.shape).copy_(x)


def _expanded(x: torch.Tensor) -> torch.Tensor:
    axis = next((axis for axis, size in enumerate(x.shape) if size > 1), None)
    return x if axis is None else x.narrow(axis, 0, 1).clone().expand(x.shape)


def _overlapping(x: torch.Tensor) -> torch.Tensor:
    """Rows that begin one element behind each other."""
    return x.contiguous().view(-1).clone().as_strided(x.shape, [1] * x.dim()) if x.numel() else x


WRITABLE: dict[str, Layout] = {"transposed": _transposed, "stepped": _stepped, "offset": _offset}
LAYOUTS: dict[str, Layout] = {**WRITABLE, "expanded": _expanded, "overlapping": _overlapping}


def layout_outcomes(name: str, first: int, *, executor: str = "ort") -> Iterator[Any]:
    """The samples of an operator, from the one with index `first` on, in each layout: what differs, as text.

    They are compiled together; where anything differs, halves of them, down to one.
    """
    prepare()
    yield from _outcomes(list(_cases(name))[first:], partial(backend, options={"executor": executor}))


def _cases(name: str) -> Iterator[tuple[str, Sample]]:
    for kind, listed, layouts in (("", samples, LAYOUTS), ("in place, ", in_place_samples, WRITABLE)):
        for sample in islice((each for each in listed(name) if each.is_set and not draws(each)), MOST_SAMPLES):
            for layout, lie in layouts.items():
                yield f"{kind}{layout}", replace(sample, lie=lie)


def _outcomes(cases: Sequence[tuple[str, Sample]], make: Backend) -> Iterator[Any]:
    problem = _problem([case for _, case in cases], make)
    if not problem:
        yield from [("native", ())] * len(cases)
    elif len(cases) > 1:
        half = len(cases) // 2
        yield from _outcomes(cases[:half], make)
        yield from _outcomes(cases[half:], make)
    else:
        [(layout, case)] = cases
        is_ours = not _problem([case], "aot_eager")
        yield f"{layout}: {problem}" if is_ours else ("not by PyTorch either", ())


def _problem(cases: Sequence[Sample], make: Backend | str) -> str:
    """What is not as in eager PyTorch of the calls that it takes, as one function."""
    taken = [(case, leaves) for case in cases if (leaves := _wanted(case)) is not None]
    if not taken:
        return ""
    functions = [case.function for case, _ in taken]
    listed = [_given(case) for case, _ in taken]
    torch._dynamo.reset()
    try:
        with torch.no_grad():
            results = torch.compile(_joined(functions), backend=make, dynamic=False)(*listed)
        for (case, wanted), given, result in zip(taken, listed, results, strict=True):
            _compare([*torch.utils._pytree.tree_leaves(result), *given], wanted, case)
    except Exception as error:  # noqa: BLE001  # every failure is listed
        return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
    return ""


def _joined(functions: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    return lambda *listed: [function(*given) for function, given in zip(functions, listed, strict=True)]


def _wanted(sample: Sample) -> list[Any] | None:
    """What eager PyTorch gives, and what has become of the arguments; None where it refuses the call."""
    try:
        given = _given(sample)
        with torch.no_grad():
            results = sample.function(*given)
    except (RuntimeError, ValueError, TypeError, NotImplementedError, AssertionError):
        return None
    return [*torch.utils._pytree.tree_leaves(results), *given]


def _given(sample: Sample) -> list[torch.Tensor]:
    return [sample.lie(tensor.clone()) for tensor in sample.tensors]


def _compare(found: list[Any], wanted: list[Any], sample: Sample) -> None:
    for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if not isinstance(other, torch.Tensor):
            assert one == other, f"{one} instead of {other}"
            continue
        pair = (one.abs(), other.abs()) if sample.has_either_sign else (one, other)
        torch.testing.assert_close(
            *pair, rtol=RTOL, atol=sample.atol, equal_nan=True, msg=lambda text, i=index: f"result {i}: {text}"
        )
