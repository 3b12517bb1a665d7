"""Random numbers: an element depends on its place in memory, so a dim may only make a tensor longer at its end."""

from collections.abc import Sequence

from .....ir.dims import Dim
from .facts import Case, Fact, Rules, Tail, Tails, Unsafe


def filled(case: Case) -> list[Fact]:
    """A shape that the dim makes longer."""
    case.require_unpadded(0)
    shape = case.result_shape()
    tails = tuple(Tail(dim) if case.mentions(dim) else None for dim in shape)
    return [Fact(_outermost(case, tails, shape))]


def bernoulli(case: Case) -> list[Fact]:
    """One number for each element of the probabilities."""
    case.require_unpadded(1)
    return [Fact(_outermost(case, case.tails(0), case.shape(0)))]


def multinomial(case: Case) -> list[Fact]:
    """As many numbers for each row."""
    case.require_unpadded(1)
    batch, classes = case.tails(0)
    if classes is not None:
        raise Unsafe(f"the classes carry {case.symbol}")
    return [Fact(_outermost(case, (batch, None), case.result_shape()))]


def _outermost(case: Case, tails: Tails, shape: Sequence[Dim]) -> Tails:
    """`tails`, without what stands there, where the real elements lie in front of all others."""
    for axis, tail in enumerate(tails):
        if tail is not None and not (tail.is_prefix and all(dim == 1 for dim in shape[:axis])):
            raise Unsafe(f"elements lie elsewhere when {case.symbol} is padded, and so draw other numbers")
    return tuple(Tail(tail.extent, inner=tail.inner) if tail is not None else None for tail in tails)


RULES: Rules = {
    "keyed_random_normal": filled,
    "keyed_random_uniform": filled,
    "keyed_bernoulli": bernoulli,
    "keyed_multinomial": multinomial,
}
