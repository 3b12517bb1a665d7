"""What a plan takes when it runs eagerly, in segments, or as one recorded graph, predicted without running it.

The host puts work into a queue and the device takes it out. A kernel costs the host `launch_us`; a recorded graph costs
it one launch however many kernels it has. The device begins a kernel when it is queued and the one before has ended.
Eager execution is therefore bound by the host where kernels are short and by the device where they are long, and the
recorded graph always by the device.

A kernel takes a floor (`node_us`, and `barrier_us` more where its threads wait for each other) and what its work takes:
the roofline of S. Williams and others (2009), where the arithmetic of a matmul begins with the time of a single result
element, which is computed at `chain_flops` however idle the device is.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir.analysis import node_flops
from ...ir.errors import ShapeError
from ...ir.graph import Graph, Node
from ...ir.op import Trait
from ...ir.plan import CutReason, Plan, Segment, Step, StepKind, View, element_bytes
from ...ir.target import CUDA
from ...ir.types import TensorType
from .partition import CapturePolicy
from .planner import PlanPolicy, make_plan


@dataclass(frozen=True, slots=True)
class Costs:
    """What launches and work cost: times in microseconds, bandwidth in bytes and rates in FLOPs a second.

    The defaults are those of an NVIDIA H200 with kernels of tuned libraries: measured but for `wait_us`, `barrier_us`
    and `chain_flops`, which are estimates. `launch_us` is the host's time for
    one kernel, `graph_launch_us` a graph of one empty kernel launched and waited for, `wait_us` what passes between the
    end of the last kernel and the host's knowing it. `half_flops` is for floats of 16 bits and fewer.
    """

    launch_us: float = 4.0
    node_us: float = 1.0
    graph_launch_us: float = 6.1
    wait_us: float = 2.0
    barrier_us: float = 1.0
    bandwidth: float = 4.45e12
    flops: float = 6.0e13
    half_flops: float = 7.5e14
    chain_flops: float = 4.0e8


H200 = Costs()
"""The costs of an NVIDIA H200, launched through CuPy."""

_NEVER_CAPTURED = frozenset(CutReason) - {CutReason.KEPT_OUTSIDE, CutReason.TOO_SMALL, CutReason.MODE_NONE}
_WAITING = Trait.READS_HOST | Trait.DATA_DEPENDENT | Trait.CONTROL_FLOW | Trait.FOREIGN


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One kernel of a plan: bytes that it moves, FLOPs, and its time on the device in microseconds."""

    step: int
    op: str
    nbytes: int
    flops: int
    device_us: float
    is_waited_for: bool = False


@dataclass(frozen=True, slots=True)
class Simulation:
    """Predicted times of one call in microseconds; `full_us` is None where the whole graph cannot be captured.

    `host_us` is what launching every kernel takes, `device_us` the sum of the kernels; `segments` counts the recorded
    graphs of the plan.
    """

    none_us: float
    piecewise_us: float
    full_us: float | None
    host_us: float
    device_us: float
    segments: int
    kernels: tuple[KernelTime, ...]

    @property
    def times(self) -> Mapping[str, float]:
        """The time of each possible mode by name."""
        found = {"none": self.none_us, "piecewise": self.piecewise_us}
        return found if self.full_us is None else {**found, "full": self.full_us}

    def text(self) -> str:
        """A table of the modes, and what bounds eager execution."""
        bound = "the host" if self.host_us > self.device_us else "the device"
        rows = [
            f"{len(self.kernels)} kernels: {self.host_us:,.1f} us to launch, {self.device_us:,.1f} us on the device;"
            f" eager execution is bound by {bound}",
            f"{'mode':<10} {'us a call':>12} {'x eager':>8}  recorded graphs",
        ]
        graphs = {"none": 0, "piecewise": self.segments, "full": 1}
        for mode, time in self.times.items():
            rows.append(f"{mode:<10} {time:>12,.1f} {self.none_us / time:>8.2f}  {graphs[mode]}")
        if self.full_us is None:
            rows.append(f"{'full':<10} {'-':>12} {'':>8}  some steps cannot be captured")
        return "\n".join(rows)


def simulate(plan: Plan, costs: Costs = H200, **changes: float) -> Simulation:
    """Predicts the time of one call of `plan` in each capture mode.

    `changes` replace fields of `costs`: `simulate(plan, launch_us=10.0)`. Inputs are taken to be in place. Raises
    `TypeError` for a field that `Costs` does not have.
    """
    costs = replace(costs, **changes)
    kernels = tuple(_kernels(plan, costs))
    segments = tuple(segment for segment in plan.segments if segment.is_captured)
    cuts = {cut.reason for segment in plan.segments for cut in segment.cuts}
    eager, whole = Segment(0, len(plan.steps), False), Segment(0, len(plan.steps), True)
    return Simulation(
        none_us=_call_us([eager], kernels, costs),
        piecewise_us=_call_us(plan.segments, kernels, costs),
        full_us=None if cuts & _NEVER_CAPTURED else _call_us([whole], kernels, costs),
        host_us=len(kernels) * costs.launch_us,
        device_us=sum(kernel.device_us for kernel in kernels),
        segments=len(segments),
        kernels=kernels,
    )


def crossover(
    graph: Graph,
    dim: str,
    *,
    within: float = 0.1,
    largest: int = 65536,
    **changes: float,
) -> int | None:
    """The least size of the symbol `dim` at which eager execution takes at most `1 + within` times the recorded graph.

    `dim` is its only symbol; `changes` are to the costs of an H200. Found by doubling and halving, as eager only
    catches up while sizes grow. None when it does not up to `largest`. Where the whole graph cannot be captured, its
    segments are compared with eager. Raises `ShapeError` when `largest` is below 1.
    """
    if largest < 1:
        raise ShapeError(f"the largest size of {dim} is {largest}", remedy="sizes start at 1")
    costs = replace(H200, **changes)
    policy = PlanPolicy(CapturePolicy(min_kernels=0))

    def has_caught_up(size: int) -> bool:
        found = simulate(make_plan(graph, {dim: size}, CUDA, policy), costs)
        recorded = found.piecewise_us if found.full_us is None else found.full_us
        return found.none_us <= (1 + within) * recorded

    high = 1
    while not has_caught_up(high):
        if high >= largest:
            return None
        high = min(2 * high, largest)
    low = high // 2  # eager has not caught up there
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if has_caught_up(middle) else (middle, high)
    return high


# ---- kernels


def _kernels(plan: Plan, costs: Costs) -> Iterable[KernelTime]:
    for step in plan.steps:
        if step.kind is StepKind.COMPUTE:
            yield _kernel(plan, step, costs)
    for output in plan.copies:
        nbytes = 2 * _reach(plan.views[plan.graph.outputs[output]])
        device_us = costs.node_us + nbytes / costs.bandwidth * 1e6
        yield KernelTime(len(plan.steps), "copy of a state", nbytes, 0, device_us)


def _kernel(plan: Plan, step: Step, costs: Costs) -> KernelTime:
    node = step.node
    nbytes, flops = _bytes_moved(plan, node), _flops(node)
    return KernelTime(
        step.index, node.op.name, nbytes, flops, _device_us(plan, node, nbytes, flops, costs), node.op.has(_WAITING)
    )


def _device_us(plan: Plan, node: Node, nbytes: int, flops: int, costs: Costs) -> float:
    is_exchanging = bool(flops) and not node.op.has(Trait.ELEMENTWISE | Trait.VIEW)
    floor = costs.node_us + (costs.barrier_us if is_exchanging else 0.0)
    computing = flops / _rate(node, costs)
    if is_exchanging and not node.op.has(Trait.REDUCTION):
        results = sum(_elements(plan.views[value]) for value in node.outputs if value in plan.views)
        computing += flops / max(results, 1) / costs.chain_flops
    return floor + max(nbytes / costs.bandwidth, computing) * 1e6


def _rate(node: Node, costs: Costs) -> float:
    first = node.outputs[0].type if node.outputs else None
    is_half = isinstance(first, TensorType) and first.dtype.is_float and first.dtype.bits <= 16
    return costs.half_flops if is_half else costs.flops


def _flops(node: Node) -> int:
    """The arithmetic of a node; 0 where it depends on data."""
    found = node_flops(node)
    return found if isinstance(found, int) else 0


def _bytes_moved(plan: Plan, node: Node) -> int:
    """What a kernel reads and writes at least. One without arithmetic copies: it reads no more than it writes.

    So a gather is not charged with its whole table.
    """
    written = sum(_reach(plan.views[value]) for value in node.outputs if value in plan.views)
    reads = [_reach(plan.views[value]) for value in dict.fromkeys(node.operands) if value in plan.views]
    return written + (sum(reads) if _flops(node) else sum(min(read, written) for read in reads))


def _elements(view: View) -> int:
    count = 1
    for size in view.shape:
        count *= size
    return count


def _reach(view: View) -> int:
    """The bytes that reading every element touches: those that are broadcast count once."""
    return min(view.extent, _elements(view) * element_bytes(view.dtype))


# ---- the queue


@dataclass(frozen=True, slots=True)
class _Item:
    """Something that the host puts into the queue; it waits for the end of one that `is_waited_for`."""

    host_us: float
    device_us: float
    is_waited_for: bool = False


def _call_us(segments: Sequence[Segment], kernels: Sequence[KernelTime], costs: Costs) -> float:
    items = [item for segment in segments for item in _items(segment, kernels, costs)]
    last = segments[-1].stop if segments else 0
    items += [_Item(costs.launch_us, each.device_us) for each in kernels if each.step >= last]
    return _queue_us(items, costs.wait_us)


def _items(segment: Segment, kernels: Sequence[KernelTime], costs: Costs) -> list[_Item]:
    inside = [kernel for kernel in kernels if segment.start <= kernel.step < segment.stop]
    if not segment.is_captured:
        return [_Item(costs.launch_us, kernel.device_us, kernel.is_waited_for) for kernel in inside]
    host_us = max(costs.graph_launch_us - costs.node_us - costs.wait_us, 0.0)
    return [_Item(host_us, sum(kernel.device_us for kernel in inside))] if inside else []


def _queue_us(items: Iterable[_Item], wait_us: float) -> float:
    """When the host knows that the last item has ended, from when it began."""
    host = device = 0.0
    for item in items:
        host += item.host_us
        device = max(host, device) + item.device_us
        if item.is_waited_for:
            host = device + wait_us
    return max(host, device + wait_us) if device else host
