"""PyTorch's own samples of operators with arguments that lie otherwise in memory: beside what is dense and first there.

Both what an operator gives and what becomes of its arguments, by its variant in place too, is compared with eager
PyTorch. The content of arguments that overlap is what their memory makes of the sample's.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from capgraph.torch_backend import backend

from tests.frontends.torch.operator_samples import RTOL, Sample, draws, in_place_samples, prepare, samples

MOST_SAMPLES = 4
"""How many samples of an operator are tried in each layout."""
Layout = Callable[[torch.Tensor], torch.Tensor]


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
    """The samples of an operator, from the one with index `first` on, in each layout: what differs, as text."""
    prepare()
    for index, (layout, sample) in enumerate(_cases(name)):
        if index >= first:
            yield _outcome(layout, sample, executor)


def _cases(name: str) -> Iterator[tuple[str, Sample]]:
    for kind, listed, layouts in (("", samples, LAYOUTS), ("in place, ", in_place_samples, WRITABLE)):
        for sample in islice((each for each in listed(name) if each.is_set and not draws(each)), MOST_SAMPLES):
            for layout, lie in layouts.items():
                yield f"{kind}{layout}", replace(sample, lie=lie)


def _outcome(layout: str, sample: Sample, executor: str) -> Any:
    try:
        wanted = _leaves(sample.function, sample)
    except (RuntimeError, ValueError, TypeError, NotImplementedError, AssertionError):
        return "eager", ()  # PyTorch refuses it
    torch._dynamo.reset()
    function = torch.compile(sample.function, backend=backend, options={"executor": executor}, dynamic=False)
    try:
        _compare(_leaves(function, sample), wanted, sample)
    except Exception as error:  # noqa: BLE001  # every failure is listed
        return f"{layout}: {type(error).__name__}: {' '.join(str(error).split())[:400]}"
    return "native", ()


def _leaves(function: Callable[..., Any], sample: Sample) -> list[Any]:
    """Results, and what has become of the arguments."""
    with torch.no_grad():
        given = [sample.lie(tensor.clone()) for tensor in sample.tensors]
        results = function(*given)
    return [*torch.utils._pytree.tree_leaves(results), *given]


def _compare(found: list[Any], wanted: list[Any], sample: Sample) -> None:
    for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if not isinstance(other, torch.Tensor):
            assert one == other, f"{one} instead of {other}"
            continue
        pair = (one.abs(), other.abs()) if sample.has_either_sign else (one, other)
        torch.testing.assert_close(
            *pair, rtol=RTOL, atol=sample.atol, equal_nan=True, msg=lambda text, i=index: f"result {i}: {text}"
        )
