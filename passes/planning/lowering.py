"""The passes on the way to a plan, and the calls on which they are checked."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.plan import View
from ...ir.target import Target
from ..cleanup.redundancy import Cse, EliminateDeadCode, FoldConstants
from ..framework.base import Pass
from ..framework.numeric import Samples, draw
from ..framework.pipeline import Pipeline
from .bounds import BoundSizes
from .decode import ReadLengthsOnDevice
from .masking import MaskPadding
from .padding import real_size_input
from .partition import CapturePolicy
from .specialize import Specialize
from .states import ReadStatesFirst, SeparateStates

_CLEAN_UP: tuple[Pass, ...] = (FoldConstants(), EliminateDeadCode(), Cse())
"""Known sizes turn shape arithmetic into constants; what led to it is left unused."""


Scratch = Callable[[Node, Mapping[Value, View]], int]
"""The bytes that the kernel of a node wants for itself while it runs, given where every value lies."""

Kept = Callable[[Graph, Mapping[Value, View]], Iterable[tuple[Value, Node]]]
"""Values whose memory is kept until a later node has run, given where every value lies."""


@dataclass(frozen=True)
class Lowering:
    """How a graph is brought to a target's kernels.

    `kernels` are the passes that suit them, `captures` says whether there is one for a node that could be captured,
    `scratch` how much of the arena it wants for itself, `kept` what a kernel reads that does the work of earlier nodes
    as well, and `check` what is checked after each pass on the way to a plan (`Pipeline.run`).
    """

    kernels: Pipeline = field(default=Pipeline(()))
    captures: Callable[[Node], bool] | None = None
    scratch: Scratch | None = None
    kept: Kept | None = None
    check: str = "none"


def planning_pipeline(sizes: Mapping[str, int], target: Target, policy: CapturePolicy, lowering: Lowering) -> Pipeline:
    """The passes from a graph with symbolic sizes to the one that is planned at `sizes`.

    Unknown sizes get bounds where that lets more of the graph be captured.
    """
    stages: list[tuple[Pass, ...]] = [(Specialize(tuple(sizes.items())),), (ReadLengthsOnDevice(),), _CLEAN_UP]
    if policy.captures and target.bounded:
        stages.append((BoundSizes(target, tuple(sorted(policy.keep_outside)), lowering.captures),))
        stages.append(_CLEAN_UP)
    return Pipeline((*stages, *lowering.kernels.stages, (SeparateStates(),), (ReadStatesFirst(),)))


def masking_stages(sizes: Mapping[str, int]) -> tuple[tuple[Pass, ...], ...]:
    """The passes by which every dim that can be is made safe to be padded to its size."""
    return tuple((MaskPadding(name, size, min(size, 1)),) for name, size in sizes.items())


def drawn_calls(graph: Graph, sizes: Mapping[str, int]) -> Samples:
    """Calls at `sizes` of a graph whose real sizes, where it takes them, are the same. Raises as `Samples.drawn`."""
    random = np.random.default_rng(0)
    real = {real_size_input(graph, name): size for name, size in sizes.items()}
    return Samples.of(
        graph,
        [
            [np.array(real[v.name]) if v.name in real else draw(v, sizes, random) for v in graph.inputs]
            for _ in range(2)
        ],
    )
