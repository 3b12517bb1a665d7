"""Static inputs: how the arrays of a call reach a recording that knows fixed addresses only."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import Any

from ...ir.errors import InputError
from .counters import Counters
from .modes import InputPolicy
from .recorder import BoundPlan

FILL = 0
"""What padded rows hold where the analysis asks for nothing else."""

TRIALS = 5


class StaticInputs:
    """The inputs of one bound plan, each under a policy; what their padded rows must hold is in `fills`, by name.

    Those in `stored` are in their place already: a store holds them between calls.
    """

    def __init__(
        self,
        bound: BoundPlan,
        policies: Mapping[str, InputPolicy],
        fills: Mapping[str, Any],
        counters: Counters,
        repoint: Callable[[int], None],
        rerecord: Callable[[], None],
        stored: frozenset[int] = frozenset(),
    ) -> None:
        self._bound = bound
        self._counters = counters
        self._repoint = repoint
        self._rerecord = rerecord
        self._stored = stored
        self._names = [value.name for value in bound.plan.graph.inputs]
        self.fills = [fills.get(name, FILL) for name in self._names]
        wanted = [policies.get(name, policies.get("", InputPolicy.AUTO)) for name in self._names]
        self.policies = [InputPolicy.COPY if policy is InputPolicy.AUTO else policy for policy in wanted]
        self._undecided = [index for index, policy in enumerate(wanted) if policy is InputPolicy.AUTO]
        self._latest: dict[int, Any] = {}
        self._sort()

    def bring(self, values: Sequence[Any]) -> None:
        """Makes the inputs of a call readable for the steps, each by its policy.

        Raises `InputError` for an array that is not where the recording has it, under the policy REFUSE.
        """
        for index, fill in self._copied:
            self._bound.load(index, values[index], fill)
        self._counters.input_copies += len(self._copied)
        for index in self._placed:
            self._bring_placed(index, values[index])

    def decide(self, values: Sequence[Any]) -> None:
        """Measures what copying and what re-pointing each undecided input costs, and takes the cheaper from now on."""
        for index in self._undecided:
            if self._bound.place(index, values[index]):
                self._repoint(index)
                moving = _seconds(lambda index=index: self._moved_once(index, values[index]))  # type: ignore[misc]
                self._back(index)
                copying = _seconds(lambda index=index: self._bound.load(index, values[index]))  # type: ignore[misc]
                if moving < copying:
                    self.policies[index] = InputPolicy.REPOINT
        self._undecided = []
        self._sort()

    def _sort(self) -> None:
        """Tells the inputs that are always copied, with what fills their padded rows, from those that may be placed."""
        given = [index for index in range(len(self._names)) if index not in self._stored]
        self._placed = [index for index in given if self.policies[index] is not InputPolicy.COPY]
        self._copied = [(index, self.fills[index]) for index in given if index not in self._placed]

    def _copy(self, index: int, given: Any) -> None:
        self._bound.load(index, given, self.fills[index])
        self._counters.input_copies += 1

    def _bring_placed(self, index: int, given: Any) -> None:
        if given is self._latest.get(index):
            return
        placed = self._bound.placed_address(index)
        is_there = placed is not None and self._is_at(placed, index, given)
        if is_there:
            self._latest[index] = given
            return
        if placed is not None and self.policies[index] is InputPolicy.REFUSE:
            self._refuse(index, "lies at another address than the one that was recorded")
        if self._bound.place(index, given):
            self._tell(index)
            self._latest[index] = given
            return
        if self.policies[index] is InputPolicy.REFUSE:
            self._refuse(index, "cannot be read in place: it is padded, strided or a state")
        if placed is not None:
            self._back(index)
        self._copy(index, given)

    def _is_at(self, placed: int, index: int, given: Any) -> bool:
        same_place = self._bound.address_of(given) == placed
        shape = self._bound.plan.views[self._bound.plan.graph.inputs[index]].shape
        return same_place and given.shape == shape and bool(given.flags.c_contiguous)

    def _tell(self, index: int) -> None:
        if self.policies[index] is InputPolicy.RERECORD:
            self._counters.input_rerecords += 1
            self._rerecord()
        else:
            self._counters.input_repoints += 1
            self._repoint(index)

    def _back(self, index: int) -> None:
        self._latest.pop(index, None)
        self._bound.unplace(index)
        self._repoint(index)

    def _moved_once(self, index: int, given: Any) -> None:
        self._bound.place(index, given)
        self._repoint(index)

    def _refuse(self, index: int, why: str) -> None:
        self._counters.input_refusals += 1
        raise InputError(
            f"input {self._names[index]!r} {why}",
            remedy="pass the array of the first call, or choose another policy: copy, repoint or rerecord",
        )


def _seconds(call: Callable[[], Any]) -> float:
    times: list[float] = []
    for _ in range(TRIALS):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return median(times)
