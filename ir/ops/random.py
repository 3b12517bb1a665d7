"""Random tensors, drawn by Philox (`ir/philox.py`). Impure: without a seed every run draws anew.

With a seed a run draws what every run with that seed draws. The numbers are those of the twin in `keyed.py`, from a
state whose key is the seed.
"""

from dataclasses import replace
from typing import Any

from ..attrs import Attribute, AttrKind
from ..op import Op, Trait
from ..philox import fresh_state
from . import keyed

_SEED = Attribute("seed", AttrKind.INT, None)


def _seeded(twin: Op) -> Op:
    """The row of an op that `twin` is, with a seed instead of a state and a stream."""

    def infer(*types: Any, seed: int | None, **attrs: Any) -> Any:
        return twin.infer(*types, keyed.STATE, stream=0, **attrs)

    def meaning(*operands: Any, seed: int | None, **attrs: Any) -> Any:
        return twin.meaning(*operands, fresh_state(seed), stream=0, **attrs)

    return replace(
        twin,
        name=twin.name.removeprefix(keyed.PREFIX),
        operands=twin.operands[:-1],
        attrs={**{name: each for name, each in twin.attrs.items() if name != "stream"}, "seed": _SEED},
        infer=infer,
        meaning=meaning,
        traits=twin.traits & ~Trait.DRAWS | Trait.IMPURE,
    )


OPS: tuple[Op, ...] = tuple(_seeded(twin) for twin in keyed.OPS)
