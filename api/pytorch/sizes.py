"""Sizes of a call of a PyTorch module: whether they are those that the module was exported for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..frontends.torch.guards import Guard
from ..frontends.torch.model import TorchModel
from ..frontends.torch.sizes import InFloats
from ..ir.dims import SymDim, evaluate, symbol
from ..ir.errors import InputError
from ..ir.graph import Graph
from ..ir.types import TensorType


@dataclass(frozen=True)
class Teller:
    """An axis of an input whose size is `factor * symbol + offset`, and so tells the symbol."""

    input: str
    axis: int
    symbol: str
    factor: int = 1
    offset: int = 0

    @property
    def is_bare(self) -> bool:
        """Whether the size is the symbol itself."""
        return self.factor == 1 and self.offset == 0

    def solved(self, size: int) -> int | None:
        """What the symbol is where the axis has this size; None if nothing makes it so."""
        value, rest = divmod(size - self.offset, self.factor)
        return None if rest or value < 0 else value


class SizeChecks:
    """The ranges of a module's symbols and its guards, for each call.

    `notes` says of what no call is checked, as no input tells the sizes.
    """

    def __init__(self, model: TorchModel) -> None:
        tellers = list(_tellers(model.graph))
        ranges = {name: limits for name, limits in model.ranges.items() if limits != (0, None)}
        self._ranges = ranges
        self._checked = [each for each in tellers if each.symbol in ranges or not each.is_bare]
        self._tellers = {each.symbol: each for each in sorted(tellers, key=lambda each: each.is_bare)}
        self._guards = [guard for guard in model.guards if guard.symbols <= self._tellers.keys()]
        self.notes = [_note(str(guard)) for guard in model.guards if guard not in self._guards]
        self.notes += [_note(f"{name} of {_range_text(*ranges[name])}") for name in ranges if name not in self._tellers]

    @property
    def checks_any(self) -> bool:
        """Whether there is anything to check."""
        return bool(self._checked or self._guards)

    def check(self, given: Mapping[str, Any]) -> None:
        """Raises `InputError` for inputs of other sizes; wrong ranks and missing inputs are found elsewhere."""
        for teller in self._checked:
            size = _size_at(given, teller)
            if size is not None:
                self._check_range(teller, size)
        if self._guards:
            self._check_guards(given)

    def _check_range(self, teller: Teller, size: int) -> None:
        value = size if teller.is_bare else teller.solved(size)
        if value is None:
            raise InputError(
                f"input {teller.input!r}: no {teller.symbol} makes the size {size} of axis {teller.axis}, "
                f"which is {_text(teller)}",
                remedy="pass such a size, or export the module with other dynamic_shapes",
            )
        low, high = self._ranges.get(teller.symbol, (0, None))
        if not low <= value <= (value if high is None else high):
            raise InputError(
                f"input {teller.input!r}: {teller.symbol} is {value}, but the module was exported for "
                f"{_range_text(low, high)}",
                remedy="export it with a wider range in dynamic_shapes, as far as the module allows",
            )

    def _check_guards(self, given: Mapping[str, Any]) -> None:
        sizes: dict[str, int] = {}
        for name, teller in self._tellers.items():
            size = _size_at(given, teller)
            value = None if size is None else teller.solved(size)
            if value is None:
                return  # what is wrong with the inputs is said where their types are checked
            sizes[name] = value
        broken = next((guard for guard in self._guards if not guard.holds(sizes)), None)
        if broken is not None:
            raise _broken(broken, sizes)


def _broken(guard: Guard | InFloats, sizes: Mapping[str, int]) -> InputError:
    named = ", ".join(f"{name} = {sizes[name]}" for name in sorted(guard.symbols))
    return InputError(
        f"the module was exported for sizes with {guard}, but {named}",
        remedy="export it on examples with these sizes as well, and call the program that fits",
    )


def _tellers(graph: Graph) -> Iterator[Teller]:
    for value in graph.inputs:
        shape = value.type.shape if isinstance(value.type, TensorType) else None
        for axis, dim in enumerate(shape or ()):
            if isinstance(dim, SymDim) and len(dim.symbols) == 1:
                yield from _linear(value.name, axis, dim)


def _linear(name: str, axis: int, dim: SymDim) -> Iterator[Teller]:
    """The teller of a dim of one symbol, if it is linear in it."""
    (variable,) = dim.symbols
    offset = evaluate(dim, {variable: 0})
    factor = evaluate(dim, {variable: 1}) - offset
    if factor > 0 and dim == factor * symbol(variable) + offset:
        yield Teller(name, axis, variable, factor, offset)


def _size_at(given: Mapping[str, Any], teller: Teller) -> int | None:
    shape = _shape_of(given.get(teller.input))
    return int(shape[teller.axis]) if len(shape) > teller.axis else None


def _shape_of(value: Any) -> Sequence[int]:
    """The shape of a tensor or an array; none of anything else."""
    return () if getattr(value, "is_nested", False) else getattr(value, "shape", ())


def _text(teller: Teller) -> str:
    return str(teller.factor * symbol(teller.symbol) + teller.offset)


def _range_text(low: int, high: int | None) -> str:
    return f"{low} to {high}" if high is not None else f"at least {low}"


def _note(words: str) -> str:
    return f"PyTorch traced it for {words}, which calls are not checked for, as no input tells these sizes"
