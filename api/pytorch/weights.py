"""Whether weights that a program holds as constants were written to since: as PyTorch counts, and past its counting.

Writes through `weight.data`, or another framework over the same memory, are no new version of a tensor. A few elements
of each weight tell most of them: in main memory in each call; on a GPU, where looking waits for the device, in fewer
and fewer calls.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..ir.notices import Notices

version_of = operator.attrgetter("_version")
"""How often a tensor was written to."""

MOST_CALLS = 1024
"""After how many calls at most weights on a GPU are looked at again; at first after 1, 2, 4, and so on."""

_SAMPLED = 16  # elements
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


def _addresses_equal(tensors: list[Any], addresses: list[int], positions: list[int]) -> bool:
    return [tensors[each].data_ptr() for each in positions] == [addresses[each] for each in positions]


addresses_equal: Callable[[list[Any], list[int], list[int]], bool] = getattr(
    torch._C, "_tensors_data_ptrs_at_indices_equal", _addresses_equal
)
"""Whether the tensors at some positions lie where `addresses` says at these. PyTorch with CUDA has it in one call."""


class HeldWeights:
    """The weights of one program among the arguments of calls, at `positions`, as they were when it was made.

    Those on a GPU are looked at again after 1, 2, 4 calls, and so on, and after `most_calls` at most.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[Any] | Mapping[int, Any],
        positions: Sequence[int],
        *,
        most_calls: int = MOST_CALLS,
    ) -> None:
        weights = [arguments[position] for position in positions]
        self._weights_of = operator.itemgetter(*positions, *positions[:1]) if positions else None
        self._versions = [*map(version_of, weights), *map(version_of, weights[:1])]  # a tuple also for one weight
        near = [_sampled(weight).numpy() for weight in weights if weight.is_cpu]
        self._near = [(sample, sample.tobytes()) for sample in near]
        self._far = _Far(name, [_sampled(weight) for weight in weights if not weight.is_cpu], most_calls)

    def are_unwritten(self, arguments: Sequence[Any]) -> bool:
        """Whether nothing tells that the weights, given again, were written to. Counts as a call."""
        if self._weights_of is None:
            return True
        if self._versions != list(map(version_of, self._weights_of(arguments))):
            return False
        for sample, held in self._near:  # `.data.copy_(other)` is no new version
            if sample.tobytes() != held:
                return False
        return self._far.are_unwritten()


class _Far:
    """Samples of weights on a GPU."""

    def __init__(self, name: str, samples: Sequence[torch.Tensor], most_calls: int) -> None:
        self._samples = samples
        self._most_calls = most_calls
        self._held = self._content() if samples else b""
        self._notices = Notices(name)
        self._calls, self._next = 0, 1
        self._is_written = False

    def are_unwritten(self) -> bool:
        if not self._samples:
            return True
        if self._is_written:  # calls between two looks must not take the program again
            return False
        self._calls += 1
        if self._calls < self._next or _is_capturing():
            return True
        self._next = self._calls + min(self._calls, self._most_calls)
        if self._content() == self._held:
            return True
        self._is_written = True
        self._notices.say(
            "weights",
            f"weights were written to through .data, seen in call {self._calls}: calls before it may have used the old",
            "write to the weight itself, which PyTorch counts: with torch.no_grad(): weight.mul_(2)",
        )
        return False

    def _content(self) -> bytes:
        content: bytes = (
            torch.cat([sample.contiguous().view(torch.uint8) for sample in self._samples]).cpu().numpy().tobytes()
        )
        return content


def _is_capturing() -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def _sampled(tensor: torch.Tensor) -> torch.Tensor:
    """A few elements from all over the memory of a tensor, as bits, over that memory."""
    step = max(tensor.numel() // _SAMPLED, 1)
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    count = 0 if not tensor.numel() else min(_SAMPLED, reach // step + 1)
    return tensor.detach().as_strided((count,), (step,)).view(_BITS[tensor.itemsize])
