"""Plans: a graph with concrete shapes, a place in memory for every value and a place in the order for every node.

Plain data between planning and executors. Passes make plans, executors run them, reports print them; nothing here acts.

Memory is a set of buffers. Most are ranges of the one arena; constants, states, resident inputs and results that are
handed out lie outside it. A value lives in a `View` of a buffer: an offset and strides. Several values may share a
buffer: views, in-place results, the parts of a concat that is written in place, and the old and new content of a state.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from .dims import Dim
from .graph import Graph, Node, Value
from .types import DType


class Place(Enum):
    """Where a buffer's bytes are: in the ARENA at `offset`; the others have an address of their own.

    INPUT is memory of one graph input that no step writes: it holds what was loaded last, call after call, and may be
    the caller's own. OUTPUT is memory of results that is made anew for each run and handed to the caller. DYNAMIC is
    memory that an eager step allocates when it runs: the size depends on data, or the value is no tensor.
    """

    ARENA = "arena"
    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"
    STATE = "state"
    DYNAMIC = "dynamic"


@dataclass(frozen=True, slots=True)
class Buffer:
    """A range of memory: `nbytes` bytes, at `offset` of the arena if it lies there.

    `first` and `last` are the steps between which its content is needed: -1 means before the first (a graph input),
    the number of steps means after the last (a graph output). `label` names a value in it, for reports.
    """

    id: int
    place: Place
    nbytes: int
    offset: int
    first: int
    last: int
    label: str

    @property
    def end(self) -> int:
        """The first byte behind it in the arena."""
        return self.offset + self.nbytes


@dataclass(frozen=True, slots=True)
class View:
    """Where a value lives: `offset` bytes into buffer `buffer`, with `strides` in bytes."""

    buffer: int
    offset: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return self.strides == contiguous_strides(self.shape, element_bytes(self.dtype))

    @property
    def extent(self) -> int:
        """Bytes from `offset` to the end of the farthest element."""
        return self.reach[1]

    @property
    def reach(self) -> tuple[int, int]:
        """The bytes around `offset` that it touches, from and to; negative strides reach below it."""
        if 0 in self.shape:
            return 0, 0
        reaches = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
        low, high = sum(reach for reach in reaches if reach < 0), sum(reach for reach in reaches if reach > 0)
        return low, high + element_bytes(self.dtype)


def element_bytes(dtype: DType) -> int:
    """Bytes of one element in a planned buffer, where types below 8 bits take a byte each."""
    return dtype.numpy.itemsize


def contiguous_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Row-major strides in bytes."""
    strides: list[int] = []
    step = itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


class StepKind(Enum):
    """COMPUTE runs the node. ALIAS does nothing: the result is a view of an operand, or was written in place."""

    COMPUTE = "compute"
    ALIAS = "alias"


@dataclass(frozen=True, slots=True)
class Step:
    """One node in its place. `scratch` is a buffer for the kernel's own use, None when it needs none.

    That of control flow is the arena in which its bodies run, one at a time.
    """

    index: int
    node: Node
    kind: StepKind
    scratch: int | None = None


class CutReason(Enum):
    """Why a step runs eagerly instead of being captured."""

    DATA_DEPENDENT_SHAPE = "the sizes of its results depend on values"
    READS_ON_HOST = "it reads values on the host to know what to launch"
    CONTROL_FLOW = "it runs regions as often as values say"
    FOREIGN = "it runs through another framework"
    NOT_A_TENSOR = "it takes or gives something that is no tensor of numbers"
    NOT_CAPTURABLE_ON_TARGET = "the target cannot capture its kernel"
    KEPT_OUTSIDE = "the policy keeps it outside of recorded graphs"
    TOO_SMALL = "a segment this small is not worth recording"
    MODE_NONE = "capture is switched off"


@dataclass(frozen=True, slots=True)
class Cut:
    """One step that is not captured, and why."""

    step: int
    reason: CutReason


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps `start` to `stop` (exclusive): one recorded graph if `is_captured`, else eager because of `cuts`."""

    start: int
    stop: int
    is_captured: bool
    cuts: tuple[Cut, ...] = ()

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Measured:
    """Sizes that a run finds, in a graph that has room for the most that they can be.

    Output `output` (None where no caller needs one) holds the sizes `symbols`, in order: i64, one each. `shapes` are
    the real shapes of the outputs that depend on them, by index. `notes` say which nodes were given room, `refusals`
    why others, by the name of their first result, were not.
    """

    symbols: tuple[str, ...] = ()
    output: int | None = None
    shapes: Mapping[int, tuple[Dim, ...]] = field(default_factory=dict[int, tuple[Dim, ...]])
    notes: tuple[str, ...] = ()
    refusals: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Plan:
    """Everything that an executor needs to run `graph` at concrete `sizes`.

    `views` says where each value lives (values of DYNAMIC buffers have no fixed shape and are missing from it; their
    buffer is in `dynamic`). `arena_bytes` is the size of the arena, `lower_bound` the largest sum of buffers that are
    needed at the same time, which no arena can go below.
    """

    graph: Graph
    sizes: Mapping[str, int]
    buffers: tuple[Buffer, ...]
    views: Mapping[Value, View]
    dynamic: Mapping[Value, int]
    steps: tuple[Step, ...]
    segments: tuple[Segment, ...]
    arena_bytes: int
    lower_bound: int
    alignment: int
    copies: Mapping[int, int] = field(default_factory=dict[int, int])
    """State copies after the last step: graph output index to graph input index, where the update was not in place."""
    bodies: "Mapping[Graph, Plan]" = field(default_factory=dict["Graph", "Plan"])
    """The plans of bodies of control flow; one whose sizes only running tells has none. Their inputs are resident."""
    measured: Measured = Measured()
    """The sizes that a run finds, and where."""
    rewrites: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many each pass made on the way to the plan, those that made any, in order."""

    def buffer_of(self, value: Value) -> Buffer:
        """The buffer that a value lives in."""
        view = self.views.get(value)
        return self.buffers[view.buffer if view is not None else self.dynamic[value]]

    def dynamic_ends(self) -> dict[int, tuple[Value, ...]]:
        """The dynamic values that are not needed after each step, by its index."""
        found: dict[int, tuple[Value, ...]] = {}
        for value, index in self.dynamic.items():
            last = self.buffers[index].last
            found[last] = (*found.get(last, ()), value)
        return found

    def steps_of(self, segment: Segment) -> tuple[Step, ...]:
        """The steps of a segment, in order."""
        return self.steps[segment.start : segment.stop]
