"""PyTorch's own samples of operators with arguments that lie otherwise in memory: beside what is dense and first there.

Both what an operator gives and what becomes of its arguments, by its variant in place too, is compared with eager
PyTorch. The content of arguments that overlap is what their memory makes of the sample's.
"""

from collections.abc import Callable, Iterator, Sequence
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
    """The samples of an operator, from the one with index `first` on, in each layout: what differs, as text.

    They are compiled together; where anything differs, one by one.
    """
    prepare()
    cases = list(_cases(name))
    are_equal = first == 0 and _are_equal([case for _, case in cases], executor)
    for layout, case in cases[first:]:
        yield ("native", ()) if are_equal else _outcome(layout, case, executor)


def _cases(name: str) -> Iterator[tuple[str, Sample]]:
    for kind, listed, layouts in (("", samples, LAYOUTS), ("in place, ", in_place_samples, WRITABLE)):
        for sample in islice((each for each in listed(name) if each.is_set and not draws(each)), MOST_SAMPLES):
            for layout, lie in layouts.items():
                yield f"{kind}{layout}", replace(sample, lie=lie)


def _are_equal(cases: Sequence[Sample], executor: str) -> bool:
    """Whether all that eager PyTorch takes, as one call, is as there."""
    wanted_by_case = [(case, leaves) for case in cases if (leaves := _wanted(case)) is not None]
    taken = [case for case, _ in wanted_by_case]

    def function(*listed: Sequence[torch.Tensor]) -> list[Any]:
        return [case.function(*given) for case, given in zip(taken, listed, strict=True)]

    compiled = _compiled(function, executor)
    given = [_given(case) for case in taken]
    try:
        with torch.no_grad():
            results = compiled(*given)
        for (case, leaves), result, arguments in zip(wanted_by_case, results, given, strict=True):
            _compare([*torch.utils._pytree.tree_leaves(result), *arguments], leaves, case)
    except Exception:  # noqa: BLE001  # one by one they tell
        return False
    return True


def _outcome(layout: str, sample: Sample, executor: str) -> Any:
    wanted = _wanted(sample)
    if wanted is None:
        return "eager", ()
    try:
        _compare(_leaves(_compiled(sample.function, executor), sample), wanted, sample)
    except Exception as error:  # noqa: BLE001  # every failure is listed
        return f"{layout}: {type(error).__name__}: {' '.join(str(error).split())[:400]}"
    return "native", ()


def _compiled(function: Callable[..., Any], executor: str) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend=backend, options={"executor": executor}, dynamic=False)


def _wanted(sample: Sample) -> list[Any] | None:
    """What eager PyTorch gives, unless it refuses the call."""
    try:
        return _leaves(sample.function, sample)
    except (RuntimeError, ValueError, TypeError, NotImplementedError, AssertionError):
        return None


def _given(sample: Sample) -> list[torch.Tensor]:
    return [sample.lie(tensor.clone()) for tensor in sample.tensors]


def _leaves(function: Callable[..., Any], sample: Sample) -> list[Any]:
    """Results, and what has become of the arguments."""
    given = _given(sample)
    with torch.no_grad():
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
